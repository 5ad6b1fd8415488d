"""The run folder: saved models are loaded bit for bit, and errors name damaged files.

Bad inputs first: files that are missing, truncated, empty, invalid, of another model, of another tokenizer, of a later
format; folders that are files, contain other files or a run, are locked, or are incomplete after a kill.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import jumok
from jumok.config import GPTConfig, TrainConfig, field_types, from_dict
from jumok.errors import RunError
from jumok.files import LockHeld, atomic_path, locked, write_atomic
from jumok.models.gpt import GPT
from jumok.runs import folder as checkpoint
from jumok.runs.checkpoints import Checkpoint
from jumok.runs.examine import examine
from jumok.runs.folder import RunFolder
from jumok.runs.load import read_shape
from jumok.text import from_rows, from_string
from jumok.tokenizers import Tokenizer, train_tokenizer, with_chat
from jumok.training.tasks import TASKS
from jumok.training.trainer import Trainer


@pytest.fixture(scope="module")
def tokenizer(tales: str) -> Tokenizer:
    return train_tokenizer(tales, "char")


def make(tokenizer: Tokenizer, **settings: Any) -> GPT:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"n_layer": 1, "n_head": 2, "n_embd": 8, "context_length": 8, **settings}
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **shape))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def run(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    jumok.save(make(tokenizer), tmp_path / "run")
    return tmp_path / "run"


# --- a whole model ---


@pytest.mark.parametrize("family", ["modern", "classic"])
@pytest.mark.parametrize("tie", [True, False])
def test_saved_and_loaded_is_the_same(tmp_path: Path, tokenizer: Tokenizer, family: str, tie: bool) -> None:
    model = make(tokenizer, family=family, tie_embeddings=tie, dropout=0.3)
    jumok.save(model, tmp_path / "run")
    loaded = jumok.load(tmp_path / "run")
    assert loaded.config == model.config
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert (loaded.head.weight is loaded.token_embedding.weight) == tie
    ids = torch.arange(8)[None]
    assert torch.equal(loaded(ids), model.eval()(ids))


def test_a_model_without_a_tokenizer_is_not_saved(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = make(tokenizer)
    model.tokenizer = None
    with pytest.raises(RunError, match=r"set model\.tokenizer"):
        jumok.save(model, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


# --- damaged files ---

CONTENTS: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "garbage": lambda data: b"\xff\x00garbage" * 20,
    "a list": lambda data: b"[1, 2, 3]",
}


@pytest.mark.parametrize("name", checkpoint.MODEL_FILES)
@pytest.mark.parametrize("damage", CONTENTS)
def test_a_damaged_file_is_named(run: Path, name: str, damage: str) -> None:
    content = CONTENTS[damage]((run / name).read_bytes())
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content)
    with pytest.raises(RunError, match=name.replace(".", r"\.")):
        jumok.load(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"format": 99},
            r"config\.json has format 99; this version of jumok supports format 1\. Update jumok",
        ),
        ({"model": {"type": "rnn"}}, "a model of type 'rnn'; this version of jumok supports 'gpt'"),
        ({"model": {"type": "gpt", "vocab_size": 5, "n_layr": 2}}, r"config\.json .*Did you mean 'n_layer'"),
        ({"model": {"type": "gpt", "vocab_size": "5"}}, r"config\.json .*vocab_size='5' is of type str"),
        ({"model": None}, r"config\.json is damaged"),
    ],
    ids=str,
)
def test_a_config_that_describes_no_model(run: Path, change: dict[str, Any], message: str) -> None:
    """The errors were those of invalid settings and did not name the file."""
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    (run / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
    with pytest.raises(RunError, match=message):
        jumok.load(run)


def test_a_tokenizer_of_another_size(run: Path, tokenizer: Tokenizer) -> None:
    other = train_tokenizer("바람이 불었다. " * 5, "char")
    other.save(run / "tokenizer.json")
    both = rf"'char' with {other.vocab_size} ids, .* 'char' with {tokenizer.vocab_size} ids"
    with pytest.raises(RunError, match=rf"tokenizer\.json is of kind {both}"):
        jumok.load(run)


def test_a_model_may_have_more_ids_than_its_tokenizer(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size + 50, n_layer=1, n_head=2, n_embd=8, context_length=8))
    model.tokenizer = tokenizer
    jumok.save(model, tmp_path / "run")
    assert jumok.load(tmp_path / "run").config.vocab_size == tokenizer.vocab_size + 50


def test_weights_of_another_model(run: Path, tokenizer: Tokenizer) -> None:
    """Missing and unknown tensors, and those of another shape, are all listed."""
    tensors = load_file(run / "model.safetensors")
    del tensors["norm.weight"]
    tensors["extra"] = torch.zeros(2)
    tensors["token_embedding.weight"] = torch.zeros(3, 8)
    save_file(tensors, run / "model.safetensors")
    with pytest.raises(RunError) as caught:
        jumok.load(run, verify=False)
    message = str(caught.value)
    assert "norm.weight is missing" in message
    assert "extra is unknown" in message
    assert f"token_embedding.weight is (3, 8), not ({tokenizer.vocab_size}, 8)" in message


def test_a_missing_run_names_the_existing_ones(run: Path) -> None:
    with pytest.raises(RunError, match=rf"there is no run folder .*runn\. Did you mean '{run}'"):
        jumok.load(run.parent / "runn")
    with pytest.raises(RunError, match=rf"there is no run folder .*other\. There is: {run}"):
        jumok.load(run.parent / "other")


def test_an_error_of_a_write_names_the_file(tmp_path: Path) -> None:
    """`jumok learn practice` on a full disk said "No space left on device", and not where."""
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=re.escape(repr(str(path)))), atomic_path(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError) as refused:
        write_atomic(tmp_path / "none" / "a.txt", "")
    assert refused.value.filename == str(tmp_path / "none" / "a.txt")  # and not the temporary one
    with pytest.raises(FileNotFoundError) as refused, atomic_path(path):
        (tmp_path / "other").read_bytes()
    assert refused.value.filename == str(tmp_path / "other")


@pytest.mark.parametrize("work", [jumok.load, read_shape, examine])
def test_a_name_of_the_hub_says_how_to_get_the_model(
    work: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows transformers gives the name of a model, and was told only that there is no such run folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="write hf:skt/kogpt2-base-v2"):
        work(Path("skt/kogpt2-base-v2"))
    for path in ("runs/novel", "novel", "a/b/c", tmp_path / "novel"):  # these are no such names
        with pytest.raises(RunError, match="there is no run folder") as error:
            work(Path(path))
        assert "huggingface" not in str(error.value)


def test_a_file_is_no_run(run: Path) -> None:
    """The message said that there was no such folder, although the user saw a file with this name."""
    file = run.parent / "novel.gguf"
    file.write_text("")
    with pytest.raises(RunError, match=rf"novel\.gguf is a file, and a run is a folder .*There is: {run}"):
        jumok.load(file)
    file.unlink()


# --- folders ---


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a letter")
    with pytest.raises(RunError, match=r"run is a file; give a folder"):
        RunFolder.create(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "a letter"


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="holds other files and no jumok run"):
        RunFolder.create(tmp_path)


def test_an_existing_run_is_refused(run: Path) -> None:
    with pytest.raises(RunError, match=r"holds a run already\. Continue it with `jumok train --resume --out"):
        RunFolder.create(run)
    assert RunFolder.create(run, allow_existing_run=True).path == run


@pytest.mark.parametrize(
    "files",
    [
        ["state/lock"],
        ["state/lock", "state/train.npy", "state/.val.npy-x.tmp"],
        ["state/lock", "state/train.npy", "state/val.npy", "tokenizer.json", ".config.json-x.tmp", ".tmpW6DnkB"],
        ["state/lock", "state/train.npy", "state/.step-000000000-a_1.tmp/new/tensors.safetensors"],
        ["state/lock", "state/train.npy", "state/step-000000000/manifest.json", "tokenizer.json"],
    ],
)
def test_an_unfinished_start_is_not_in_the_way(tmp_path: Path, files: list[str]) -> None:
    """A start that was killed between tokenizer.json and config.json could be neither resumed nor repeated."""
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.raises(RunError, match="give the command that started it once more, without"):  # not "from a copy"
        RunFolder.open(tmp_path)
    assert RunFolder.create(tmp_path).path == tmp_path


def test_what_a_killed_process_left_is_removed(run: Path) -> None:
    """Also the files through which safetensors writes, which a kill left in a run for good."""
    left = [run / ".config.json-x.tmp", run / ".tmpW6DnkB", run / "state" / ".tmpabcdef"]
    for path in left:
        path.touch()
    with RunFolder(run).lock():
        assert [path for path in left if path.exists()] == []


@pytest.mark.parametrize("task", TASKS)
def test_what_any_task_prepares_is_an_unfinished_start(tmp_path: Path, task: str, tales: str) -> None:
    """A seq2seq start that was killed left its validation pairs, which were treated as a file of the user."""
    asked, right, wrong = (
        [{"role": role, "content": said}] for role, said in (("user", "1"), ("assistant", "2"), ("assistant", "3"))
    )
    chat = [(json.dumps(asked + right), "", '["2"]')]
    rows = {
        "classify": [("좋아요", "1"), ("싫어요", "0")],
        "seq2seq": [("1", "일"), ("2", "이")],
        "chat": chat,
        "preference": [tuple(map(json.dumps, (asked, right, wrong)))],
        "reward": chat,
    }
    kind, config = TASKS[task], TrainConfig.of({"task": task, "steps": 1})
    source: Any = from_rows(kind.config_type.columns, rows[task] * 20) if task in rows else from_string(tales)
    material = kind.material(source, None, config.val)
    made = train_tokenizer(tales, "char") if kind.config_type.needs_init else kind.make_tokenizer(material, "char", {})
    tokenizer = with_chat(made) if kind.config_type.needs_init else kind.adapt_tokenizer(made)
    known = field_types(kind.config_type.kinds[0])
    follows = {name: value for name, value in kind.derived_fields(material, tokenizer).items() if name in known}
    model = from_dict(kind.config_type.kinds[0], {"vocab_size": tokenizer.vocab_size, "context_length": 16, **follows})
    folder = RunFolder.create(tmp_path / "run")
    with folder.lock():
        prepared = kind.prepare(folder, material, tokenizer, model, config)
        later = {"reference_sha256", "reward_sha256", "baselines"} if kind.config_type.needs_init else set()
        assert kind.keys - prepared.keys() <= later  # which follow once the model to begin with is there
    assert (folder.state / "lock").exists()
    folder.write_tokenizer(tokenizer)
    assert RunFolder.create(tmp_path / "run").path == tmp_path / "run"


@pytest.mark.parametrize("files", [["state/notes.txt"], ["tokenizer.json"], ["state/step-000000001/x"], ["state"]])
def test_what_only_looks_like_an_unfinished_start(tmp_path: Path, files: list[str]) -> None:
    """A folder `state` of the user was treated as part of the run, and removed when the start failed."""
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.raises(RunError, match="holds other files"):
        RunFolder.create(tmp_path)


class Killed(BaseException):
    """Stands for a kill: no handler of errors takes it."""


@pytest.mark.parametrize("removals", range(7))
def test_a_kill_while_discarding_is_not_in_the_way(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    """state/ went first, and a kill then left a lone tokenizer.json, which was taken for a file of somebody else."""
    run = RunFolder.create(tmp_path / "run")
    run.state.mkdir()
    (run.state / "train.ids").write_bytes(b"ids")
    (run.state / "lock").write_bytes(b"")
    run.write_tokenizer(tokenizer)
    left = iter(range(removals))

    def counted(remove: Callable[..., None]) -> Callable[..., None]:
        def removed(*args: Any, **options: Any) -> None:
            if next(left, None) is None:
                raise Killed
            remove(*args, **options)

        return removed

    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        with suppress(Killed):
            run.discard()
    RunFolder.create(tmp_path / "run")


def test_discarding_leaves_what_is_not_ours(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    with run.lock():
        (tmp_path / "run" / "notes.txt").write_text("mine")
        run.discard()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


# --- the lock ---

HOLD = """
import sys
from pathlib import Path
from jumok.runs.folder import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_second_process_is_refused(run: Path) -> None:
    import subprocess
    import sys

    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunError, match="another process or another Trainer is writing to"), RunFolder(run).lock():
        pass
    holder.kill()  # the lock ends with the process
    holder.communicate()
    with RunFolder(run).lock():
        pass
    assert holder.returncode != 0


