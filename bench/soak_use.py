"""Scenarios of bench/soak.py: runs that are read while they are trained, and commands that use a run and are killed."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import signal
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import jumok
from jumok.errors import RunError
from jumok.models import Model
from jumok.runs.folder import RunFolder
from jumok.runs.parameters import parameters_of
from soak_jobs import Command, Failure, Job, Soak, copy_of_this_process, require_same

# What commands import when they run, so that their copies need not.
MODULES = (
    "jumok.serve.server", "jumok.view.page", "jumok.view.model_page", "jumok.interop.huggingface.folder",
    "jumok.interop.huggingface.card", "jumok.evaluation.evaluate", "jumok.inference.generate", "uvicorn",
)  # fmt: skip
PROMPT = "옛날 어느 마을에"


# --- a run that is read while it is trained ---------------------------------------------------------------------------


def second(soak: Soak, count: int) -> None:
    """Commands on a run that is being trained, and loads without a pause."""
    warm()
    turn = 0
    while turn < count and soak.more():
        short = soak.jobs[("char", "lora", "classify", "seq2seq")[turn % 4]]
        begin = [each for each in short.begin if not each.startswith(("--steps", "--eval-every"))]
        long = replace(short, name=f"long {short.name}", begin=[*begin, "--steps=60", "--eval-every=2"])
        turn += 1
        if not (soak.finished / long.name).exists():
            soak.start(soak.first_command(long, soak.finished / long.name)).require(0)
        run = soak.folder / "run"
        soak.attempt("second", f"readers of {short.name}", run, partial(_read_meanwhile, soak, long, run))


def digest(model: Model) -> str:
    """The SHA-256 of the parameters."""
    found = hashlib.sha256()
    for tensor in parameters_of(model).values():
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def _read_meanwhile(soak: Soak, job: Job, run: Path) -> str:
    written, stop = soak.folder / "written", soak.folder / "stop"
    for path in (written, stop):
        path.unlink(missing_ok=True)
    write = RunFolder.write_parameters

    def noted(folder: RunFolder, model: Model) -> None:
        with written.open("a") as file:  # before, because a reader may be faster
            file.write(digest(model) + "\n")
        write(folder, model)

    def note() -> None:
        RunFolder.write_parameters = noted  # type: ignore[assignment,method-assign]

    def load() -> int:
        found: Counter[str] = Counter()
        while not stop.exists():
            try:
                found[digest(jumok.load(run, "cpu"))] += 1
                RunFolder(run).logs.metrics()
            except RunError as error:
                if found:
                    raise
                time.sleep(0.002)
                if "damaged" in str(error):
                    raise
        print(json.dumps(found))
        return 0

    loaders = []
    training = soak.start(soak.first_command(job, run), log=soak.folder / "training", first=note)
    try:
        for number in range(2):
            log = soak.folder / f"loads{number}"
            loaders.append(Command([], copy_of_this_process(load, log), log))
        training.wait(20, (run / "model.safetensors").exists)
        while not training.done():
            _use_meanwhile(soak, run, soak.dice.choice(("train", "train", "generate", "evaluate", "view")), training)
        training.require(0)
    finally:
        stop.touch()
        for loader in loaders:
            loader.wait(20)
            loader.kill()
        training.kill()
    known = set(written.read_text().split())
    for loader in loaders:
        loader.require(0)
        found = json.loads(loader.out)
        if not found.keys() <= known:
            raise Failure("parameters were loaded that were never written")
        soak.counts["second", "load", "whole"] += sum(found.values())
        soak.counts["second", "load", "different parameters seen"] += len(found)
    require_same(run, soak.finished / job.name)
    return "equal"


def _use_meanwhile(soak: Soak, run: Path, verb: str, training: Command) -> None:
    page = soak.folder / "meanwhile.html"
    task = RunFolder(run).read_config()["train"]["task"]
    verb_of_task = "predict" if task == "classify" else "generate"
    prompt = "12" if task == "seq2seq" else PROMPT
    tales = str(soak.texts / {"classify": "reviews.tsv", "seq2seq": "numbers.tsv"}.get(task, "tales.txt"))
    commands = {
        "train": ["train", "--resume", "--out", str(run)],
        "generate": [verb_of_task, str(run), prompt, "--device=cpu"],
        "evaluate": ["evaluate", str(run), tales, "--device=cpu"],
        "view": ["view", str(run), prompt, "--out", str(page), "--force", "--device=cpu"],
    }
    command = soak.start(commands[verb])
    if command.wait() == 1 and verb == "train":
        command.require_told(1)
        if "another process" not in command.err:
            raise Failure(f"a second training: {command.err}")
        soak.count("second", "train --resume", "refused")
        return
    command.require(0)
    if verb == "train" and not training.done():
        training.wait(5)  # it released the lock a moment before it ended
        if not training.done():
            raise Failure("two trainings at once")
    soak.count("second", verb if verb != "train" else "train --resume", "done" if verb != "train" else "had ended")


# --- commands that use a run ------------------------------------------------------------------------------------------


def warm() -> None:
    """Import what copies would import."""
    for name in MODULES:
        import_module(name)


def contents(path: Path) -> dict[str, str]:
    """The SHA-256 of a file, or of all files of a folder, by name."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def use(soak: Soak, count: int) -> None:
    """Commands that read a run, killed or stopped at a random time."""
    warm()
    place = soak.folder / "use"
    place.mkdir(exist_ok=True)
    run, tales = place / "model", soak.texts / "tales.txt"
    if not run.exists():
        shutil.copytree(soak.finished / "char", run)
    whole = {
        "generate": (["generate", run, PROMPT, "--tokens=400"], None),
        "evaluate": (["evaluate", run, tales], None),
        "view": (["view", run, PROMPT, "--out", place / "page.html", "--force"], place / "page.html"),
        "convert hf": (["convert", run, place / "hf", "--to=hf"], place / "hf"),
        "convert gguf": (["convert", run, place / "model.gguf", "--to=gguf", "--force"], place / "model.gguf"),
        "convert page": (["convert", run, place / "share.html", "--to=page", "--force"], place / "share.html"),
        "serve": (["serve", run, "--port=0", "--json"], None),
    }
    before = contents(run)
    made: dict[str, tuple[float, dict[str, str]]] = {}
    for name, (words, target) in whole.items():
        if name == "serve":
            continue
        began = time.monotonic()
        soak.start([str(word) for word in words]).require(0)
        made[name] = time.monotonic() - began, contents(target) if target else {}
    for turn in range(count):
        if not soak.more():
            return
        name = list(whole)[turn % len(whole)]
        words, target = whole[name]
        number = soak.dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        arguments = [str(word) for word in words]
        if name == "serve":
            work: Callable[[], str] = partial(_serve, soak, arguments, number)
        else:
            work = partial(_kill, soak, arguments, number, made[name], target, place)

        def checked(work: Callable[[], str] = work) -> str:
            outcome = work()
            if contents(run) != before:
                raise Failure("the run has changed")
            return outcome

        soak.attempt("use", f"{number.name}, {name}", soak.folder / "run", checked)


