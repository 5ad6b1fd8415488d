"""Devices by name, as their data sheets describe them (devices.toml)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jumok.config import Precision
from jumok.device import DEVICES
from jumok.errors import ConfigError
from jumok.messages import did_you_mean


@dataclass(frozen=True, kw_only=True)
class DataSheet:
    """A device. flops: peak per second, in `precision`. memory: bytes. bandwidth, link: bytes per second."""

    name: str
    precision: Precision
    flops: float
    memory: float
    bandwidth: float
    link: float
    source: str


@cache
def data_sheets() -> dict[str, DataSheet]:
    """Return the devices of devices.toml by their names on the command line."""
    table = tomllib.loads((files(__package__) / "devices.toml").read_text(encoding="utf-8"))
    return {
        key: DataSheet(
            name=entry["name"],
            precision=entry["in"],
            flops=1e12 * entry["teraflops"],
            memory=1e9 * entry["gigabytes"],
            bandwidth=1e9 * entry["bandwidth"],
            link=1e9 * entry["link"],
            source=entry["source"],
        )
        for key, entry in table.items()
    }


def data_sheet(name: str) -> DataSheet | None:
    """Return the data sheet of a device, or None for a device of this machine: auto, cpu, cuda or mps.

    Case, blanks and hyphens do not matter: "RTX 4090" is rtx4090.

    Raises:
        ConfigError: there is no such device.
    """

    def plain(text: str) -> str:
        return re.sub(r"[\s_-]", "", text.lower())

    known = data_sheets()
    if found := next((sheet for key, sheet in known.items() if plain(key) == plain(name)), None):
        return found
    if name.partition(":")[0] in DEVICES:
        return None
    raise ConfigError(
        "device={name!r} has no data sheet here; choose from {sheets}, or {here} for this machine.{hint}",
        name=name,
        sheets=", ".join(known),
        here=", ".join(DEVICES),
        hint=did_you_mean(name.lower(), (*known, *DEVICES)),
    )
