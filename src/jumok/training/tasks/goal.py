"""The figure by which a task is judged, and by which `--stop-at` ends a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jumok.errors import ConfigError
from jumok.messages import tr


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The figure by which a task is judged.

    figure: its name among the figures. unit: its unit, a `message`. best: the best possible value, 0 for a loss and 1
    for a share of right answers.
    """

    figure: str
    unit: str
    best: float = 0.0

    def require(self, value: float) -> None:
        """Raise ConfigError unless a run could stop at this value."""
        if value <= 0 or 0 < self.best < value:
            most = tr(" and at most {best:g}", best=self.best) if self.best else ""
            raise ConfigError(
                "stop_at={value!r} is out of range: for this task it is {unit}, more than 0{most}.",
                value=value,
                unit=tr(self.unit),
                most=most,
            )

    def shortfall(self, figures: Mapping[str, float]) -> float:
        """The distance of the figures from the best value, 0 or more."""
        return abs(figures[self.figure] - self.best)

    def reached(self, figures: Mapping[str, float], wanted: float) -> bool:
        """Whether the figures are as good as the wanted value, or better."""
        return self.shortfall(figures) <= abs(wanted - self.best)
