"""The C++ step of generation: built before long work, with a word to the user."""

from __future__ import annotations

from jumok.cli.console.output import say
from jumok.messages import tr


def build_native_step(*, quiet: bool = False) -> None:
    """Build the C++ step if it is not there; say so, and why if it cannot be built."""
    from jumok.inference.native.build import library, why_not

    if library(build=False):
        return
    if why_not() is None:
        say(
            tr("Compiling the C++ step for generation. This takes about ten seconds, once on this machine."),
            quiet=quiet,
        )
        library(build=True)
    if reason := why_not():
        say(reason[0].upper() + reason[1:], quiet=quiet)
