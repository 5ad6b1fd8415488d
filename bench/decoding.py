"""Writing, beside `transformers.generate` and llama.cpp with the same weights: python bench/decoding.py RUN

    python bench/decoding.py runs/novels --text novels.txt
    python bench/decoding.py --shape 6 256 8 1024 --ids 1590 --without transformers
    python bench/decoding.py --part cold
    python bench/decoding.py --quick      # a toy, to see that it runs

RUN is a run of a GPT; without one, a model of the default size or of --shape learns the built-in stories for a few
steps, since speed does not depend on what the weights are. In each part all works take turns, in an order that turns
round each time, after a warm-up that does not count. What is printed is the median of each, the least and the most, and
how many times as fast it is as others, the median over the rounds. All of it runs on the CPU, and all sides have as
many threads.

Parts:
    ids      the ids that all choose greedily, and those of jumok without a cache
    single   one stream of --tokens tokens, at the context of the run and at --context
    streams  --streams at once, in float32 and 8 bits: samples of one prompt, and prompts of different lengths
    prompt   one token after a prompt of --prompt tokens, in float32 and 8 bits; the modern family
    cold     a whole process that loads the model and writes 50 tokens: all of it, its first letter, its memory; and a
             server until its first answer. The first letter of llama.cpp is that of a process that writes one token
    int8     one stream with 8-bit matrices, and what they cost in nats per character of --text (its end)

transformers and llama.cpp keep all tokens in view, however long the text gets; jumok slides its window within the
context that the model was trained with. At --context all see the same. What is timed of llama.cpp: see llama.py. Beside
other programs it is much slower than alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import jumok
import llama
from jumok import text as reader
from jumok.corpora import stories
from jumok.errors import JumokError, TextError
from jumok.inference.engine import make_slots
from jumok.inference.native.from_torch import can_run
from jumok.inference.slots import Chunk, Quantization
from jumok.interop.huggingface import convert as hf
from jumok.models.gpt import GPT
from llama import Llama
from speed import describe, interleave, spread

PARTS = ("ids", "single", "streams", "prompt", "cold", "int8")
OTHERS = ("transformers", "llama.cpp")
KINDS = {None: "f32", "int8": "q8_0"}  # jumok's way to store matrices, and the one of llama.cpp that is next to it
PROMPT = "그날 밤, 나는 "
SEED = 1
CPU = torch.device("cpu")
ROWS = 32  # windows of one context, in which the nats of 8-bit matrices are measured

THEIR_PROCESS = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(sys.argv[2], return_tensors="pt")
model.generate(
    input_ids=ids["input_ids"], do_sample=True, temperature=0.8, top_k=0, max_new_tokens=50, min_new_tokens=50,
    streamer=TextStreamer(tokenizer, skip_prompt=True),
)
"""


# --- the sides --------------------------------------------------------------------------------------------------------

Side = tuple[Callable[[], object], int]  # what to run, and how many tokens it writes; 0: its seconds are shown


@dataclass
class Bench:
    """A model on all sides.

    Fields:
        run, model: of jumok. exported: a folder for transformers, and `theirs` its model; None: left out.
        files: for llama.cpp, by the kind of their numbers; empty: left out.
    """

    run: Path
    model: GPT
    exported: Path
    theirs: Any
    files: dict[str, Path]
    options: argparse.Namespace

    @contextmanager
    def llama(
        self, kind: str, prompts: Sequence[Sequence[int]], tokens: int, *, exact: bool = False
    ) -> Iterator[Llama | None]:
        """llama.cpp with room for these texts, warm; None where it is left out, or has no positions for so many."""
        length = max(map(len, prompts)) + tokens
        if not self.files or (self.model.config.family == "classic" and length > self.model.config.context_length):
            yield None
            return
        threads = torch.get_num_threads()
        with llama.started(self.files[kind], slots=len(prompts), context=length, threads=threads, exact=exact) as other:
            other.write(prompts, 5)
            yield other


def their_ids(model: Any, ids: torch.Tensor, tokens: int, *, sample: bool = True) -> torch.Tensor:
    """What transformers writes after `ids`, (B, n): (B, tokens)."""
    how = {"do_sample": True, "temperature": 0.8, "top_k": 0} if sample else {"do_sample": False}
    with torch.inference_mode():
        out = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0, **how)
    return out[:, ids.shape[1] :]


