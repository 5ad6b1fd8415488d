"""Training steps side by side: jumok, stock `transformers` with the same weights and batches, and a plain loop.

    python bench/training.py              # both models; ten minutes on two slow cores
    python bench/training.py --precision float32 --model default   # all in float32
    python bench/training.py --quick      # a toy, to see that it runs

For every model there are two processes: one for jumok, which asks the C library to keep the memory that it frees
(`jumok.device.keep_memory`), and one for the others, which do not; with --keep-memory they do, too. All works of both
take turns, in an order that turns round each time, and their ratios are taken within these rounds. Before that, each
takes a step that is not counted, and those that are compiled two. Compiling happens in the first: "first step" is all
of it, which with compiled models is mostly that. It is less where a cache of the compiler is left from an earlier run.
That the first losses of jumok and `transformers` are equal is checked. If the rounds would take longer than --minutes
there are fewer of them, two at least, and the table says how many.

jumok trains in what it chooses: in bfloat16 where the processor has instructions for it, otherwise in float32. Then
nothing else is measured: products in bfloat16 would be emulated. `transformers` is Qwen3ForCausalLM with SDPA attention
and fused AdamW, in float32, with bfloat16 autocast, and with the latter of these and torch.compile. The plain loop is
bench/plain_gpt.py, a GPT-2 of the same size, with AdamW as PyTorch has it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Any

from jumok.config import GPTConfig, from_dict, to_dict
from jumok.device import choose_device, has_compiler, keep_memory, multiplies_bfloat16, wait
from jumok.models.gpt import GPT
from jumok.runs.config import training_of
from jumok.runs.folder import RunFolder
from jumok.runs.load import load
from jumok.training.policy import gains_by_compiling
from jumok.training.tasks import TASKS
from plain_gpt import PlainGPT, PlainTraining
from speed import OurTraining, Rounds, StockTraining, describe, interleave, our_training

BYTES = 256  # ids that a tokenizer of characters has besides its characters
MODELS: dict[str, dict[str, Any]] = {
    "six": {"n_layer": 6, "n_head": 8, "n_embd": 256, "context_length": 256, "batch_size": 64},
    "default": {},
    "toy": {"n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 32, "batch_size": 4},
}
ALLOWED = {"float32": 1e-5, "bfloat16": 2e-2}  # relative difference of the first losses, by the coarser side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="repeatable [six and default]")
    parser.add_argument("--vocabulary", type=int, default=1540)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=5.0, help="that the rounds of a model may take")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=ALLOWED, help="of all; [what jumok chooses, and float32 beside it]")
    parser.add_argument("--no-compile", action="store_true", help="leave out what torch.compile makes")
    parser.add_argument("--keep-memory", action="store_true", help="for the others as well")
    parser.add_argument("--quick", action="store_true", help="the toy alone, two rounds, nothing compiled")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.model, options.rounds, options.no_compile, options.vocabulary = ["toy"], 2, True, 400
    models = options.model or ["six", "default"]
    if options.side:
        with ExitStack() as stack:
            SIDES[options.side](models[0], options, stack)
        return
    print(f"python {' '.join(sys.argv)}", flush=True)
    print(describe(choose_device(options.device)), flush=True)
    for model in models:
        measure(model, options)


def characters() -> Iterator[str]:
    """Tens of thousands of letters that NFC leaves alone: Hangul syllables, then Chinese characters."""
    return map(chr, chain(range(0xAC00, 0xD7A4), range(0x4E00, 0x9FA6), range(0x20000, 0x2A6D7)))


def text_with(vocabulary: int, length: int) -> str:
    """Random characters, as many different ones as make up a vocabulary of this size, each at least once."""
    letters = list(islice(characters(), vocabulary - BYTES))
    return "".join(letters) + "".join(random.Random(0).choices(letters, k=length))


# --- the two processes ---


class Side:
    """A process with some of the works, which takes a step of one when it is told to.

    facts: what it says of itself once it is ready: its "works", and more.
    """

    def __init__(self, flags: list[str]) -> None:
        command = [sys.executable, __file__, *flags]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts: dict[str, Any] = self._answer()

    def step(self, work: str) -> float:
        """Take the next step of a work, and return its loss."""
        assert self._process.stdin is not None
        print(work, file=self._process.stdin, flush=True)
        return float(self._answer()["loss"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        if self._process.returncode:  # it has said why
            raise SystemExit("a process failed at its end")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:  # it has said why
            raise SystemExit("a process ended before it was asked to")
        answer: dict[str, Any] = json.loads(line)
        return answer


def take_steps(works: Mapping[str, Any], device: Any, **facts: Any) -> None:
    """Of the works that stdin names, until it ends."""
    print(json.dumps({"works": list(works), **facts}), flush=True)
    for line in sys.stdin:
        work = works[line.strip()]
        work.step()
        wait(device)
        print(json.dumps({"loss": work.losses[-1]}), flush=True)


def ours(name: str, options: argparse.Namespace, stack: ExitStack, **settings: Any) -> OurTraining:
    """A run of jumok that has not begun, in a folder that is gone at the end."""
    text = text_with(options.vocabulary, 400_000)
    how: dict[str, Any] = {"tokenizer_options": {"min_count": 1}}
    return stack.enter_context(our_training(text, {**MODELS[name], **settings}, options.device, **how))


def serve_jumok(name: str, options: argparse.Namespace, stack: ExitStack) -> None:
    device = choose_device(options.device)
    given = {} if options.precision is None else {"precision": options.precision}
    first = ours(name, options, stack, optimizer="adamw", compile="off", **given)
    trainer, config = first.trainer, first.trainer.config
    measured = {"precision": config.precision, "attention": config.attention}  # once, so that all do the same
    works = {f"jumok, {config.precision}": first}
    compiling = not options.no_compile and has_compiler(device)
    if compiling:
        works[f"jumok, {config.precision}, compiled"] = ours(
            name, options, stack, optimizer="adamw", compile="on", **measured
        )
    as_it_comes = compiling and gains_by_compiling(config.precision, device)
    how, mode = (", compiled", "on") if as_it_comes else ("", "off")
    works[f"jumok, {config.precision}, Muon{how}"] = ours(name, options, stack, compile=mode, **measured)
    trainer.folder.write_parameters(trainer.model)
    take_steps(
        works,
        device,
        run=str(trainer.folder.path),
        shape=to_dict(trainer.model.config),
        parameters=trainer.model.parameter_count(),
        tokens=trainer.task.tokens_per_batch,
        batch_size=config.batch_size,
        seed=config.seed,
        **measured,
    )


def serve_others(name: str, options: argparse.Namespace, stack: ExitStack) -> None:
    """With the weights and batches of the first of jumok's runs, from its folder."""
    device = choose_device(options.device)
    if options.keep_memory:
        keep_memory()
    recorded = RunFolder.open(options.run).read_config()
    config = training_of(recorded["train"])
    model = load(options.run, str(device), kind=GPT)
    assert model.tokenizer is not None
    task = TASKS[config.task.name](RunFolder.open(options.run), recorded["data"], model.tokenizer, model.config, config)
    works: dict[str, Any] = {}
    kinds = ("float32", "bfloat16") if multiplies_bfloat16(device) else ("float32",)
    if options.precision is not None:
        kinds = (options.precision,)
    for kind in kinds:
        works[f"transformers, {kind}"] = StockTraining(model, task.batch, config, kind)
    if not options.no_compile and has_compiler(device):
        works[f"transformers, {kind}, compiled"] = StockTraining(model, task.batch, config, kind, compiled=True)
    shape = model.config
    sizes = (shape.vocab_size, shape.context_length, shape.n_layer, shape.n_head, shape.n_embd)
    for kind in kinds:
        works[f"plain loop, {kind}"] = PlainTraining(PlainGPT(*sizes), task.batch, kind, device)
    take_steps(works, device)


