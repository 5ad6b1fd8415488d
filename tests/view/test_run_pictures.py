"""The picture of a run: drawn from whatever events there are, its limits, and its labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jumok.view import canvas
from jumok.view.run_pictures import MOST_POINTS, _means, _smoothed, draw_loss, loss_limits

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("drawn")]


def step(number: int, loss: float | None, skipped: bool = False) -> dict[str, Any]:
    return {"event": "step", "step": number, "loss": loss, "skipped": skipped}


def held_out(number: int, loss: float, best: bool = True, **figures: float) -> dict[str, Any]:
    return {"event": "eval", "step": number, "figures": {"loss": loss, **figures}, "best": best}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were drawn, to be looked into."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k))[1])
    return figures


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


def test_the_best_validation_is_not_always_that_of_the_least_loss(tmp_path: Path) -> None:
    for name, best in (("first.png", (True, False)), ("second.png", (True, True))):
        events = [held_out(10, 1.0, best=best[0]), held_out(20, 2.0, best=best[1])]
        draw_loss(events, tmp_path / name)
    assert (tmp_path / "first.png").read_bytes() != (tmp_path / "second.png").read_bytes()


def test_a_share_is_drawn_beside_the_loss(tmp_path: Path) -> None:
    events = [step(1, 0.7), held_out(10, 0.6, accuracy=0.7), held_out(20, 0.5, accuracy=0.8)]
    for name, beside in (("alone.png", None), ("beside.png", "accuracy"), ("lacking.png", "exact_match")):
        draw_loss(events, tmp_path / name, beside=beside)
    alone, beside, lacking = ((tmp_path / name).read_bytes() for name in ("alone.png", "beside.png", "lacking.png"))
    assert alone == lacking != beside


def test_a_long_run_is_drawn_by_means() -> None:
    """The picture of a run of a million steps had a million points, and all its events were in memory."""
    assert _means([]) == []
    assert _means([3.0, 1.0]) == [3.0, 1.0]
    values = [float(n) for n in range(2 * MOST_POINTS + 1)]
    means = _means(values)
    assert len(means) <= MOST_POINTS
    assert means[:2] == [1.0, 4.0]
    assert means[-1] == pytest.approx(sum(values[len(means) * 3 - 3 :]) / len(values[len(means) * 3 - 3 :]))


# --- the loss axis ---


def power_law(steps: int) -> list[float]:
    return [2.6 + 5 / (1 + n / 40) ** 0.6 for n in range(steps)]


def test_the_fall_of_the_first_steps_does_not_flatten_the_rest() -> None:
    """The axis went up to the loss of the untrained model, and the curve lay at the bottom of the picture."""
    losses = power_law(10_000)
    low, high = loss_limits([losses], [losses[-1]])
    assert losses[0] == pytest.approx(7.6)
    assert high < 3.5
    assert low < losses[-1] < low + 0.1 * (high - low)
    assert losses[2500] > (low + high) / 2 - 0.2 * (high - low), "the middle of the run is near the middle of the axis"


def test_a_short_run_is_shown_whole() -> None:
    losses = [6.8, 5.8, 5.4, 5.0, 4.7, 4.5, 4.4, 4.2, 4.1, 4.0]
    low, high = loss_limits([losses], [4.0])
    assert low < 4.0 < 6.8 < high


def test_one_jump_of_the_loss_does_not_set_the_axis() -> None:
    assert loss_limits([[*power_law(500), 300.0, *power_law(500)[400:]]], [])[1] < 8


def test_a_held_out_loss_that_rises_is_inside() -> None:
    """Overfitting is what the picture is looked at for: the last validation is always inside, and so is the best."""
    low, high = loss_limits([power_law(1000), [4.0, 3.3, 12.0]], [3.3, 12.0])
    assert low < 3.3 < 12.0 < high


def test_the_best_validation_is_inside_even_if_its_loss_is_not_the_least() -> None:
    """A seq2seq run is judged by its accuracy: the best one may come early, with a loss far above the others."""
    assert loss_limits([[1.0] * 50 + [9.0]], [1.0, 9.0])[1] > 9.0


def test_each_curve_has_limits_of_its_own() -> None:
    """A run with --init: the validations lay above the many losses of training, and most of them were cut off."""
    training, validations = [0.45 + 0.01 * (n % 3) for n in range(100)], [0.47, 0.49, 0.52, 0.5, 0.48]
    low, high = loss_limits([training, validations], [])
    assert low < 0.45 < 0.52 < high < 0.53


@pytest.mark.parametrize(
    ("losses", "shown", "floor", "limits"),
    [
        ([], [], None, (0.0, 1.0)),
        ([], [], 0.3, (0.0, 1.0)),
        ([3.0], [3.0], None, (2.9, 3.1)),
        ([3.0, 3.0], [], None, (2.9, 3.1)),
        ([0.0, 1.0], [], None, (0.0, 1.05)),
        ([2.0, 3.0], [], 1.5, (1.425, 3.075)),
        ([2.0, 3.0], [], 0.5, (1.95, 3.05)),
    ],
    ids=["nothing", "a floor alone", "a point", "all the same", "not below zero", "a near floor", "a far floor"],
)  # fmt: skip
def test_the_limits(losses: list[float], shown: list[float], floor: float | None, limits: tuple[float, float]) -> None:
    assert loss_limits([losses], shown, floor) == pytest.approx(limits)


def test_training_is_drawn_in_the_unit_of_the_validations(tmp_path: Path, shown: list[Any]) -> None:
    """The training loss of a BPE model stood in nats/token beside held-out nats/char, half as large, on one axis."""
    events = [step(n, 6.0) for n in range(1, 9)] + [held_out(8, 2.5, loss_per_token=5.0)]
    draw_loss(events, tmp_path / "loss.png")
    axes = shown[0].axes[0]
    assert axes.get_ylabel() == "loss (nats/char)"
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert list(lines["training, each batch"]) == list(lines["training, running mean"]) == [3.0] * 8


def test_the_legend_names_the_best_validation(tmp_path: Path, shown: list[Any]) -> None:
    """What is held out is drawn above all else."""
    events = [step(n, 6.0 / n) for n in range(1, 200)]
    events += [held_out(100, 1.25, floor=0.5), held_out(190, 2.0, best=False, floor=0.5)]
    draw_loss(events, tmp_path / "loss.png")
    names = [text.get_text() for text in shown[0].legends[0].get_texts()]
    assert names == ["training, each batch", "training, running mean", "validation",
                     "best validation: 1.250 at step 100", "floor of the text: 0.500"]  # fmt: skip
    top = max(shown[0].axes[0].lines, key=lambda line: line.get_zorder())
    assert list(top.get_xydata()[0]) == [100, 1.25]


def test_losses_that_are_no_numbers_are_left_out(tmp_path: Path, shown: list[Any]) -> None:
    """A loss that is not finite is null in metrics.jsonl, and NaN in an older one."""
    numbers = [step(1, 5.0), step(2, None), step(3, float("nan")), step(4, float("inf")), step(5, 4.0)]
    validations = [held_out(3, 4.5), held_out(4, float("nan")), {**held_out(5, 0.0), "figures": {"loss": None}}]
    draw_loss([*numbers, *validations], tmp_path / "loss.png")
    lines = {line.get_label(): line.get_xdata() for line in shown[0].axes[0].lines}
    assert list(lines["training, each batch"]) == [1, 5]
    assert list(lines["validation"]) == [3]


def test_the_mean_does_not_lag_behind_a_fall() -> None:
    """It followed a fall ten steps late: the training loss of a short run seemed higher than it was."""
    falling = [10.0 - n / 10 for n in range(100)]
    assert _smoothed(falling)[:90] == pytest.approx(falling[:90])


def test_a_character_without_a_font_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of Korean text had boxes, and matplotlib a warning for each."""
    monkeypatch.setattr(canvas, "_families", lambda: [canvas.FALLBACK])
    with (
        pytest.warns(UserWarning, match="Install a font with Hangul: fonts-nanum"),
        canvas.canvas(tmp_path / "a.png", 2.0, 1.0, dpi=50) as figure,
    ):
        figure.suptitle("그날")
    assert (tmp_path / "a.png").is_file()
