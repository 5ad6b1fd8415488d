"""The numbers that a page prints, against the true ones: right is what is off by at most one in its last digit."""

from __future__ import annotations

import re

import numpy as np

RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
NUMBER = re.compile(
    r"^(?P<sign>[<≈]?)(?P<value>[−+]?(?:\d+(?:\.\d*)?|\.\d+))(?:×10(?P<power>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+))?(?P<percent>%?)$"
)


def mistake_of(printed: str, truth: float) -> str | None:
    """Return what is wrong with a printed number, or None."""
    order = re.fullmatch(r"≈10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", printed)
    if order:
        return None if abs(np.log10(truth) - int(order[1].translate(RAISED))) <= 2 else f"{printed}: {truth}"
    match = NUMBER.match(printed)
    if match is None:
        return f"{printed!r} is no number"
    factor = 10.0 ** int((match["power"] or "0").translate(RAISED)) * (0.01 if match["percent"] else 1)
    value = float(match["value"].replace("−", "-")) * factor
    unit = 10.0 ** -len(match["value"].partition(".")[2]) * factor
    if match["sign"] == "<":
        return None if 0 <= truth < value else f"{printed}: {truth}"
    if match["sign"] == "≈":
        unit = 2 * 10 ** np.floor(np.log10(max(abs(value), unit)))
    return None if abs(value - truth) <= unit * (1 + 1e-3) else f"{printed}: {truth}"
