"""The progress bar of `jumok evaluate --adapt`."""

from __future__ import annotations

from rich.console import Console

from jumok.messages import tr
from jumok.training.subscribers.progress import BarView, moving_bar


class AdaptingView(BarView):
    """The share of a text that was read and learned from, in a terminal only."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._bar = moving_bar(console, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task(tr("learning from the text"), total=1.0)

    def show(self, share: float) -> None:
        """Show the share of the text that is done, from 0 to 1."""
        self._bar.update(self._task, completed=share)
