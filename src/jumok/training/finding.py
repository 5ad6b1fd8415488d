"""What an alarm has found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The reason for an alarm. kind: see `jumok.training.alarms`. numbers: that were measured. text: a message."""

    kind: str
    numbers: dict[str, float]
    text: str
