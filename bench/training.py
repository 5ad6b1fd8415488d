"""Training steps side by side: jumok, stock `transformers` with the same weights and batches, and a plain loop.

    python bench/training.py              # both models; ten minutes on two slow cores
    python bench/training.py --quick      # a toy, to see that it runs

Every model is measured in a process of its own. There all works take turns, in an order that turns round each time,
and their ratios are taken within these rounds. Before that, each takes a step that is not counted, and those that are
compiled two. Compiling happens in the first: "first step" is all of it, which with compiled models is mostly that. It
is less where a cache of the compiler is left from an earlier run. That the first losses of jumok and `transformers`
are equal is checked. If the rounds would take longer than --minutes there are fewer of them, two at least, and the
table says how many.

`transformers` is Qwen3ForCausalLM with SDPA attention and fused AdamW, in float32, with bfloat16 autocast, and with
that and torch.compile. The plain loop is bench/plain_gpt.py, a GPT-2 of the same size, with AdamW as PyTorch has it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any

from jumok.config import GPTConfig
from jumok.device import choose_device, has_compiler
from jumok.speed import OurTraining, StockTraining, Turns, measure_machine, our_training, take_turns
from plain_gpt import PlainGPT, PlainTraining

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
    parser.add_argument("--no-compile", action="store_true", help="leave out what torch.compile makes")
    parser.add_argument("--quick", action="store_true", help="the toy alone, two rounds, nothing compiled")
    parser.add_argument("--here", action="store_true", help="in this process, which one --model must be for")
    options = parser.parse_args()
    if options.quick:
        options.model, options.rounds, options.no_compile, options.vocabulary = ["toy"], 2, True, 400
    models = options.model or ["six", "default"]
    if options.here:
        measure(models[0], options)
        return
    print(f"python {' '.join(sys.argv)}", flush=True)
    print(measure_machine(choose_device(options.device)).describe(), flush=True)
    for model in models:
        flags = ["--model", model, "--vocabulary", str(options.vocabulary), "--rounds", str(options.rounds)]
        flags += ["--minutes", str(options.minutes)]
        flags += ["--device", options.device, "--here", *(["--no-compile"] if options.no_compile else [])]
        done = subprocess.run([sys.executable, __file__, *flags])
        if done.returncode:  # it has said why
            raise SystemExit(f"{model} could not be measured")


def characters() -> Iterator[str]:
    """Tens of thousands of letters that NFC leaves alone: Hangul syllables, then Chinese characters."""
    return map(chr, chain(range(0xAC00, 0xD7A4), range(0x4E00, 0x9FA6), range(0x20000, 0x2A6D7)))


def text_with(vocabulary: int, length: int) -> str:
    """Random characters, as many different ones as make up a vocabulary of this size, each at least once."""
    letters = list(islice(characters(), vocabulary - BYTES))
    return "".join(letters) + "".join(random.Random(0).choices(letters, k=length))


def measure(name: str, options: argparse.Namespace) -> None:
    device = choose_device(options.device)
    compiling = not options.no_compile and has_compiler(device)
    text = text_with(options.vocabulary, 400_000)
    with ExitStack() as stack:

        def ours(**settings: Any) -> OurTraining:
            how: dict[str, Any] = {"tokenizer_options": {"min_count": 1}}
            return stack.enter_context(our_training(text, {**MODELS[name], **settings}, options.device, **how))

        first = ours(optimizer="adamw", compile="off")
        trainer = first.trainer
        shape, precision, tokens = trainer.model.config, trainer.config.precision, trainer.task.tokens_per_batch
        assert isinstance(shape, GPTConfig)
        sizes = (shape.vocab_size, shape.context_length, shape.n_layer, shape.n_head, shape.n_embd)
        measured = {"precision": precision, "attention": trainer.config.attention}  # once, so that all do the same
        works: dict[str, Any] = {f"jumok, {precision}": first}
        if compiling:
            works[f"jumok, {precision}, compiled"] = ours(optimizer="adamw", compile="on", **measured)
        muon = f"jumok, {precision}, Muon{', compiled' if compiling else ''}"
        works[muon] = ours(compile="on" if compiling else "off", **measured)
        for kind in ("float32", "bfloat16"):
            works[f"transformers, {kind}"] = StockTraining(trainer, kind)
        if compiling:
            works["transformers, bfloat16, compiled"] = StockTraining(trainer, "bfloat16", compiled=True)
        for kind in ("float32", "bfloat16"):
            works[f"plain loop, {kind}"] = PlainTraining(PlainGPT(*sizes), trainer.task.batch, kind, device)

        print(
            f"\n{name}: {shape.n_layer} layers, width {shape.n_embd}, {shape.n_head} heads, context "
            f"{shape.context_length}, batch {trainer.config.batch_size}, vocabulary {shape.vocab_size:,}, "
            f"{trainer.model.parameter_count() / 1e6:.1f} M parameters; jumok's attention {trainer.config.attention}, "
            f"seed {trainer.config.seed}",
            flush=True,
        )
        steps: dict[str, Callable[[], object]] = {work: works[work].step for work in works}
        first_seconds = {work: seconds(step) for work, step in steps.items()}
        check(works, first.losses[0], precision)
        again = {work: seconds(steps[work]) if "compiled" in work else first_seconds[work] for work in works}
        rounds = min(options.rounds, max(2, int(60 * options.minutes / sum(again.values()))))
        turns = take_turns(steps, tokens=tokens, rounds=rounds, device=device)
    print(f"{rounds} rounds" + (f", for {options.rounds} would take too long" if rounds < options.rounds else ""))
    best = f"jumok, {precision}, compiled" if compiling else f"jumok, {precision}"
    others = [work for work in works if not work.startswith("jumok")]
    show("AdamW on both sides", [work for work in works if work != muon], turns, first_seconds, best)
    show("jumok as it comes, with Muon, beside the same", [muon, *others], turns, first_seconds, muon)
    flops = flops_per_token(shape)
    print(f"\n{flops / 1e6:.1f} MFLOP a token; {best}: {flops * turns.speed(best) / 1e9:,.0f} GFLOP/s")


def seconds(step: Callable[[], object]) -> float:
    """How long one takes."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def check(works: dict[str, Any], ours: float, precision: str) -> None:
    """The same model and the same batch, or there is nothing to compare."""
    for work, training in works.items():
        allowed = ALLOWED["bfloat16" if "bfloat16" in work else precision]
        if not work.startswith("plain") and abs(training.losses[0] / ours - 1) > allowed:
            raise SystemExit(f"{work} begins with a loss of {training.losses[0]:.6f}, jumok with {ours:.6f}")


def show(title: str, works: list[str], turns: Turns, first_seconds: Mapping[str, float], ours: str) -> None:
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
