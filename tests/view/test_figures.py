"""The picture of a run: drawn from whatever events there are, and whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jumok.view.figures import _smoothed, draw_loss

pytestmark = pytest.mark.usefixtures("drawn")


def step(number: int, loss: float | None, skipped: bool = False) -> dict[str, Any]:
    return {"event": "step", "step": number, "loss": loss, "skipped": skipped}


def held_out(number: int, loss: float, best: bool = True, **figures: float) -> dict[str, Any]:
    return {"event": "eval", "step": number, "figures": {"loss": loss, **figures}, "best": best}


@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"event": "sample", "step": 0, "text": "글"}],
        [step(1, 5.0)],
        [step(1, None, skipped=True)],
        [step(1, 5.0), step(2, None, skipped=True), step(3, 4.0)],
        [held_out(3, 2.5)],
        [held_out(3, 2.5, floor=1.2)],
        [step(n, 6.0 / n) for n in range(1, 500)] + [held_out(n, 5.0 / n, floor=0.5) for n in range(50, 500, 50)],
        [step(1, 5.0), {"event": "finish", "step": 1, "reason": "done", "figures": {}, "seconds": 1.0}],
    ],
    ids=["nothing", "a sample", "a step", "a skipped step", "one of three skipped", "a validation", "with its floor",
         "a whole run", "finished"],
)  # fmt: skip
def test_any_events_make_a_picture(events: list[dict[str, Any]], tmp_path: Path) -> None:
    draw_loss(events, tmp_path / "loss.png")
    content = (tmp_path / "loss.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content.rstrip().endswith(b"IEND\xaeB`\x82")
    width, height = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    assert (width, height) == (960, 540)
    assert list(tmp_path.iterdir()) == [tmp_path / "loss.png"]


def test_the_curves_show_the_losses(tmp_path: Path) -> None:
    """Another run, another picture; the same run, the same one."""
    events = [step(n, 6.0 / n) for n in range(1, 50)]
    for name, extra in (("one.png", []), ("same.png", []), ("other.png", [held_out(30, 1.0)])):
        draw_loss([*events, *extra], tmp_path / name)
    one, same, other = ((tmp_path / name).read_bytes() for name in ("one.png", "same.png", "other.png"))
    assert one == same != other


def test_the_best_validation_is_not_always_that_of_the_least_loss(tmp_path: Path) -> None:
    for name, best in (("first.png", (True, False)), ("second.png", (True, True))):
        events = [held_out(10, 1.0, best=best[0]), held_out(20, 2.0, best=best[1])]
        draw_loss(events, tmp_path / name)
    assert (tmp_path / "first.png").read_bytes() != (tmp_path / "second.png").read_bytes()


def test_a_picture_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "loss.png"
    path.write_text("old")
    draw_loss([step(1, 5.0)], path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_mean_starts_where_the_losses_do() -> None:
    assert _smoothed([]) == []
    assert _smoothed([4.0, 4.0, 4.0]) == pytest.approx([4.0, 4.0, 4.0])
    falling = _smoothed([10.0] + [0.0] * 1000)
    assert falling[0] == pytest.approx(10.0)
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] < 0.01
