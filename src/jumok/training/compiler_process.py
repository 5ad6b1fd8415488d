"""The program that compiles the code of a run beside its training: `python -m jumok.training.compiler_process`.

It makes the run again from its folder, as another process of a launch does, and computes a pass with compiled blocks.
What the compiler makes stays in the cache of torch, from which the training takes it over. The folder is only read.

It reads a request, a JSON object on a line, from stdin: "folder", "train" (the settings), "threads" (that the training
has). It writes {"failure"}, a message or "", to stdout. It ends when stdin does, so it does not outlive its training;
a compiler that it has started finishes its file, which no later run would find whole otherwise.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer the request."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_training, daemon=True).start()
    print(json.dumps(_compile(request)), flush=True)
    os._exit(0)  # to free everything takes half a second


def _end_with_training() -> None:
    os.read(0, 1)  # returns at the end of stdin
    os._exit(1)


def _compile(request: dict[str, Any]) -> dict[str, str]:
    # These take more than a second, in which the training may end.
    import torch

    from jumok.runs.config import training_of
    from jumok.runs.folder import RunFolder
    from jumok.training.compilation import compile_training
    from jumok.training.loop import Loop
    from jumok.training.parallel import ProcessGroup
    from jumok.training.run_record import RunRecord
    from jumok.training.start import reopen

    torch.set_num_threads(request["threads"])  # the code is made for so many
    config = training_of(request["train"])
    record = RunRecord.of(RunFolder.open(Path(request["folder"])))
    run = reopen(record, config, torch.device("cpu"), time.monotonic(), lambda text: None, ProcessGroup())
    return {"failure": compile_training(run.trained, run.task, Loop(run).try_a_pass)}


if __name__ == "__main__":
    main()
