"""`RunFolders`: the run folders that a server knows, by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jumok.corpora.hub import folder_of, name_of
from jumok.errors import ServeError
from jumok.text.hangul import nfc

MOST_RUNS = 1_000  # that are listed


class RunFolders:
    """The run folders that were named on the command line, and those in a folder of runs.

    A name is looked up in a listing that is made anew each time; what a client sends is never a path. Links to folders,
    hidden folders and names that cannot be shown are left out.

    Args:
        named: known by their own names, also where the folder of runs has one of this name.
        root: the folder of runs, which need not exist; None: none.

    Raises:
        ServeError: two of the named folders have the same name.
    """

    def __init__(self, named: Sequence[Path], root: Path | None = None) -> None:
        self.root = root
        self.named: dict[str, Path] = {}
        for folder in named:
            name = name_of(folder)
            if name in self.named:
                raise ServeError(
                    "{first} and {second} have the same name, and a client chooses a model by its name; rename one of "
                    "them, or leave it out.",
                    first=self.named[name],
                    second=folder,
                )
            self.named[name] = folder_of(folder)

    def all(self) -> dict[str, Path]:
        """Return the run folders by name, those that were named first."""
        found = dict(self.named)
        if self.root is not None:
            with suppress(OSError), os.scandir(self.root) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
                for name in names:
                    if name.isprintable() and not name.startswith(".") and _is_run(self.root / name):
                        found.setdefault(nfc(name), self.root / name)
        return dict(list(found.items())[:MOST_RUNS])

    def get(self, name: str) -> Path | None:
        """Return the folder of a run, or None if there is none of this name."""
        return self.all().get(nfc(name))


def has_parameters(folder: Path) -> bool:
    """Return whether a run folder has parameters, so that its model can be used."""
    return (folder / "model.safetensors").is_file()


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file() or (folder / "state").is_dir()
