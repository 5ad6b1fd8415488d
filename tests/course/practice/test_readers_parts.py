"""`jumok learn use`: the reader's parts in the production GPT, and the comparison."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest
import torch

from jumok.cli.console.comparison import ComparisonView, explain
from jumok.config import GPTConfig
from jumok.course.practice.comparison import Comparison, Trained, sees_future
from jumok.course.practice.readers_parts import build_with, read_part
from jumok.errors import LessonError
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.runs.events import Finish, Notice, Step
from jumok.text import material_of

CONFIG = GPTConfig(family="classic", vocab_size=50, n_layer=2, n_head=2, n_embd=16, context_length=128)
BEGINNING = "import torch\nfrom torch import nn\n"

HEAD = """
class Head(nn.Module):
    def __init__(self, n_embd, head_size, block_size):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(n_embd, head_size, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        T = x.shape[1]
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * self.key.out_features**-0.5
        scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return scores.softmax(-1) @ self.value(x)
"""
FUNCTION = """
def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v
"""
WHOLE = """
class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_embd):
        super().__init__()
        self.tokens, self.out = nn.Embedding(vocab_size, n_embd), nn.Linear(n_embd, vocab_size)

    def forward(self, ids, targets=None):
        return self.out(self.tokens(ids)), None
"""
NO_MASK = HEAD.replace('        scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))\n', "")


def written(tmp_path: Path, code: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(BEGINNING + textwrap.dedent(code), encoding="utf-8")
    return path


def built(path: Path) -> GPT:
    return build_with(read_part(path), CONFIG).eval()


@pytest.mark.parametrize(("code", "name"), [(HEAD, "Head"), (FUNCTION, "attention"), (WHOLE, "GPT")])
def test_a_part_takes_its_place(tmp_path: Path, code: str, name: str) -> None:
    path = written(tmp_path, code)
    assert read_part(path).name == name
    model = built(path)
    ids = torch.randint(50, (2, 9))
    assert model(ids).shape == (2, 9, 50)
    assert not sees_future(model)


def test_a_function_at_the_seam_computes_what_the_production_model_computes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    production = build(CONFIG).eval()
    own = built(written(tmp_path, FUNCTION))
    own.load_state_dict(production.state_dict())
    ids = torch.randint(50, (2, 20))
    torch.testing.assert_close(own(ids), production(ids))


def test_a_head_without_a_mask_sees_the_future(tmp_path: Path) -> None:
    assert sees_future(built(written(tmp_path, NO_MASK)))


def test_the_largest_part_of_a_file_counts(tmp_path: Path) -> None:
    assert read_part(written(tmp_path, HEAD + WHOLE)).name == "GPT"


WRONG = {
    "no part": ("x = 1", "holds no part of a GPT"),
    "syntax": ("def f(:", "cannot read this line (mine.py:3)"),
    "raises": (HEAD.replace("T = x.shape[1]", "T = x.shape[7]"), "line 11: The code raised an error: IndexError"),
    "unknown argument": (HEAD.replace("head_size, block_size", "zzz, block_size"), "the argument 'zzz'"),
    "wrong shape": (WHOLE.replace("self.out(self.tokens(ids))", "self.tokens(ids)"), "of the shape (1, 4, 50)"),
    "device": (
        HEAD.replace("T = x.shape[1]", "raise RuntimeError('Expected all tensors to be on the same device')"),
        "Two tensors are on different devices",
    ),
    "no super": (HEAD.replace("        super().__init__()\n", ""), "line 6: super().__init__() must be the first line"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_file_and_the_line(tmp_path: Path, case: str) -> None:
    code, message = WRONG[case]
    path = written(tmp_path, code)
    with pytest.raises(LessonError) as error:
        built(path)(torch.zeros(1, 4, dtype=torch.long))
    assert message in str(error.value)
    assert "mine.py" in str(error.value)


@pytest.mark.long
@pytest.mark.parametrize(("code", "future"), [(HEAD, False), (NO_MASK, True), (WHOLE, False)])
def test_both_models_train_for_as_many_steps(tmp_path: Path, code: str, future: bool) -> None:
    text = material_of("그날 밤 나는 집을 나섰다. 비가 왔다.\n" * 200, ())
    comparison = Comparison(read_part(written(tmp_path, code)), text, minutes=None, steps=3, device="cpu")
    names = [which for which, _ in comparison.run()]
    assert comparison.yours is not None
    assert comparison.jumok is not None
    assert comparison.yours.steps == comparison.jumok.steps == 3
    assert names == sorted(names, reverse=True)  # first yours, then jumok's
    assert comparison.yours.sees_future is future
    told = explain(comparison)
    assert ("sees the future" in told) is future
    assert ("It is too early to compare them" in told) is not future
    assert comparison.yours.curve[0] == comparison.jumok.curve[0] == [1, 2, 3]  # both are validated at the same steps
    assert comparison.yours.nats_per_char == comparison.yours.curve[1][-1]
    assert comparison.jumok.sample


@pytest.mark.long
def test_the_second_model_stops_when_the_minutes_of_both_are_over(tmp_path: Path) -> None:
    """The reader's model took 43 s, and that of jumok 553 s for as many steps, with --minutes 0.7."""
    text = material_of("그날 밤 나는 집을 나섰다. 비가 왔다.\n" * 200, ())
    comparison = Comparison(
        read_part(written(tmp_path, HEAD)), text, minutes=0.001, began=time.monotonic() - 60, device="cpu"
    )
    list(comparison.run())
    yours, other = comparison.yours, comparison.jumok
    assert yours is not None
    assert other is not None
    assert (other.steps, comparison.compared_step) == (1, 1)
    assert yours.nats_per_char == yours.curve[1][0]
    told = explain(comparison)
    assert "After 1 steps" in told


