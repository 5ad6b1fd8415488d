"""The architecture drawings of the course, as SVG: attention, masks, the block, the models, a map of the exercises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from jumok.course.drawings import attention, models
from jumok.course.drawings.diagram import Diagram
from jumok.course.words import Language
from jumok.errors import ConfigError
from jumok.files import write_atomic
from jumok.messages import did_you_mean

ARCHITECTURES: Mapping[str, Callable[[], Diagram]] = {
    "attention": attention.attention,
    "multi-head": attention.multi_head,
    "masks": attention.masks,
    "recurrent": attention.recurrent,
    "block": models.block,
    "gpt": models.gpt,
    "bert": models.bert,
    "encoder-decoder": models.encoder_decoder,
    "map": models.course_map,
}


def draw_architecture(
    name: str,
    path: Path | str,
    language: Language = "ko",
    highlight: Collection[str] = (),
    *,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write a drawing as an SVG file.

    Args:
        name: a key of ARCHITECTURES.
        path: of the file; one that exists is replaced.
        language: of the words in it.
        highlight: parts that get a thick blue border, for example ("mask", "softmax") of "attention".
        notes: part -> words to the right of its first box; "map" has room for them.

    Raises:
        ConfigError: there is no such drawing, or it has no such part.
    """
    write_atomic(Path(path), architecture(name, language, highlight, notes=notes))


def architecture(
    name: str, language: Language = "ko", highlight: Collection[str] = (), *, notes: Mapping[str, str] | None = None
) -> str:
    """Return a drawing as SVG text. Arguments and errors as for `draw_architecture`."""
    if name not in ARCHITECTURES:
        raise ConfigError(
            "there is no drawing {name!r}; there are {names}.{hint}",
            name=name,
            names=", ".join(ARCHITECTURES),
            hint=did_you_mean(name, ARCHITECTURES),
        )
    diagram = ARCHITECTURES[name]()
    for part in (*highlight, *(notes or ())):
        if part not in diagram.parts:
            raise ConfigError(
                "the drawing {name!r} has no part {part!r}; it has {parts}.{hint}",
                name=name,
                part=part,
                parts=", ".join(sorted(diagram.parts)),
                hint=did_you_mean(part, diagram.parts),
            )
    return diagram.svg(language, highlight, notes)
