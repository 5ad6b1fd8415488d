"""What the command line says when memory ran out in spite of all checks: during which verb, and what to reduce."""

from __future__ import annotations

import re

from jumok.memory import bytes_of, free_memory
from jumok.messages import message, tr

REMEDIES = {
    "train": message("Use a smaller {--batch-size}, {--context-length} or {--size}, or {--recompute}."),
    "generate": message("Use a shorter prompt, or a smaller model."),
    "evaluate": message("Divide the text or the table into smaller files, or use a smaller model."),
    "predict": message("Divide the text or the table into smaller files, or use a smaller model."),
    "view": message("Use a shorter text, or fewer {--layers} and {--heads}."),
}
REMEDY_OF_OTHERS = message("Use a smaller model or text, or a computer with more memory.")
ASKED = re.compile(r"(?:allocate|allocating) (\d+) bytes")  # torch on CPUs


def out_of_memory(verb: str, error: BaseException) -> str:
    """Return the message for an error that means that memory ran out."""
    free, remedy = free_memory(), REMEDIES.get(verb, REMEDY_OF_OTHERS)
    asked = ASKED.search(str(error))
    numbers = [tr("{bytes} more were needed", bytes=bytes_of(int(asked[1])))] if asked else []
    numbers += [] if free is None else [tr("{bytes} are free", bytes=bytes_of(free))]
    return tr(
        "memory ran out during `{command}`{numbers}. {remedy}",
        command=f"jumok {verb}".strip(),
        numbers=f" ({', '.join(numbers)})" if numbers else "",
        remedy=tr(remedy),
    )
