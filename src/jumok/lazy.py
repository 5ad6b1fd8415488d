"""Packages whose names are imported when they are first used, because most programs need few of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        names: for each module of the package the public names that it defines, with blanks between them.
    """
    home = {name: f"{package}.{module}" for module, defined in names.items() for name in defined.split()}

    def __getattr__(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home[name]), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return __getattr__