def test_a_lock_is_waited_for_or_not(tmp_path: Path) -> None:
    """The second download of a corpus waits for the first; a second training in a folder fails."""
    path, order = tmp_path / "lock", list[str]()

    def second() -> None:
        with locked(path, wait=True):
            order.append("second")

    waiting = threading.Thread(target=second)
    with locked(path):
        with pytest.raises(LockHeld), locked(path):
            order.append("never")
        waiting.start()
        waiting.join(timeout=0.2)
        assert waiting.is_alive()
        order.append("first")
    waiting.join(timeout=60)
    assert order == ["first", "second"]


# --- training states ---


def state(step: int) -> Checkpoint:
    tensors = {"model.a": torch.full((3, 2), step + 0.1), "optimizer.0.0.step": torch.tensor(float(step))}
    numbers = {"best": 0.1 + step, "best_metrics": {}, "validated": step, "cooldown": None, "logs": {"a": 5}}
    return Checkpoint(step=step, tensors=tensors, numbers=numbers)


def test_a_state_comes_back_bit_for_bit(run: Path) -> None:
    folder = RunFolder(run)
    folder.write_checkpoint(state(7))
    found, damaged = folder.checkpoints.newest()
    assert damaged == []
    assert found is not None
    assert (found.step, found.numbers) == (7, state(7).numbers)
    assert found.tensors.keys() == state(7).tensors.keys()
    assert all(torch.equal(tensor, found.tensors[name]) for name, tensor in state(7).tensors.items())


