"""The SHA-256 of model.safetensors in config.json: how both are replaced, and the check when a run is loaded.

config.json has the sums that are accepted, the newest first: `"parameters": {"sha256": [...]}`. Two files cannot be
renamed at once, so the parameters are replaced in three steps, each of which is one atomic rename:

    1. config.json accepts the new sum and the one before     (model.safetensors is still the old file)
    2. model.safetensors is replaced
    3. config.json accepts the new sum alone

After a kill between any two of them the file has one of the accepted sums, so the run loads. `finish_swap` does step 3
when the run is continued. A reader that meets a mismatch reads config.json again: a trainer may have replaced both
files meanwhile.

Runs whose sums were taken out of config.json, and folders of Hugging Face, are loaded without a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from jumok.errors import RunError
from jumok.files import atomic_path, sha256_of
from jumok.messages import shell
from jumok.runs.checkpoints import states_in
from jumok.runs.config import parse_config, write_config

T = TypeVar("T")


def sums_in(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the accepted SHA-256 of model.safetensors in the values of a config.json, the newest first; () if none."""
    return tuple(config.get("parameters", {}).get("sha256", ()))


# --- writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def replaced_parameters(folder: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces model.safetensors of a run folder when the block ends without an error.

    Raises:
        RunError: config.json cannot be read. OSError: a file cannot be written.
    """
    file = folder / "model.safetensors"
    with atomic_path(file) as temporary:
        yield temporary
        new = sha256_of(temporary)
        _accept(folder, (new, *(each for each in _accepted(folder) if each != new)))
    _accept(folder, (new,))


def finish_swap(folder: Path) -> None:
    """Let config.json accept one sum alone if the run was killed while its parameters were replaced.

    Raises:
        RunError: config.json cannot be read. OSError: it cannot be written.
    """
    file, sums = folder / "model.safetensors", _accepted(folder)
    if not file.is_file():
        _accept(folder, ())
    elif len(sums) > 1 and (found := sha256_of(file)) in sums:
        _accept(folder, (found,))


def _accepted(folder: Path) -> tuple[str, ...]:
    return sums_in(parse_config(folder / "config.json"))


def _accept(folder: Path, sums: tuple[str, ...]) -> None:
    config = parse_config(folder / "config.json")
    if sums != sums_in(config):
        config.pop("parameters", None)
        write_config(folder / "config.json", config | ({"parameters": {"sha256": list(sums)}} if sums else {}))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_verified(folder: Path, read: Callable[[Path], T], *, verify: bool = True) -> T:
    """Read model.safetensors of a run folder.

    Args:
        read: returns what is wanted of the file.
        verify: whether the SHA-256 of the file is compared with config.json.

    Raises:
        RunError: the file cannot be read, or its sum is not one of those in config.json.
    """
    file = folder / "model.safetensors"
    try:
        if verify and not _has_accepted_sum(folder):
            raise _changed(folder)
        return read(file)
    except (SafetensorError, OSError) as error:
        raise RunError(
            "{path} is damaged ({error}). If the run still has its state/ folder, `{command}` writes it again; "
            "otherwise restore it from a copy.",
            path=file,
            error=error,
            command=shell("jumok", "train", "--resume", "--out", folder),
        ) from None


def _has_accepted_sum(folder: Path) -> bool:
    """Return whether model.safetensors has a sum that config.json accepts; True if config.json has none."""
    sums = _accepted(folder)
    while sums and sha256_of(folder / "model.safetensors") not in sums:
        known, sums = sums, _accepted(folder)
        if sums == known:
            return False
    return True


def _changed(folder: Path) -> RunError:
    """Return the error for parameters that are not those in config.json, with a remedy that can work."""
    if states_in(folder / "state"):
        return RunError(
            "{path} is damaged: it changed after it was written (its SHA-256 is not the one in config.json). "
            "`{command}` restores it from the last training state, or chooses the best parameters anew.",
            path=folder / "model.safetensors",
            command=shell("jumok", "train", "--resume", "--out", folder),
        )
    return RunError(
        "{path} is damaged: it changed after it was written (its SHA-256 is not the one in config.json). Restore the "
        "file from a copy; `jumok.load(path, verify=False)` in Python loads it as it is.",
        path=folder / "model.safetensors",
    )
