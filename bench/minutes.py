"""What more minutes bring: python bench/minutes.py novels.txt --minutes 2 5 10 20 40 --runs runs --out minutes.png

    python bench/minutes.py novels.txt --unseen other.txt --minutes 2 5 --runs runs

One `jumok train TEXT --minutes M` without other options for each M, one after the other, in RUNS/M. Runs that have
ended there are not trained again. The figures are those of `jumok evaluate` on the last tenth of the text, which no run
learns from but which chooses its best parameters, and on another text.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jumok import text as reader
from jumok.errors import JumokError
from jumok.view.canvas import canvas

JUMOK = [sys.executable, "-m", "jumok"]
COLOURS = ("#0b6e99", "#b3541e")
HELD_OUT = 0.1  # as `jumok train` holds out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, nargs="+", default=[2, 5, 10, 20, 40])
    parser.add_argument("--unseen", type=Path, help="another text")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--out", type=Path, help="a picture")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if given.unseen:
        reader.read(given.unseen)  # so that a wrong name is told before the runs
    with TemporaryDirectory() as folder:
        tenth = Path(folder) / "tenth.txt"
        text = reader.read(given.text)
        tenth.write_text(text.read(text.chars - round(HELD_OUT * text.chars)), encoding="utf-8", newline="")
        texts = {"last tenth": tenth} | ({"another text": given.unseen} if given.unseen else {})
        print(f"| minutes | steps | dropout | {' | '.join(texts)} |\n|{'---|' * (3 + len(texts))}")
        for minutes in sorted(given.minutes):
            rows.append(row(given.text, minutes, given.runs / f"{minutes:g}", texts))
            print("| " + " | ".join(f"{value:.4g}" for value in rows[-1].values()) + " |", flush=True)
    if given.out:
        draw(rows, list(texts), given.out)


def row(text: Path, minutes: float, out: Path, texts: dict[str, Path]) -> dict[str, Any]:
    """Train, if that was not done, and judge: minutes, steps, the choices of the run, nats per character."""
    if "finished" not in config_of(out):
        run([*JUMOK, "train", str(text), "--minutes", f"{minutes:g}", "--out", str(out)])
    config = config_of(out)
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "minutes": minutes,
        "steps": max(event.get("step", 0) for event in logged),
        "dropout": config["model"]["dropout"],
        **{name: nats_per_char(out, path) for name, path in texts.items()},
    }


def run(command: list[str]) -> str:
    """Return what a program prints, which must end well."""
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout


def config_of(out: Path) -> dict[str, Any]:
    """config.json of a run; empty if there is none."""
    path = out / "config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def nats_per_char(model: Path, text: Path) -> float:
    """Of all characters of a text."""
    found = run([*JUMOK, "evaluate", str(model), str(text), "--json", "--quiet"]).splitlines()[-1]
    return float(json.loads(found)["nats_per_char"])


def draw(rows: list[dict[str, Any]], names: list[str], path: Path) -> None:
    """A line for each text."""
    with canvas(path, 6.0, 4.0, dpi=150) as figure:
        panel = figure.subplots()
        minutes = [row["minutes"] for row in rows]
        for place, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
            values = [row[name] for row in rows]
            panel.plot(minutes, values, color=colour, marker="o", markersize=4, label=name)
            # The last tenth usually has the lower line, and its figures below it.
            where, side = ((3, 5), "left") if place else ((-3, -11), "right")
            for x, y in zip(minutes, values, strict=True):
                panel.annotate(f"{y:.3f}", (x, y), xytext=where, ha=side, textcoords="offset points", fontsize=8)
        panel.set_xscale("log")
        panel.margins(0.1)
        panel.set_xticks(minutes, [f"{value:g}" for value in minutes])
        panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        panel.set_xlabel("minutes of `jumok train`")
        panel.set_ylabel("nats per character")
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize=9)


if __name__ == "__main__":
    try:
        main()
    except (JumokError, subprocess.CalledProcessError) as error:
        sys.exit(str(getattr(error, "stderr", None) or error))