@pytest.mark.parametrize("name", ["best", "best_metrics", "validated"])
def test_a_state_that_lacks_a_number_is_skipped(run: Path, name: str) -> None:
    """Its files are whole, but a resumed run ended with a KeyError."""
    folder = RunFolder(run)
    folder.write_checkpoint(state(7))
    rest = {key: value for key, value in state(8).numbers.items() if key != name}
    folder.write_checkpoint(dataclasses.replace(state(8), numbers=rest))
    found, damaged = folder.checkpoints.newest()
    assert found is not None
    assert found.step == 7
    assert len(damaged) == 1
    assert name in damaged[0]


def test_the_newest_two_are_kept(run: Path) -> None:
    folder = RunFolder(run)
    for step in (1, 2, 10, 9_999_999_999):
        folder.write_checkpoint(state(step))
    assert sorted(path.name for path in folder.state.glob("step*")) == ["step-000000010", "step-9999999999"]
    found, _ = folder.checkpoints.newest()
    assert found is not None
    assert found.step == 9_999_999_999


def test_the_same_step_again_leaves_one_of_it(run: Path) -> None:
    """The states of two steps are kept, independent of how often each was saved."""
    folder = RunFolder(run)
    for step in (4, 5, 5, 5):
        folder.write_checkpoint(state(step))
    assert sorted(path.name for path in folder.state.glob("step*")) == ["step-000000004", "step-000000005.2"]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such permissions")
