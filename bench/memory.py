"""Memory and time of training on a large text, by phase: python bench/memory.py [TEXT] --gigabytes 5

Without a TEXT, one is written from the built-in corpus (other tales all the way). A few steps are trained on it in a
process of its own, as `jumok train` does. The memory is that of all its processes together, shared pages counted once
(PSS, from Linux). Mapped files are counted separately: the system can drop them at any time, because they are on disk.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BYTES_PER_CHAR = 2.45  # of the stories in UTF-8, about
INTERVAL = 0.2  # seconds between two measurements

TRAIN = """
import sys
from pathlib import Path
from jumok import text, TrainConfig
from jumok.training.trainer import Trainer

path, out, steps, tokenizer, column = sys.argv[1:]
print("@reading", flush=True)
given = text.read([path], column=column or None)
config = TrainConfig(steps=int(steps))
said = lambda what: print("@" + what, flush=True)
trainer = Trainer.start(Path(out), given, None, config, tokenizer=tokenizer, report=said)
said("training")
for event in trainer.run():
    pass
said("end")
"""


def tree(root: int) -> list[int]:
    """A process and all below it."""
    found = [root]
    for pid in found:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in children.read_text().split()]
    return found


def memory(root: int) -> tuple[int, int]:
    """Bytes of the processes below `root`: their own, and of mapped files."""
    own = mapped = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        pss = {name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in lines[1:])}
        own, mapped = own + pss["Pss_Anon"] + pss["Pss_Shmem"], mapped + pss["Pss_File"]
    return own, mapped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?", help="a text file, or a table; stories of the built-in corpus")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of the text that is written")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tokenizer", default="char")
    parser.add_argument("--column", default="", help="of a table")
    parser.add_argument("--folder", type=Path, help="where the text and the run go [a temporary folder]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        text = args.text or write_stories(Path(name) / "stories.txt", args.gigabytes)
        given = [str(text), str(Path(name) / "run"), str(args.steps), args.tokenizer, args.column]
        print(f"{platform.platform()}, Python {platform.python_version()}")
        print(f"text {text.stat().st_size / 1e9:.2f} GB, {args.tokenizer}, {args.steps} steps of the default model")
        measure([sys.executable, "-c", TRAIN, *given])


def write_stories(path: Path, gigabytes: float) -> Path:
    from jumok.corpora import stories

    with path.open("w", encoding="utf-8") as file:
        file.writelines(stories.write(int(gigabytes * 1e9 / BYTES_PER_CHAR)))
    return path


def measure(command: list[str]) -> None:
    """Run a command that prints its phases, and print the memory and the time of each."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        peak = [0, 0, 0]  # own, mapped, both; of the current phase
        overall = [0, 0, 0]
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(INTERVAL):
                own, mapped = memory(process.pid)
                for most in (peak, overall):
                    most[:] = map(max, most, (own, mapped, own + mapped))

        watcher = threading.Thread(target=watch)
        watcher.start()
        phase, since = "start", began
        print(f"{'phase':44} {'seconds':>8} {'own GB':>7} {'files GB':>9} {'both GB':>8}")
        for line in process.stdout:
            said = line.strip().removeprefix("@").partition(":")[0]  # of "... : 40%" the beginning
            if said != phase:
                print(row(phase, time.perf_counter() - since, peak), flush=True)
                phase, since, peak[:] = said, time.perf_counter(), [0, 0, 0]
        ended.set()
        watcher.join()
    print(row("all", time.perf_counter() - began, overall))
    if process.returncode:
        raise SystemExit(process.returncode)


def row(phase: str, seconds: float, peak: list[int]) -> str:
    own, mapped, both = (size / 1e9 for size in peak)
    return f"{phase[:44]:44} {seconds:8.1f} {own:7.2f} {mapped:9.2f} {both:8.2f}"


if __name__ == "__main__":
    main()