def prompt_ids(model: GPT) -> list[int]:
    """The prompt of all parts."""
    return list(model.tokenizer.encode(PROMPT).tolist())


def our_ids(model: GPT, prompt: str | list[str], tokens: int, **how: Any) -> Any:
    """What jumok writes, text and all."""
    return jumok.generate(model, prompt, tokens=tokens, seed=SEED, **how)


def compare(title: str, sides: dict[str, Side], rounds: int, unit: str) -> None:
    """Let the sides take turns and print a table, with the speed relative to the first side of each other program."""
    turns = interleave({name: work for name, (work, _) in sides.items()}, tokens=1, rounds=rounds, device=CPU)
    found = (next((name for name in sides if name.startswith(other)), None) for other in OTHERS)
    against = [name for name in found if name] or list(sides)[:1]
    print(f"\n{title}, {rounds} rounds", flush=True)
    print(" " * 88 + "".join(f"{'× ' + name.replace('transformers.generate', 'transformers'):>28}" for name in against))
    for name, (_, tokens) in sides.items():
        figures = spread([tokens / seconds if tokens else seconds for seconds in turns.seconds[name]])
        middle, low, high = (f"{figure:,.{0 if tokens else 2}f}" for figure in figures)
        times = [turns.ratio(name, other).median * (tokens / sides[other][1] if tokens else 1) for other in against]
        row = f"  {name:44} {middle:>9} {unit} ({low} to {high})"
        print(f"{row:88}" + "".join(f"{ratio:28.2f}" for ratio in times), flush=True)


# --- the parts --------------------------------------------------------------------------------------------------------


def same_ids(bench: Bench, model: GPT) -> None:
    """How far the greedy ids agree; in float32 two likeliest tokens may be a tie."""
    ids, room = prompt_ids(model), min(200, model.config.context_length - 20)
    fast, plain = (list(our_ids(model, PROMPT, room, temperature=0, cache=c)[0].ids) for c in (True, False))
    print(f"\nGreedy ids, {room} tokens of jumok: {agreement(fast, plain)} equal without a cache")
    if bench.theirs:
        wanted = their_ids(bench.theirs, torch.tensor([ids]), room, sample=False)[0].tolist()
        print(f"  {agreement(fast, wanted)} equal to transformers")
    with bench.llama("f32", [ids], room, exact=True) as other:
        if other:
            print(f"  {agreement(fast, other.ids(ids, room))} equal to llama.cpp")


