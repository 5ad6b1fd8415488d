"""The progress bar of a download."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from jumok.training.subscribers.progress import BarView


class DownloadView(BarView):
    """A progress bar in bytes, in a terminal only."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(), DownloadColumn(), TransferSpeedColumn(),
            console=console, transient=True, disable=quiet or not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None)

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes have arrived."""
        self._bar.update(self._task, completed=done, total=total)
