"""`jumok generate`: continue a text, fill in masked tokens, or answer."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from jumok.cli.commands import PATH, Verb, common, option, require_options
from jumok.cli.console.output import named, print_json, say, write
from jumok.errors import ConfigError
from jumok.messages import shell, tr
from jumok.processors import import_numpy


@click.command(
    cls=Verb,
    short_help="Continue a text, fill in masked tokens, or answer.",
    examples="""
    jumok generate runs/novel "그날 밤" --tokens 300
    jumok generate runs/novel --samples 3 --temperature 1.0 --top-p 0.9 --seed 7
    jumok generate runs/novel "옛날" --stop "." --json
    jumok generate runs/bert "나는 [MASK] 읽었다"
    jumok generate runs/chat "오늘 뭐 하지?" --beam 4
    """,
)
@click.argument("run", type=PATH)
@click.argument("prompts", nargs=-1, metavar="[PROMPT]")
@option("--prompt", help="the PROMPT, if it starts with a hyphen")
@option("--tokens", type=int, help="maximum number of tokens [200; answers: up to their end]")
@option("--temperature", type=float, help="sampling temperature; 0: always the most probable token [0.8; answers 0]")
@option("--top-k", type=int, help="sample from the k most probable tokens [all]")
@option("--top-p", type=float, help="sample from the most probable tokens that sum to p [1.0]")
@option("--min-p", type=float, help="sample from tokens with at least min-p times the highest probability [0.0]")
@option(
    "--repetition-penalty", type=float, help="above 1: lowers the probability of tokens that already occurred [1.0]"
)
@option("--samples", type=int, help="number of samples or answers [1]")
@option("--stop", multiple=True, help="end before this text; may be given several times")
@option("--quantize", type=click.Choice(["int8", "bfloat16"]), help="round matrices to 8 or 16 bits; faster [off]")
@option("--beam", type=int, section="Encoder-decoder", help="beams kept in beam search [1]")
@option("--length-penalty", type=float, section="Encoder-decoder", help="above 1: prefers longer answers [1.0]")
@option(
    "--no-repeat-ngram", type=int, section="Encoder-decoder", help="length of n-grams that must not repeat; 0: off [0]"
)
@option("--top", type=int, section="Masked tokens", help="number of candidates for each [MASK] [5]")
@common(seed=True)
def generate(
    run: Path,
    prompts: tuple[str, ...],
    prompt: str | None,
    device: str,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Generate text with the model of a run folder. A single sample is printed while it is generated.

    PROMPT is the text to continue. Without a PROMPT the text starts on a new line. A masked language model fills in
    each [MASK] of the PROMPT, and an encoder-decoder generates an answer to it.
    """
    flags["prompt"] = _prompt(run, prompts, prompt)
    import_numpy()
    from jumok.cli.native_step import build_native_step
    from jumok.config.features import task_of
    from jumok.inference.generate import BUILT_FROM
    from jumok.runs.native import load_to_write

    quantize, is_long = flags["quantize"], (flags["tokens"] or 0) >= BUILT_FROM
    build = partial(build_native_step, quiet=quiet) if quantize or is_long else None
    model = load_to_write(run, device, quantize=quantize, build=build)
    task = task_of(model.config)
    if task == "classify":
        raise ConfigError(
            "{run} is a classifier, which does not generate text; use `{command} TEXT`.",
            run=run,
            command=shell("jumok", "predict", run),
        )
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    require_options(run, (*given, *(["seed"] if seed is not None else [])), OPTIONS[task])
    if task == "mlm":
        fill_in(model, given.get("prompt", ""), given.get("top", 5), as_json)
    elif task == "seq2seq":
        _answer(model, run, seed, as_json, quiet, **given)
    else:
        _continue(model, seed, as_json, quiet, **given)


def _prompt(run: Path, given: tuple[str, ...], option: str | None) -> str | None:
    """Return the prompt of the argument or of --prompt, or None."""
    if len(given) > 1:
        raise ConfigError(
            "PROMPT is one argument, but {count} were given; put quotes around it: {command}",
            count=len(given),
            command=shell("jumok", "generate", run, " ".join(given)),
        )
    if given and option is not None:
        raise ConfigError("the prompt was given twice, as PROMPT and with {--prompt}; leave one of them out.")
    return given[0] if given else option


