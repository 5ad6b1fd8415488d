"""From nothing to a model that answers: python bench/chat.py [--minutes 30] [--out runs/chat]

    python bench/chat.py --skip pretrained --out runs/direct       # conversations without pretraining
    python bench/chat.py --no-thinking --out runs/no-thinking      # no worked steps before answers

Pretraining on `stories` and `talk` as plain text, then conversations (SFT), then rewards for right answers, most of
them to questions of the weakest skills: `jumok train`, for a third, a half and a sixth of the minutes (or of --steps).
After each stage two tables are printed. That of skills has the share of right answers to questions of the test part of
`talk`, whose names, numbers and words were not in training. That of free messages (`jumok corpus write talk --part
free`) has the share of fitting or honest answers. Below each stands how many answers are wrong, empty, or do not end by
themselves.

Which skills are the weakest is decided by other questions of the test part, none of which is among those of the table.
A stage that was stopped goes on, and one that has ended is not repeated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jumok
from jumok.corpora import talk
from jumok.evaluation.chat import share_of
from jumok.evaluation.checks import passes
from jumok.inference.engine import Engine
from jumok.inference.generate import LARGEST_BATCH, write_all
from jumok.inference.requests import text_request
from jumok.inference.sampling import Sampling

JUMOK = [sys.executable, "-m", "jumok"]
STAGES = {  # what each trains on, options, and its share of the time
    "pretrained": (("stories.txt", "talk.txt"), (), 1 / 3),
    "tuned": (("talk.jsonl",), ("--task", "chat"), 1 / 2),
    "rewarded": (("rewards.jsonl",), ("--task", "reward"), 1 / 6),
}
WEAKEST = 4  # skills whose questions all stand in rewards.jsonl; of the others one of
OTHERS = 8
STORIES_CHARS = 500_000
LONGEST = 160  # tokens of an answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/chat"), help="folder of texts, runs and figures")
    parser.add_argument("--minutes", type=float, default=30, help="of all stages together")
    parser.add_argument("--steps", type=int, help="of all stages together, instead of minutes")
    parser.add_argument("--rows", type=int, default=40_000, help="conversations to train on")
    parser.add_argument("--test-rows", type=int, default=2_000, help="conversations of the test part")
    parser.add_argument("--no-thinking", action="store_true", help="no worked steps before answers")
    parser.add_argument("--skip", nargs="*", default=[], choices=["pretrained", "rewarded"], help="stages to leave out")
    parser.add_argument("--chat", action="store_true", help="open a conversation at the end")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    steps = ["--no-thinking"] if given.no_thinking else []
    rows = ["--rows", str(given.rows), *steps]
    write(given.out / "stories.txt", "stories", "--chars", str(STORIES_CHARS))
    write(given.out / "talk.txt", "talk", "--plain", *rows)
    write(given.out / "talk.jsonl", "talk", *rows)
    write(given.out / "free.jsonl", "talk", "--part", "free")
    write(given.out / "test.jsonl", "talk", "--part", "test", "--rows", str(given.test_rows), *steps)
    before, tables = None, {}
    for stage, (texts, options, share) in STAGES.items():
        if stage in given.skip:
            continue
        run, figures = given.out / stage, given.out / f"{stage}.json"
        if stage == "rewarded" and not (given.out / "rewards.jsonl").exists():
            asked = write_other_questions(given.out, given.test_rows, not given.no_thinking)
            skills = judge_chat(given.out / "tuned", asked)
            write_rewards(given.out / "rewards.jsonl", skills, given.rows, not given.no_thinking)
        minutes = ["--minutes", f"{share * given.minutes:g}"]
        length = minutes if given.steps is None else ["--steps", str(round(share * given.steps))]
        init = [] if before is None else ["--init", str(before)]
        train(run, [*(str(given.out / text) for text in texts), *options, *init, *length])
        if not figures.exists():
            judge = judge_plain if stage == "pretrained" else judge_chat
            judged = {part: judge(run, given.out / f"{part}.jsonl") for part in ("test", "free")}
            figures.write_text(json.dumps(judged), encoding="utf-8")
        tables[stage] = json.loads(figures.read_text(encoding="utf-8"))
        for part in ("test", "free"):
            print(table({name: found[part] for name, found in tables.items()}), flush=True)
        before = run
    if given.chat:
        subprocess.run([*JUMOK, "chat", str(before)], check=True)


def write(path: Path, *arguments: str) -> None:
    """Write a built-in corpus, if that was not done."""
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            subprocess.run([*JUMOK, "corpus", "write", *arguments], stdout=file, check=True)
        part.rename(path)


def write_other_questions(out: Path, rows: int, thinking: bool) -> Path:
    """Write conversations of the test part in which other things are said than in those of test.jsonl."""
    known = {asked(row) for row in map(json.loads, (out / "test.jsonl").read_text(encoding="utf-8").splitlines())}
    written = [row for row in talk.write(rows, seed=1, part="test", thinking=thinking) if asked(row) not in known]
    path = out / "other-questions.jsonl"
    path.write_text("".join(map(talk.json_line, written)), encoding="utf-8")
    return path


def asked(row: dict[str, Any]) -> tuple[str, ...]:
    """Return all that the user says in a conversation."""
    return tuple(message["content"] for message in row["messages"] if message["role"] == "user")


def write_rewards(path: Path, skills: dict[str, Any], rows: int, thinking: bool) -> None:
    """Write conversations of the training part, most of them of the weakest skills."""
    weakest = sorted(skills, key=lambda skill: skills[skill]["right"])[:WEAKEST]
    written = talk.write(rows, seed=1, thinking=thinking)
    kept = [row for number, row in enumerate(written) if row["skill"] in weakest or number % OTHERS == 0]
    path.write_text("".join(map(talk.json_line, kept)), encoding="utf-8")


def train(run: Path, arguments: list[str]) -> None:
    """Train, or go on with a run, or do nothing if it has ended."""
    config = run / "config.json"
    if config.exists():
        if "finished" in json.loads(config.read_text(encoding="utf-8")):
            return
        arguments = ["--resume"]
    subprocess.run([*JUMOK, "train", *arguments, "--out", str(run)], check=True)


def judge_chat(run: Path, test: Path) -> dict[str, Any]:
    """Return the figures of answers by skill, as `jumok.evaluation.chat.Share` has them."""
    done = subprocess.run(
        [*JUMOK, "evaluate", str(run), str(test), "--json"], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])["skills"]


def judge_plain(run: Path, test: Path) -> dict[str, Any]:
    """Return the same of a model that continues texts: what it writes in the line after the last question."""
    model = jumok.load(run)
    asked, known = [], []
    for row in map(json.loads, test.read_text(encoding="utf-8").splitlines()):
        for number, check in enumerate(row["checks"]):
            if check:
                lines = talk.plain(row).splitlines()[: 2 * number + 1]
                asked.append(text_request(model, "\n\n" + "\n".join(lines) + "\n", Sampling(temperature=0.0),
                                          tokens=LONGEST, stop=["\n"]))  # fmt: skip
                known.append((row["skill"], check))
    texts = write_all(Engine(model, LARGEST_BATCH), asked)
    outcomes = defaultdict(list)
    for (skill, check), text in zip(known, texts, strict=True):
        answer = text.text.rpartition(") ")[2] if text.text.startswith("(") else text.text
        if text.finish != "stop":
            outcomes[skill].append("looping")
        elif not answer.strip():
            outcomes[skill].append("empty")
        else:
            outcomes[skill].append("right" if passes(check, answer) else "wrong")
    return {skill: asdict(share_of(found)) for skill, found in outcomes.items()}


def table(stages: dict[str, dict[str, Any]]) -> str:
    """Return the skills with the share of right answers after each stage, in %, and lines for all answers."""
    lines = [f"| skill | answers | {' | '.join(stages)} |", f"|---|---|{'---|' * len(stages)}"]
    last = next(reversed(stages.values()))
    total = sum(one["answers"] for one in last.values())
    names = [name for name in talk.SKILLS if name in last] + [name for name in last if name not in talk.SKILLS]
    for skill in names:
        cells = [f"{100 * found[skill]['right']:.1f} ± {100 * found[skill]['error']:.1f}" for found in stages.values()]
        lines.append(f"| {skill} | {last[skill]['answers']} | {' | '.join(cells)} |")
    means = [sum(one["right"] * one["answers"] for one in found.values()) / total for found in stages.values()]
    lines.append(f"| all | {total} | {' | '.join(f'{100 * mean:.1f}' for mean in means)} |")
    for outcome in ("wrong", "empty", "looping"):
        counts = [sum(one[outcome] for one in found.values()) for found in stages.values()]
        lines.append(f"| {outcome} | | {' | '.join(f'{100 * n / total:.1f} ({n})' for n in counts)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