def test_other_parameters_are_explained(tmp_path: Path) -> None:
    comparison = Comparison(read_part(written(tmp_path, HEAD)), material_of("가나다라 " * 300, ()), steps=1)
    comparison.yours, comparison.jumok = trained(2.1, parameters=12), trained(2.0)
    assert "12 parameters, and that of jumok 9: your Head has other layers" in explain(comparison)
    comparison.yours = trained(2.1)
    assert "parameters" not in explain(comparison)


def test_biases_that_the_exercise_leaves_out_are_expected(tmp_path: Path) -> None:
    """A right exercise 12, without biases as asked, was told that its parameters differ, and not that they should."""
    comparison = Comparison(read_part(written(tmp_path, HEAD)), material_of("가나다라 " * 300, ()), steps=1)
    comparison.yours, comparison.jumok = trained(2.1, parameters=919_168), trained(2.0, parameters=920_704)
    told = explain(comparison)
    assert "919,168 parameters, and that of jumok 920,704. This is expected" in told
    assert "other layers" not in told


def trained(nats: float, *, parameters: int = 9, sees_future: bool = False) -> Trained:
    curve = ([1, 9], [6.0, nats])
    return Trained(
        parameters=parameters,
        steps=9,
        seconds=1,
        nats_per_char=nats,
        bigram=3.0,
        curve=curve,
        sample="",
        sees_future=sees_future,
    )


@pytest.mark.parametrize(
    ("yours", "jumok", "told"),
    [
        (trained(1.0, sees_future=True), trained(2.0), "Your model sees the future"),
        (trained(1.5), trained(2.0), "0.50 nats below that of jumok, although it does not see the future"),
        (trained(2.5), trained(2.0), "0.50 nats above that of jumok"),
        (trained(2.1), trained(2.0), "Your Head learns as that of jumok does: after 9 steps the losses differ by 0.10"),
        (trained(3.1), trained(3.2), "still above that of a bigram table (3.000)"),
    ],
)
def test_the_figures_are_explained(tmp_path: Path, yours: Trained, jumok: Trained, told: str) -> None:
    comparison = Comparison(
        read_part(written(tmp_path, HEAD)), material_of("가나다라 " * 300, ()), steps=1, minutes=None
    )
    comparison.yours, comparison.jumok = yours, jumok
    assert told in explain(comparison)


def test_a_short_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=r"5 characters; this model needs at least 1,280"):
        Comparison(read_part(written(tmp_path, HEAD)), material_of("짧은 글\n", ()))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "during the first", "after the first"])
def test_a_stop_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Whenever it is asked for: no second training, and no folder is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    text = material_of("그날 밤 나는 집을 나섰다. 비가 왔다.\n" * 200, ())
    comparison = Comparison(read_part(written(tmp_path, HEAD)), text, minutes=None, steps=2, device="cpu")
    if when == "before":
        comparison.request_stop()
    names = []
    for which, event in comparison.run():
        names.append(which)
        if isinstance(event, Step if when == "during the first" else Finish):
            comparison.request_stop()
    assert "jumok" not in names
    assert comparison.jumok is None
    assert list((tmp_path / "temporary").iterdir()) == []


def test_advice_on_settings_that_use_does_not_have_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with ComparisonView() as view:
        view.show("yours", Notice(step=0, text="Use a smaller --size."))
        view.show("yours", Notice(step=3, text="A step takes 2 s."))
    said = capsys.readouterr().err
    assert "--size" not in said
    assert "A step takes 2 s." in said
