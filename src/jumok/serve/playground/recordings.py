"""Attention of the playground: traces of the viewer's format, and the events by which they grow."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.inference.window import window_start
from jumok.interpret.ablation import ablate
from jumok.serve.playground.language_model import JSON
from jumok.serve.playground.reading import Off, Reading, require_gpt
from jumok.view.live import growing, token_event
from jumok.view.model_input import read_ids
from jumok.view.trace import trace_input


def record(reading: Reading, ids: Sequence[int], layers: Sequence[int] | None, off: Off, top: int, name: str) -> JSON:
    """The trace of some ids, to which tokens can be added; of more than the context, of those that the model sees.

    Raises:
        ConfigError: there is no such layer or head. ViewError: the model's numbers are not finite.
    """
    with reading.alone() as model:
        gpt = require_gpt(model)
        window = ids[window_start(len(ids), gpt.config.context_length) :]
        with ablate(gpt, off):
            found = trace_input(gpt, read_ids(gpt, window, len(window)), layers=layers, top=top, lens=False, name=name)
        return growing(found)


def record_next(reading: Reading, ids: Sequence[int], off: Off, top: int) -> JSON:
    """The event of the last of some ids, for a trace of those before it."""
    with reading.alone() as model:
        gpt = require_gpt(model)
        window = ids[window_start(len(ids), gpt.config.context_length) :]
        with ablate(gpt, off):
            return token_event(gpt, window, reader=reading.reader, top=top)