def agreement(one: list[int], other: list[int]) -> str:
    """The first how many are equal."""
    equal = next((n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
    return "all" if equal == len(one) else f"the first {equal}"


def single(bench: Bench, model: GPT) -> None:
    """One stream."""
    ids, n, theirs = prompt_ids(model), bench.options.tokens, bench.theirs
    sides: dict[str, Side] = {}
    with ExitStack() as stack:
        if theirs:
            their_ids(theirs, torch.tensor([ids]), 20)
            sides["transformers.generate"] = (lambda: their_ids(theirs, torch.tensor([ids]), n), n)
        for kind in ("f32", "f16"):
            if other := stack.enter_context(bench.llama(kind, [ids], n)):
                sides[f"llama.cpp {kind}"] = (lambda other=other: other.write([ids], n), n)
        our_ids(model, PROMPT, 20)
        sides["jumok generate"] = (lambda: our_ids(model, PROMPT, n), n)
        title = f"One stream of {n:,} tokens, context {model.config.context_length:,}"
        compare(title, sides, bench.options.rounds, "tokens/s")


def streams(bench: Bench, model: GPT) -> None:
    """Several at once, beside as many of the others, and beside one stream of transformers."""
    text = "".join(stories.write(20_000, seed=3))
    for many in bench.options.streams:
        lengths = [3 + 5 * (row % 16) for row in range(many)]
        prompts = [text[80 * row : 80 * row + length] for row, length in enumerate(lengths)]
        for quantize in KINDS:
            streams_of(bench, model, prompts, quantize)


def streams_of(bench: Bench, model: GPT, prompts: list[str], quantize: Quantization | None) -> None:
    """So many at once, with matrices of one kind."""
    many, n, theirs = len(prompts), bench.options.tokens // 4, bench.theirs
    ids, kind, how = torch.tensor([prompt_ids(model)]), KINDS[quantize], {"quantize": quantize}
    sides: dict[str, Side] = {}
    if theirs and not quantize:
        their_ids(theirs, ids, 5), their_ids(theirs, ids.expand(many, -1), 5)
        sides["transformers.generate, 1 stream"] = (lambda: their_ids(theirs, ids, n), n)
        sides[f"transformers.generate, {many}"] = (lambda: their_ids(theirs, ids.expand(many, -1), n), n * many)
    starts = [model.tokenizer.encode(prompt).tolist() for prompt in prompts]
    with bench.llama(kind, starts, n) as other:
        if other:
            sides[f"llama.cpp {kind}, {many} prompts"] = (lambda: other.write(starts, n), n * many)
        our_ids(model, prompts, 5, **how), our_ids(model, PROMPT, 5, samples=many, **how)
        one_prompt = f"jumok{' int8' if quantize else ''}, {many} samples of one prompt"
        sides[one_prompt] = (lambda: our_ids(model, PROMPT, n, samples=many, **how), n * many)
        several = f"jumok{' int8' if quantize else ''}, {many} prompts"
        sides[several] = (lambda: our_ids(model, prompts, n, **how), n * many)
        title = f"{many} streams of {n:,} tokens, prompts of {min(map(len, starts))} to {max(map(len, starts))}"
        compare(title, sides, bench.options.rounds, "tokens/s")


def prompt(bench: Bench, model: GPT) -> None:
    """One token after a long prompt: what is timed is the reading."""
    wanted = bench.options.prompt
    ids = model.tokenizer.encode("".join(stories.write(4 * wanted, seed=3))).tolist()[:wanted]
    text, roomy = model.tokenizer.decode(ids), longer(model, wanted + 1)
    for quantize in KINDS:
        kind, how = KINDS[quantize], {"quantize": quantize}
        sides: dict[str, Side] = {}
        with bench.llama(kind, [ids], 1) as other:
            if other:
                sides[f"llama.cpp {kind}"] = (lambda other=other: other.write([ids], 1), len(ids))
            name = f"jumok{' int8' if quantize else ''}"
            sides[name] = (lambda how=how: our_ids(roomy, text, 1, **how), len(ids))
            sides[name][0]()
            compare(f"A prompt of {len(ids):,} tokens, and one more", sides, bench.options.rounds, "tokens/s")


def cold(bench: Bench, model: GPT) -> None:
    """Whole processes: those that write 50 tokens, and servers that write one."""
    ids, threads = prompt_ids(model), str(torch.get_num_threads())
    sides: dict[str, Callable[[], Cold]] = {}
    if bench.theirs:
        their = [sys.executable, "-c", THEIR_PROCESS, str(bench.exported), PROMPT]
        sides["transformers: load, generate, decode"] = lambda: process(their)
    if bench.files:
        other = [sys.executable, llama.__file__, str(bench.files["f32"]), "--threads", threads]
        few, one = ({"prompt": ids, **llama.sampling(tokens, 0.8)} for tokens in (50, 1))
        sides["llama.cpp: load, complete"] = lambda: dataclasses.replace(
            process(other, json.dumps(few), lines=1), first=process(other, json.dumps(one), lines=1).first
        )
        sides["llama.cpp: server"] = lambda: server(other, "/completion", one)
    ours = [sys.executable, "-m", "jumok.cli"]
    sides["jumok generate"] = lambda: process(
        [*ours, "generate", str(bench.run), "--prompt", PROMPT, "--tokens", "50", "--device", "cpu"]
    )
    ask = {"model": bench.run.name, "prompt": PROMPT, "max_tokens": 1}
    sides["jumok serve"] = lambda: server(
        [*ours, "serve", str(bench.run), "--port", "0", "--json", "--device", "cpu"], "/v1/completions", ask
    )
    found: dict[str, list[Cold]] = {name: [] for name in sides}
    for turn in range(bench.options.rounds + 1):
        for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            found[name].append(sides[name]())
    print(f"\nWhole processes; the files are in memory, {bench.options.rounds} rounds after one that does not count")
    print(f"  {'':38}{'50 tokens, s':>24}{'first letter or answer, s':>28}{'peak memory, MB':>24}")
    for name, all_of_it in found.items():
        columns = zip(*map(dataclasses.astuple, all_of_it[1:]), strict=True)
        figures = ((*spread(list(column)), digits) for column, digits in zip(columns, (2, 2, 0), strict=True))
        cells = [f"{middle:.{n}f} ({low:.{n}f} to {high:.{n}f})" for middle, low, high, n in figures]
        print(f"  {name:38}{'' if 'serve' in name else cells[0]:>24}{cells[1]:>28}{cells[2]:>24}", flush=True)
    print(f"  the parameters have {sum(p.nbytes for p in model.parameters()) / 1e6:.1f} MB")


@dataclass(frozen=True)
class Cold:
    """What a process took. seconds: all of it. first: until its first text. megabytes: its peak memory."""

    seconds: float
    first: float
    megabytes: float


def process(command: list[str], given: str = "", lines: int = 0) -> Cold:
    """Run a process.

    Args:
        given: a line for its input. lines: how many lines it prints before its text.
    """
    began = perf_counter()
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert one.stdin is not None
    assert one.stdout is not None
    one.stdin.write(f"{given}\n".encode() if given else b"")
    one.stdin.close()
    for _ in range(lines):
        while os.read(one.stdout.fileno(), 1) != b"\n":
            pass
    first, memory = 0.0, 0.0
    while os.read(one.stdout.fileno(), 1 << 16):
        first, memory = first or perf_counter() - began, max(memory, peak(one.pid))
    one.wait()
    return Cold(perf_counter() - began, first, memory)


def server(command: list[str], path: str, request: dict[str, Any]) -> Cold:
    """Start a server that prints its address as JSON, let it answer one request, and end it."""
    began = perf_counter()
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert one.stdin is not None
    assert one.stdout is not None
    url = json.loads(one.stdout.readline())["url"]
    asked = urllib.request.Request(url + path, json.dumps(request).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        answer.read()
    first = perf_counter() - began
    found = Cold(first, first, peak(one.pid))
    one.terminate()
    one.communicate()
    return found


def peak(pid: int) -> float:
    """The most memory that a process has had so far, in MB; what `os.wait4` tells includes that of its parent."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def int8(bench: Bench, model: GPT) -> None:
    """Speed and quality of 8-bit matrices."""
    n, ids, options = bench.options.tokens, prompt_ids(model), bench.options
    our_ids(model, PROMPT, 20), our_ids(model, PROMPT, 20, quantize="int8")
    sides: dict[str, Side] = {}
    with bench.llama("q8_0", [ids], n) as other:
        if other:
            sides["llama.cpp q8_0"] = (lambda: other.write([ids], n), n)
        sides["jumok generate"] = (lambda: our_ids(model, PROMPT, n), n)
        sides["jumok generate --quantize int8"] = (lambda: our_ids(model, PROMPT, n, quantize="int8"), n)
        compare(f"8-bit matrices, one stream of {n:,} tokens", sides, options.rounds, "tokens/s")
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
    slots, nats = make_slots(model, rows, quantize, cache=True, build=True), 0.0
    for place in range(width - 1):
        chunks = [Chunk(row, place, [token]) for row, token in enumerate(windows[:, place].tolist())]
        logits = torch.as_tensor(slots.read(chunks)).double()  # (R, V)
        nats -= float(logits.log_softmax(-1).gather(1, windows[:, place + 1, None]).sum())
    chars = sum(len(model.tokenizer.decode(row[1:].tolist())) for row in windows)
    return nats / chars, rows * width


# --- the machine and the model ----------------------------------------------------------------------------------------


def trained(folder: Path, options: argparse.Namespace) -> Path:
    """A run on stories, of a named size or of --shape."""
    shape = ["--size", "nano" if options.quick else "micro"]
    text = "".join(stories.write(200_000))
    if options.shape:
        names = ("--n-layer", "--n-embd", "--n-head", "--context-length")
        shape = [word for name, value in zip(names, options.shape, strict=True) for word in (name, str(value))]
        shape += ["--batch-size", "4"]
    if options.ids:  # 256 bytes, the characters of the stories, and as many syllables as are missing
        new = [chr(code) for code in range(ord("가"), ord("힣") + 1, 5) if chr(code) not in text]
        text = "".join(new[: max(0, options.ids - 256 - len(set(text)))]) * 2 + "\n" + text
    (folder / "stories.txt").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "jumok.cli", "train", str(folder / "stories.txt"), "--out", str(folder / "run")]
    how = ["--quiet", "--steps", "10", "--compile", "off", "--sample-tokens", "0"]
    subprocess.run([*command, *shape, *how], check=True)
    return folder / "run"


def longer(model: GPT, context: int) -> GPT:
    """The same weights in a model with room for more tokens; only the modern family can."""
    other = GPT(dataclasses.replace(model.config, context_length=context)).eval()
    other.load_state_dict(model.state_dict())
    other.tokenizer = model.tokenizer
    return other


def prepared(folder: Path, options: argparse.Namespace) -> Bench:
    """The model on all sides."""
    run = options.run or trained(folder, options)
    model = jumok.load(run, compile=options.compile)
    theirs = None
    if "transformers" not in options.without:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        hf.to_hf(model, folder / "hf")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf").eval()
    files = {}
    if "llama.cpp" not in options.without and llama.INSTALLED:
        from jumok.interop.gguf import KINDS, to_gguf

        room = max(model.config.context_length, options.context, options.tokens + 100, options.prompt + 1)
        roomy = longer(model, room) if model.config.family == "modern" else model
        files = {kind: folder / f"{kind}.gguf" for kind in KINDS}
        for kind, file in files.items():
            to_gguf(roomy, file, kind)
    elif "llama.cpp" not in options.without:
        print(llama.MISSING)
    return Bench(run=run, model=model, exported=folder / "hf", theirs=theirs, files=files, options=options)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="a run of a GPT [one of the default size, made for this]")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times [all]")
    parser.add_argument("--without", action="append", choices=OTHERS, default=[], help="leave a side out")
    parser.add_argument("--shape", type=int, nargs=4, metavar=("LAYERS", "WIDTH", "HEADS", "CONTEXT"))
    parser.add_argument("--ids", type=int, help="size of the vocabulary of the model that is made [of the stories]")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="jumok's native step")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--context", type=int, default=1024, help="the longer context, for the modern family")
    parser.add_argument("--prompt", type=int, default=1000, help="tokens of the long prompt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", type=Path, help="what the nats of 8-bit matrices are measured on, its end")
    parser.add_argument("--quick", action="store_true", help="a small model that writes a few tokens")
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.streams, options.rounds, options.context, options.prompt = 40, [3], 1, 256, 100
    if options.text:  # before anything that takes long
        try:
            options.text = reader.read([options.text])
        except JumokError as error:
            parser.error(str(error))
    return options


def main() -> None:
    """Print the tables."""
    options = arguments()
    print(f"python {' '.join(sys.argv)}")
    print(describe(CPU), flush=True)
    with tempfile.TemporaryDirectory() as name:
        bench = prepared(Path(name), options)
        model, c = bench.model, bench.model.config
        print(
            f"{c.family}, {c.n_layer} layers, width {c.n_embd}, {c.n_head} heads, {c.vocab_size:,} ids, context "
            f"{c.context_length:,}, {model.parameter_count() / 1e6:.1f} M parameters"
            f"{'' if can_run(model) else '; the C++ step does not compute it'}"
        )
        parts = {"ids": same_ids, "single": single, "streams": streams, "prompt": prompt, "cold": cold, "int8": int8}
        for part in options.part or PARTS:
            if part == "prompt" and c.family != "modern":
                continue
            parts[part](bench, model)
            if part == "single" and c.family == "modern" and options.context > c.context_length:
                single(bench, longer(model, options.context))


if __name__ == "__main__":
    main()