def test_state_files_have_ordinary_permissions(run: Path) -> None:
    """safetensors creates files that only their owner can read, so others could not resume a shared run."""
    folder = RunFolder(run)
    before = os.umask(0o022)
    try:
        folder.write_checkpoint(state(5))
    finally:
        os.umask(before)
    (path,) = folder.state.glob("step-*")
    assert {file.name: file.stat().st_mode & 0o777 for file in path.iterdir()} == dict.fromkeys(
        ("tensors.safetensors", "numbers.json", "manifest.json", "best.safetensors"), 0o644
    )
    assert path.stat().st_mode & 0o777 == 0o755


def test_a_state_that_cannot_be_written_leaves_those_before(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(run)
    folder.write_checkpoint(state(1))
    folder.write_checkpoint(state(2))

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            RunError, match=r"cannot write the training state .*0\.0 MB needed, [\d.,]+ MB free on that disk"
        ):
            folder.write_checkpoint(state(3))
    assert sorted(path.name for path in folder.state.iterdir()) == ["lock", "step-000000001", "step-000000002"]
    assert folder.checkpoints.newest()[1] == []


# --- logs and files ---


def test_logs_grow_and_are_cut(run: Path) -> None:
    folder = RunFolder(run)
    assert folder.logs.size("metrics.jsonl") == 0
    assert folder.logs.metrics() == []
    with folder.lock():
        folder.append("metrics.jsonl", '{"event": "1"}\n')
        size = folder.logs.size("metrics.jsonl")
        folder.append("metrics.jsonl", '{"event": "2"}\n{"event": "3"')  # the last line is incomplete after a kill
        assert folder.logs.metrics() == [{"event": "1"}, {"event": "2"}]
        folder.truncate("metrics.jsonl", size)
        assert folder.logs.metrics() == [{"event": "1"}]
        folder.truncate("metrics.jsonl", 10_000)
        assert folder.logs.size("metrics.jsonl") == size
        folder.append("metrics.jsonl", '{"event": "4"}\n')  # continues at the new end
        assert folder.logs.metrics() == [{"event": "1"}, {"event": "4"}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_log_on_a_full_disk(run: Path) -> None:
    """A message when the line is appended, and no second error when the log is closed."""
    folder = RunFolder(run)
    (run / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write metrics\.jsonl .*No space left"), folder.lock():
        folder.append("metrics.jsonl", "{}\n")


def test_a_sample_may_hold_any_line_end(run: Path) -> None:
    """`str.splitlines` splits at U+2028 and U+0085, so a sample with one of them made the log unreadable."""
    folder = RunFolder(run)
    event = {"event": "sample", "text": "첫 줄\u2028둘째\u0085셋째\x0c\x1c끝\r"}
    with folder.lock():
        folder.append("metrics.jsonl", json.dumps(event, ensure_ascii=False) + "\n")
    assert folder.logs.metrics() == [event]


GUEST = """
import logging, os, random, sys, warnings
import numpy, torch
warnings.simplefilter("error")
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
torch.manual_seed(1), numpy.random.seed(1), random.seed(1)

def state():
    return [
        torch.get_rng_state().tolist(), str(numpy.random.get_state()), random.getstate(), list(warnings.filters),
        torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), dict(os.environ),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), sys.getrecursionlimit(),
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), list(logging.root.handlers),
        logging.root.level, [__import__("signal").getsignal(n) for n in (2, 15)], os.getcwd(), sys.path[:],
        torch.get_default_device(),
    ]

before = state()
import jumok
model = jumok.load(sys.argv[1])
modes = [part.training for part in model.modules()]
jumok.generate(model, "그날", tokens=3)
list(jumok.stream(model, "그날", tokens=3))
jumok.evaluate(model, "그날 밤이었다.")
after = state()
assert [a == b for a, b in zip(before, after)] == [True] * len(before), [a == b for a, b in zip(before, after)]
assert modes == [False] * len(modes)
"""


@pytest.mark.long
def test_load_changes_no_global_state(start: Callable[..., Trainer], tmp_path: Path) -> None:
    """`jumok.load` used torch's random numbers. It must not print, log, warn, or change global state."""
    list(start(steps=1, eval_every=0).run())
    done = subprocess.run([sys.executable, "-c", GUEST, str(tmp_path / "run")], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


DEEP = "[" * 100_000


def test_files_that_nest_deeply_are_damaged(tmp_path: Path) -> None:
    """`json.loads` raises RecursionError for them, which no reader caught."""
    run = RunFolder(tmp_path)
    (tmp_path / "config.json").write_text(DEEP, encoding="utf-8")
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        run.read_config()
    state = tmp_path / "state" / "step-000000001"
    state.mkdir(parents=True)
    (state / "manifest.json").write_text(DEEP, encoding="utf-8")
    found, said = run.checkpoints.newest()
    assert found is None
    assert "nested too deeply" in said[0]


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("train", None, [1]), ("data", None, None), ("data", "sources", [None]),
        ("data", "chars", True), ("finished", "step", "1"), ("tokenizer", "fingerprint", None),
    ],
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_damage(tmp_path: Path, part: str, name: str | None, value: Any) -> None:
    """Each of these ended in a traceback somewhere behind the reader."""
    config: dict[str, Any] = {
        "format": 1, "model": {"type": "gpt"}, "tokenizer": {"kind": "char", "vocab_size": 9, "fingerprint": "ab"},
        "train": {"task": "lm"}, "data": {"sources": ["a.txt"]}, "finished": {"step": 1, "reason": "done"},
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert RunFolder(tmp_path).read_config() == config
    if name is None:
        config[part] = value
    elif value is None:
        del config[part][name]
    else:
        config[part][name] = value
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        RunFolder(tmp_path).read_config()