SIDES = {"jumok": serve_jumok, "others": serve_others}


# --- measuring and telling ---


def measure(name: str, options: argparse.Namespace) -> None:
    flags = ["--model", name, "--vocabulary", str(options.vocabulary), "--device", options.device]
    flags += ["--no-compile"] if options.no_compile else []
    flags += ["--precision", options.precision] if options.precision else []
    flags += ["--keep-memory"] if options.keep_memory else []
    jumok = Side(["--side", "jumok", *flags])
    facts = jumok.facts
    others = Side(["--side", "others", "--run", facts["run"], *flags])
    shape = from_dict(GPTConfig, facts["shape"])
    print(
        f"\n{name}: {shape.n_layer} layers, width {shape.n_embd}, {shape.n_head} heads, context "
        f"{shape.context_length}, batch {facts['batch_size']}, vocabulary {shape.vocab_size:,}, "
        f"{facts['parameters'] / 1e6:.1f} M parameters; jumok's attention {facts['attention']}, seed {facts['seed']}"
        + (", memory kept on both sides" if options.keep_memory else ""),
        flush=True,
    )
    steps: dict[str, Callable[[], float]] = {
        work: partial(side.step, work) for side in (jumok, others) for work in side.facts["works"]
    }
    losses, first_seconds = {}, {}
    for work, step in steps.items():
        began = perf_counter()
        losses[work] = step()
        first_seconds[work] = perf_counter() - began
    plain, *_, muon = jumok.facts["works"]
    best = next((work for work in steps if work == f"{plain}, compiled"), plain)
    check(losses, losses[plain], facts["precision"])
    again = {work: seconds(steps[work]) if "compiled" in work else first_seconds[work] for work in steps}
    rounds = min(options.rounds, max(2, int(60 * options.minutes / sum(again.values()))))
    turns = interleave(steps, tokens=facts["tokens"], rounds=rounds, device=choose_device("cpu"))  # each has waited
    for side in (others, jumok):  # whose folder the others have open
        side.close()
    print(f"{rounds} rounds" + (f", for {options.rounds} would take too long" if rounds < options.rounds else ""))
    show("AdamW on both sides", [work for work in steps if work != muon], turns, first_seconds, best)
    show("jumok as it comes, with Muon, beside the same", [muon, *others.facts["works"]], turns, first_seconds, muon)
    flops = flops_per_token(shape)
    print(f"\n{flops / 1e6:.1f} MFLOP a token; {best}: {flops * turns.speed(best) / 1e9:,.0f} GFLOP/s", flush=True)