def _kill(
    soak: Soak, arguments: list[str], number: signal.Signals, made: tuple[float, dict[str, str]], target: Path | None,
    place: Path,
) -> str:  # fmt: skip
    seconds, wanted = made
    old = None
    if target is not None and soak.dice.random() < 0.5:
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    elif target is not None and target.exists():
        old = contents(target)
    command = soak.start(arguments)
    command.wait(soak.dice.uniform(0, seconds))
    command.send(number)
    code = command.wait()
    left = list(place.rglob("*.tmp"))
    try:
        if code == 70 and "in _run" not in command.err and command.err.endswith("KeyboardInterrupt\n"):
            return "interrupted before the command line was ready"
        if code not in (0, -number):
            command.require(130)
        if number != signal.SIGKILL and left and code != -number:
            raise Failure(f"left over after {number.name}: {left}")
        if target is None or not target.exists():
            if old is not None and not any(contents(path / "old") == old for path in left):
                raise Failure(f"{target} is gone")
            outcome = "no file yet" if target else "ended"
        elif contents(target).keys() != wanted.keys():
            raise Failure(f"{target} is not whole: {sorted(contents(target))}")
        else:
            outcome = "a whole file" if contents(target) == wanted else "another whole file"
            _require_whole(target)
        return outcome + (", and a .tmp beside it" if left else "")
    finally:
        for path in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _require_whole(target: Path) -> None:
    if target.suffix == ".html" and not target.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise Failure(f"{target} ends early")
    if target.is_dir():
        jumok.load(target, "cpu")


def _serve(soak: Soak, arguments: list[str], number: signal.Signals) -> str:
    """The server ends by a signal while three clients ask; their answers are whole after SIGTERM."""
    server = soak.start(arguments, log=soak.folder / "server")
    clients: list[Command] = []
    try:
        server.wait(60, lambda: server.out.endswith("\n"))
        if server.done():
            raise Failure(f"the server ended: {server.err}")
        address = urllib.parse.urlsplit(json.loads(server.out)["url"])
        for client in range(3):
            log = soak.folder / f"client{client}"
            ask = partial(_ask, str(address.hostname), address.port or 0)
            clients.append(Command([], copy_of_this_process(ask, log), log))
        time.sleep(soak.dice.uniform(0.05, 1.5))
        server.send(number)
        code = server.wait(60)
        for one in clients:
            one.require(0)
    finally:
        server.kill()
        for one in clients:
            one.kill()
    told: Counter[str] = Counter()
    for one in clients:
        told.update(json.loads(one.out))
    if number != signal.SIGKILL:
        if told["cut"]:
            raise Failure(f"{told['cut']} answers were cut by {number.name}: {told}")
        server.require(0)
    elif code != -number:
        raise Failure(f"exit code {code}")
    soak.counts["use", "request", "answered whole"] += told["whole"]
    soak.counts["use", "request", f"cut by {number.name}"] += told["cut"]
    return "ended" if number == signal.SIGKILL else "ended, answers whole"


def _ask(host: str, port: int) -> int:
    """Ask for texts until the server is gone; count the answers by how they ended."""
    told: Counter[str] = Counter()
    body = json.dumps({"model": "model", "prompt": PROMPT, "max_tokens": 60})
    while True:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            told["refused" if isinstance(error, ConnectionRefusedError) else "gone before an answer"] += 1
            break
        try:
            answer = json.loads(response.read())
            if response.status == 200 and not answer["choices"][0]["text"]:
                raise ValueError("empty")
            told["whole" if response.status == 200 else f"status {response.status}"] += 1
        except (OSError, http.client.HTTPException, ValueError):
            told["cut"] += 1
            break
        finally:
            connection.close()
    print(json.dumps(told))
    return 0
