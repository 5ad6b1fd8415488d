"""Writing, side by side with `transformers.generate` on the same exported weights: python bench/decoding.py RUN

    python bench/decoding.py runs/novels --text novels.txt
    python bench/decoding.py --part cold
    python bench/decoding.py --quick      # a toy, to see that it runs

RUN is a run of a GPT; without one, a model of the default size learns the built-in stories for a few steps, since
speed does not depend on what the weights are. In each part all works take turns, in an order that turns round each
time, after a warm-up that does not count. What is printed is the median of each, the least and the most, and how many
times as fast it is as the first, the median over the rounds. All of it runs on the CPU.

Parts:
    ids      the ids that both choose greedily, and those of jumok without a cache
    single   one stream of --tokens tokens, at the context of the run and at --context
    streams  --streams at once: samples of one prompt, and prompts of different lengths
    cold     a whole process that loads the model and writes 50 tokens
    int8     one stream with 8-bit matrices, and what they cost in nats per character of --text (its end)

transformers keeps all tokens in view, however long the text gets; jumok slides its window within the context that the
model was trained with. At --context both see the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import jumok
from jumok import text as reader
from jumok.corpora import stories
from jumok.errors import JumokError, TextError
from jumok.inference.matrices import Quantization
from jumok.inference.packed import PackedGPT, can_pack
from jumok.interop.huggingface import convert as hf
from jumok.models.gpt import GPT
from speed import describe, interleave, spread

PARTS = ("ids", "single", "streams", "cold", "int8")
PROMPT = "그날 밤, 나는 "
SEED = 1
CPU = torch.device("cpu")
ROWS = 32  # windows of one context, in which the nats of 8-bit matrices are measured

THEIR_PROCESS = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(sys.argv[2], return_tensors="pt")
out = model.generate(
    input_ids=ids["input_ids"], do_sample=True, temperature=0.8, top_k=0, max_new_tokens=50, min_new_tokens=50
)
print(tokenizer.decode(out[0]))
"""


# --- the two sides ----------------------------------------------------------------------------------------------------


def their_ids(model: Any, ids: torch.Tensor, tokens: int, *, sample: bool = True) -> torch.Tensor:
    """What transformers writes after `ids`, (B, n): (B, tokens)."""
    how = {"do_sample": True, "temperature": 0.8, "top_k": 0} if sample else {"do_sample": False}
    with torch.inference_mode():
        out = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0, **how)
    return out[:, ids.shape[1] :]


def prompt_ids(model: GPT) -> torch.Tensor:
    """The prompt of all parts, (1, n)."""
    return torch.tensor([model.tokenizer.encode(PROMPT).tolist()])


def our_ids(model: GPT, prompt: str | list[str], tokens: int, **how: Any) -> Any:
    """What jumok writes, text and all."""
    return jumok.generate(model, prompt, tokens=tokens, seed=SEED, **how)


def compare(title: str, sides: dict[str, tuple[Callable[[], object], int]], rounds: int, unit: str) -> None:
    """Let the sides take turns and print a table; the first one is what the others are measured against.

    sides: name -> (what to run, how many tokens it writes; 0: seconds are shown instead).
    """
    turns = interleave({name: work for name, (work, _) in sides.items()}, tokens=1, rounds=rounds, device=CPU)
    reference, *_ = sides
    print(f"\n{title}, {rounds} rounds", flush=True)
    for name, (_, tokens) in sides.items():
        figures = spread([tokens / seconds if tokens else seconds for seconds in turns.seconds[name]])
        times = turns.ratio(name, reference).median * (tokens / sides[reference][1] if tokens else 1)
        middle, low, high = (f"{figure:,.{0 if tokens else 2}f}" for figure in figures)
        print(f"  {name:44} {middle:>9} {unit} ({low} to {high})   {times:6.2f} ×", flush=True)


# --- the parts --------------------------------------------------------------------------------------------------------


