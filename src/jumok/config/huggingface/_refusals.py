"""Folders that jumok cannot read: unknown classes, classes with code of their own, and quantised models."""

from __future__ import annotations

from collections.abc import Iterable

from jumok.config.huggingface._settings import Stock
from jumok.errors import JumokError
from jumok.messages import closest, tr


def unknown_class(name: object, stock: Stock, where: str, known: Iterable[str]) -> JumokError:
    """Return the error for a class that jumok does not support, with the supported ones and the nearest of them.

    Args:
        name: the class, or None if the file names none.
        known: the supported classes.
    """
    known = list(known)
    if not name:
        return JumokError(
            "{where} is of model_type {kind!r}, and names no class; jumok reads {known}.",
            where=where,
            kind=stock.get("model_type"),
            known=", ".join(known),
        )
    near = closest(str(name), known)
    listed = ", ".join(known) + (tr("; the nearest name is {near}", near=near) if near else "")
    if stock.get("auto_map"):
        return JumokError(
            "{where} is a model {name}, which Python code in the folder defines (auto_map). jumok never runs such "
            "code; it reads {known}.",
            where=where,
            name=name,
            known=listed,
        )
    return JumokError("{where} is a model {name}; jumok reads {known}.", where=where, name=name, known=listed)


def refuse_quantised(stock: Stock, where: str) -> None:
    """Raise JumokError for a model whose parameters are stored in few bits; the message names the method."""
    settings = stock.get("quantization_config") or stock.get("compression_config")
    if not settings:
        return
    values = settings if isinstance(settings, dict) else {}
    bits = values.get("bits") or next((n for n in (4, 8) if values.get(f"load_in_{n}bit")), None)
    method = values.get("quant_method") or ("bitsandbytes" if "load_in_8bit" in values else "?")
    raise JumokError(
        "{where} is quantised ({method}), which jumok does not read; get the model with parameters in float32, "
        "bfloat16 or float16.",
        where=where,
        method=f"{method}, {bits} bits" if bits else method,
    )