def seconds(step: Callable[[], object]) -> float:
    """How long one takes."""
    began = perf_counter()
    step()
    return perf_counter() - began


def check(losses: Mapping[str, float], ours: float, precision: str) -> None:
    """The same model and the same batch, or there is nothing to compare."""
    for work, loss in losses.items():
        allowed = ALLOWED["bfloat16" if "bfloat16" in work else precision]
        if not work.startswith("plain") and abs(loss / ours - 1) > allowed:
            raise SystemExit(f"{work} begins with a loss of {loss:.6f}, jumok with {ours:.6f}")


def show(title: str, works: list[str], turns: Rounds, first_seconds: Mapping[str, float], ours: str) -> None:
    print(f"\n{title}\n{'':36}{'tokens/s':>10}{'s a step':>10}{'first step, s':>15}   {ours} is so many times as fast")
    for work in works:
        ratio = turns.ratio(ours, work)
        times = "" if work == ours else f"   {ratio.median:5.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        speed = turns.speed(work)
        print(f"{work:36}{speed:10,.0f}{turns.tokens / speed:10.3f}{first_seconds[work]:15.1f}{times}")


def flops_per_token(shape: GPTConfig) -> float:
    """Of a training step: six for each weight of a matrix, and of attention 12 · heads · head width · context / 2.

    Forward two operations a weight and backward four; scores and weighted sums the same, for the half of the square
    that is in the past.
    """
    block = shape.n_embd * shape.head_dim * (2 * shape.n_head + 2 * shape.n_kv_head)
    block += (3 if shape.block().gated else 2) * shape.n_embd * shape.mlp_width
    attention = 2 * shape.n_head * shape.head_dim * shape.context_length / 2
    return 6 * (shape.n_layer * (block + attention) + shape.n_embd * shape.vocab_size)


if __name__ == "__main__":
    main()
