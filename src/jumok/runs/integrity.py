"""The SHA-256 of model.safetensors in config.json: how both are replaced, and the check when a run is loaded.

config.json has the sums that are accepted, the newest first: `"parameters": {"sha256": [...]}`. Two files cannot be
renamed at once, so the parameters are replaced in three steps, each of which is one atomic rename:

    1. config.json accepts the new sum and the one before     (model.safetensors is still the old file)
    2. model.safetensors is replaced
    3. config.json accepts the new sum alone

After a kill between any two of them the file has one of the accepted sums, so the run loads. `settle` does step 3 when
the run is continued. If the file before had no recorded sum, because an earlier version wrote it, its sum is computed
for step 1. A reader that meets a mismatch reads config.json again: a trainer may have replaced both files meanwhile.

Runs without sums, which earlier versions wrote, and folders of Hugging Face are loaded without a check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from torch import Tensor

from jumok.errors import RunError
from jumok.files import atomic_path, sha256_of
from jumok.messages import shell
from jumok.models.tensors import load_tensors
from jumok.runs.checkpoints import best_copies, states_in, states_of_best

if TYPE_CHECKING:
    from jumok.runs.folder import RunFolder


def sums_in(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The accepted SHA-256 of model.safetensors, the newest first, from the values of a config.json; () if none."""
    return tuple(config.get("parameters", {}).get("sha256", ()))


def with_sums(config: Mapping[str, Any], sums: tuple[str, ...]) -> dict[str, Any]:
    """The values of a config.json with these accepted sums."""
    others = {name: value for name, value in config.items() if name != "parameters"}
    return {**others, "parameters": {"sha256": list(sums)}} if sums else others


# --- writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def replaced_parameters(run: RunFolder) -> Iterator[Path]:
    """Yield a temporary file that replaces model.safetensors when the block ends without an error.

    Raises:
        RunError: config.json cannot be read or written. OSError: the other file cannot.
    """
    with atomic_path(run.model_file) as temporary:
        yield temporary
        new = sha256_of(temporary)
        before = sums_in(run.read_config())
        if not before and run.model_file.is_file():
            before = (sha256_of(run.model_file),)
        _accept(run, (new, *(each for each in before if each != new)))
    _accept(run, (new,))


def settle(run: RunFolder) -> None:
    """Let config.json accept one sum alone if the run was killed while its parameters were replaced."""
    sums = sums_in(run.read_config())
    if not run.model_file.is_file():
        _accept(run, ())
    elif len(sums) > 1 and (found := sha256_of(run.model_file)) in sums:
        _accept(run, (found,))


def _accept(run: RunFolder, sums: tuple[str, ...]) -> None:
    config = run.read_config()
    if sums != sums_in(config):
        run.write_config(with_sums(config, sums))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_verified(run: RunFolder, path: Path, *, verify: bool) -> dict[str, Tensor]:
    """The tensors of model.safetensors by name.

    Args:
        path: of the file, which exists. verify: whether its SHA-256 is compared with config.json.

    Raises:
        RunError: the file cannot be read, or its sum is not one of those in config.json.
    """
    try:
        if verify and not has_accepted_sum(run):
            raise _changed(run)
        return load_tensors(path)
    except (SafetensorError, OSError) as error:
        raise RunError(
            "{path} is damaged ({error}). If the run still has its state/ folder, `{command}` writes it again; "
            "otherwise restore it from a copy.",
            path=path,
            error=error,
            command=shell("jumok", "train", "--resume", "--out", run.path),
        ) from None


def has_accepted_sum(run: RunFolder) -> bool:
    """Whether model.safetensors has a sum that config.json accepts; also if config.json has none.

    Raises:
        OSError: the file cannot be read.
    """
    sums = sums_in(run.read_config())
    while sums and sha256_of(run.model_file) not in sums:
        known, sums = sums, sums_in(run.read_config())
        if sums == known:
            return False
    return True


def _changed(run: RunFolder) -> RunError:
    """The error for parameters that are not those in config.json, with a remedy that can work."""
    if any(True for _ in best_copies(run.state)) or any(True for _ in states_of_best(run.state)):
        return RunError(
            "{path} is damaged: it changed after it was written (its SHA-256 is not the one in config.json). "
            "`{command}` restores it from a training state.",
            path=run.model_file,
            command=shell("jumok", "doctor", run.path, "--repair"),
        )
    if states_in(run.state):
        return RunError(
            "{path} is damaged: it changed after it was written (its SHA-256 is not the one in config.json). Restore "
            "the file from a copy. Without one, `{command}` goes on from the last training state and chooses the best "
            "parameters anew.",
            path=run.model_file,
            command=shell("jumok", "train", "--resume", "--out", run.path),
        )
    return RunError(
        "{path} is damaged: it changed after it was written (its SHA-256 is not the one in config.json). Restore the "
        "file from a copy. `{command}` says what else is whole; --no-verify (in Python verify=False) loads the file as "
        "it is.",
        path=run.model_file,
        command=shell("jumok", "doctor", run.path),
    )