def same_ids(model: GPT, theirs: Any, options: argparse.Namespace) -> None:
    """How far the greedy ids agree; in float32 two likeliest tokens may be a tie."""
    room = model.config.context_length - 20
    wanted = their_ids(theirs, prompt_ids(model), room, sample=False)[0].tolist()
    fast, plain = (list(our_ids(model, PROMPT, room, temperature=0, cache=c)[0].ids) for c in (True, False))
    print(f"\nGreedy ids, {room} tokens: {agreement(fast, plain)} equal to jumok without a cache, ", end="")
    print(f"{agreement(fast, wanted)} equal to transformers")


def agreement(one: list[int], other: list[int]) -> str:
    """The first how many are equal."""
    equal = next((n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
    return "all" if equal == len(one) else f"the first {equal}"


def single(model: GPT, theirs: Any, options: argparse.Namespace) -> None:
    """One stream."""
    ids, n = prompt_ids(model), options.tokens
    our_ids(model, PROMPT, 20), their_ids(theirs, ids, 20)
    compare(
        f"One stream of {n:,} tokens, context {model.config.context_length:,}",
        {
            "transformers.generate": (lambda: their_ids(theirs, ids, n), n),
            "jumok generate": (lambda: our_ids(model, PROMPT, n), n),
        },
        options.rounds,
        "tokens/s",
    )


def streams(model: GPT, theirs: Any, options: argparse.Namespace) -> None:
    """Several at once, beside one stream of transformers and as many of it."""
    ids, many, n = prompt_ids(model), options.streams, options.tokens // 4
    text = "".join(stories.write(2_000, seed=3))
    prompts = [text[20 * row : 20 * row + 3 + 5 * row] for row in range(many)]
    our_ids(model, prompts, 5), our_ids(model, PROMPT, 5, samples=many)
    their_ids(theirs, ids, 5), their_ids(theirs, ids.expand(many, -1), 5)
    compare(
        f"{many} streams of {n:,} tokens, context {model.config.context_length:,}",
        {
            "transformers.generate, 1 stream": (lambda: their_ids(theirs, ids, n), n),
            f"transformers.generate, {many}": (lambda: their_ids(theirs, ids.expand(many, -1), n), n * many),
            f"jumok, {many} samples of one prompt": (lambda: our_ids(model, PROMPT, n, samples=many), n * many),
            f"jumok, {many} prompts of {len(prompts[0])} to {len(prompts[-1])} characters": (
                lambda: our_ids(model, prompts, n),
                n * many,
            ),
        },
        options.rounds,
        "tokens/s",
    )


def cold(run: Path, exported: Path, options: argparse.Namespace) -> None:
    """Whole processes."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
    ours = [sys.executable, "-m", "jumok.cli", "generate", str(run), "--prompt", PROMPT, "--tokens", "50"]
    their = [sys.executable, "-c", THEIR_PROCESS, str(exported), PROMPT]
    subprocess.run(ours, **quiet)  # so that the files of both are in memory
    subprocess.run(their, **quiet)
    compare(
        "A whole process that writes 50 tokens",
        {
            "transformers: load, generate, decode": (lambda: subprocess.run(their, **quiet), 0),
            "jumok generate": (lambda: subprocess.run(ours, **quiet), 0),
        },
        options.rounds,
        "s",
    )


def int8(model: GPT, theirs: Any, options: argparse.Namespace) -> None:
    """Speed and quality of 8-bit matrices."""
    n = options.tokens
    our_ids(model, PROMPT, 20), our_ids(model, PROMPT, 20, quantize="int8")
    compare(
        f"8-bit matrices, one stream of {n:,} tokens",
        {
            "jumok generate": (lambda: our_ids(model, PROMPT, n), n),
            "jumok generate --quantize int8": (lambda: our_ids(model, PROMPT, n, quantize="int8"), n),
        },
        options.rounds,
        "tokens/s",
    )
    text = options.text.read() if options.text else "".join(stories.write(60_000, seed=9))
    full, tokens = nats_per_char(model, text, None)
    rounded, _ = nats_per_char(model, text, "int8")
    where = f"the last {tokens:,} tokens of {options.text.sources[0].name if options.text else 'stories'}"
    print(f"  nats/char on {where}: {full:.4f}, int8 {rounded:.4f} ({rounded - full:+.4f})")
    if tokens < ROWS * model.config.context_length:
        print(f"  which is a short text: {ROWS * model.config.context_length:,} tokens would tell more")


@torch.inference_mode()
def nats_per_char(model: GPT, text: str, quantize: Quantization | None) -> tuple[float, int]:
    """Nats per character of the end of a text, and how many tokens that end has.

    It is read token by token as in writing, in ROWS windows of one context; of a shorter text in as many as it fills,
    or in one that is shorter.

    Raises:
        TextError: there is nothing to predict.
    """
    ids = model.tokenizer.encode(text)
    width = min(model.config.context_length, len(ids))
    if width < 2:
        raise TextError(f"a text of {len(ids)} tokens leaves none to predict; give a longer one.")
    rows = min(ROWS, len(ids) // width)
    windows = torch.tensor(ids[-rows * width :].tolist()).view(rows, width)
    packed, cache = PackedGPT(model, rows, quantize), model.new_cache(rows)
    nats = 0.0
    for place in range(width - 1):
        logits = packed.logits(windows[:, place], cache).double()  # (R, V)
        nats -= float(logits.log_softmax(-1).gather(1, windows[:, place + 1, None]).sum())
    chars = sum(len(model.tokenizer.decode(row[1:].tolist())) for row in windows)
    return nats / chars, rows * width


# --- the machine and the model ----------------------------------------------------------------------------------------


def trained(folder: Path, size: str) -> Path:
    """A run of a named size on stories."""
    text = folder / "stories.txt"
    text.write_text("".join(stories.write(200_000)), encoding="utf-8")
    run = folder / "run"
    command = [sys.executable, "-m", "jumok.cli", "train", str(text), "--out", str(run), "--size", size, "--quiet"]
    subprocess.run([*command, "--steps", "10", "--compile", "off", "--sample-tokens", "0"], check=True)
    return run


def longer(model: GPT, context: int) -> GPT:
    """The same weights in a model with room for more tokens; only the modern family can."""
    other = GPT(dataclasses.replace(model.config, context_length=context)).eval()
    other.load_state_dict(model.state_dict())
    other.tokenizer = model.tokenizer
    return other


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="a run of a GPT [one of the default size, made for this]")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times [all]")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024, help="the longer context, for the modern family")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", type=Path, help="what the nats of 8-bit matrices are measured on, its end")
    parser.add_argument("--quick", action="store_true", help="a small model that writes a few tokens")
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.streams, options.rounds, options.context = 40, 3, 1, 256
    if options.text:  # before anything that takes long
        try:
            options.text = reader.read([options.text])
        except JumokError as error:
            parser.error(str(error))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"python {' '.join(sys.argv)}")
    print(describe(CPU), flush=True)
    with tempfile.TemporaryDirectory() as name:
        run, exported = options.run or trained(Path(name), "nano" if options.quick else "micro"), Path(name) / "hf"
        model = jumok.load(run)
        hf.to_hf(model, exported)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(exported).eval()
        c = model.config
        print(
            f"{c.family}, {c.n_layer} layers, width {c.n_embd}, {c.n_head} heads, {c.vocab_size:,} ids, context "
            f"{c.context_length:,}, {model.parameter_count() / 1e6:.1f} M parameters"
            f"{'' if can_pack(model) else '; written by the model itself, without packed matrices'}"
        )
        for part in options.part or PARTS:
            if part == "cold":
                cold(run, exported, options)
            else:
                {"ids": same_ids, "single": single, "streams": streams, "int8": int8}[part](model, theirs, options)
            if part == "single" and c.family == "modern" and options.context > c.context_length:
                single(longer(model, options.context), theirs, options)


if __name__ == "__main__":
    main()
