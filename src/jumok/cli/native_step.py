"""The C++ step of generation: built before long work, with a word to the user."""

from __future__ import annotations

from typing import Any

from jumok.cli.console.output import say
from jumok.messages import tr


def build_native_step(model: Any = None, *, quiet: bool = False) -> None:
    """Build the C++ step if it is not there; say so, and why if it cannot be built.

    Args:
        model: of PyTorch; nothing is built for one that the step does not compute.
    """
    from jumok.inference.native.build import library, why_not

    if library(build=False):
        return
    if model is not None:
        from jumok.inference.native.from_torch import can_run
        from jumok.models.gpt import GPT

        if not isinstance(model, GPT) or not can_run(model):
            return
    if why_not() is None:
        say(
            tr("Compiling the C++ step for generation. This takes about ten seconds, once on this machine."),
            quiet=quiet,
        )
        library(build=True)
    if reason := why_not():
        say(reason[0].upper() + reason[1:], quiet=quiet)