SAMPLING = ("prompt", "tokens", "temperature", "top_k", "top_p", "min_p", "samples", "seed")
OPTIONS = {
    "lm": (*SAMPLING, "repetition_penalty", "stop", "quantize"),
    "mlm": ("prompt", "top"),
    "seq2seq": (*SAMPLING, "beam", "length_penalty", "no_repeat_ngram"),
}


def fill_in(model: Any, prompt: str, top: int, as_json: bool) -> None:
    """Print the prompt with its masks filled in, and the candidates for each mask."""
    from jumok.inference.fill_mask import fill_mask

    filled = fill_mask(model, prompt, top)
    if not as_json:
        from jumok.cli.console.tables import show_candidates

        write(filled.text)
        show_candidates([mask.candidates for mask in filled.masks])
        return
    blanks = [
        {
            "position": mask.position,
            "candidates": [{"token": one, "probability": share} for _, one, share in mask.candidates],
        }
        for mask in filled.masks
    ]
    print_json({"text": filled.text, "prompt": prompt, "blanks": blanks})


def _answer(
    model: Any,
    run: Path,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    *,
    prompt: str = "",
    samples: int = 1,
    tokens: int | None = None,
    **how: Any,
) -> None:
    """Answer the prompt, with a notice if it has characters that do not occur in the training text."""
    from jumok.inference.answer import answer
    from jumok.runs.load import unseen_characters

    if not prompt:
        raise ConfigError('no text to answer was given; write one after the run folder, in quotes: RUN "..."')
    unseen = unseen_characters(run, [prompt])[0]
    if unseen:
        say(
            tr(
                "These characters do not occur in the training text: {characters}. The answer may be wrong.",
                characters=named(unseen),
            ),
            quiet=quiet,
        )
    if samples > 1 and not how.get("temperature"):
        how = {"beam": samples, **how}
    began = time.perf_counter()
    answers = answer(model, [prompt], n_best=samples, max_tokens=tokens, seed=seed, **how)[0]
    seconds = time.perf_counter() - began
    if as_json:
        found = [{"text": a.text, "score": a.score, "tokens": a.tokens, "finish": a.finish} for a in answers]
        print_json({**_summary(prompt, found, seconds, seed), "unseen_characters": unseen})
        return
    for one in answers:
        write(one.text if samples == 1 else f"{one.score:8.3f}  {one.text}")


def _continue(model: Any, seed: int | None, as_json: bool, quiet: bool, *, samples: int = 1, **sampling: Any) -> None:
    """Continue the prompt."""
    from jumok.inference.generate import generate as complete
    from jumok.inference.generate import stream

    prompt = sampling.get("prompt", "")
    began = time.perf_counter()
    if samples == 1 and not as_json:
        pieces = stream(model, seed=seed, **sampling)
        first = next(pieces, "")  # raises for wrong settings, before anything is printed
        write(prompt + first, end="")
        for piece in pieces:
            write(piece, end="")
        write("")
        return
    completions = complete(model, seed=seed, samples=samples, **sampling)
    seconds = time.perf_counter() - began
    if as_json:
        found = [{"text": c.text, "tokens": c.tokens, "finish": c.finish} for c in completions]
        print_json(_summary(prompt, found, seconds, seed))
        return
    for number, completion in enumerate(completions, 1):
        write(f"--- {number} ---\n{prompt}{completion.text}\n")
        if completion.finish == "not finite":
            say(tr("sample {number} ends here: the model's logits are not finite.", number=number))


def _summary(prompt: str, samples: list[dict[str, Any]], seconds: float, seed: int | None) -> dict[str, Any]:
    """Return the object of --json for texts that were written."""
    tokens = sum(one["tokens"] for one in samples)
    speed = {"tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}
    return {"text": samples[0]["text"], "prompt": prompt, "samples": samples, **speed, "seed": seed}
