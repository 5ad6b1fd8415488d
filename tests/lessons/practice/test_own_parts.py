"""`jumok learn use`: the reader's parts in the production GPT, and the comparison."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from jumok.config import GPTConfig
from jumok.errors import LessonError
from jumok.lessons.practice.comparison import Comparison, sees_future
from jumok.lessons.practice.own_parts import production_with, read_part
from jumok.models import MODELS, build
from jumok.models.gpt import GPT
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
    with production_with(read_part(path)):
        model = build(CONFIG)
    assert isinstance(model, GPT)
    return model.eval()


@pytest.mark.parametrize(("code", "name"), [(HEAD, "Head"), (FUNCTION, "attention"), (WHOLE, "GPT")])
def test_a_part_takes_its_place(tmp_path: Path, code: str, name: str) -> None:
    path = written(tmp_path, code)
    assert read_part(path).name == name
    model = built(path)
    ids = torch.randint(50, (2, 9))
    assert model(ids).shape == (2, 9, 50)
    assert not sees_future(model)
    assert MODELS[GPTConfig] is GPT  # afterwards the production model is built again


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
    "syntax": ("def f(:", "line 3: SyntaxError"),
    "raises": (HEAD.replace("T = x.shape[1]", "T = x.shape[7]"), "line 11: IndexError"),
    "unknown argument": (HEAD.replace("head_size, block_size", "zzz, block_size"), "the argument 'zzz'"),
    "wrong shape": (WHOLE.replace("self.out(self.tokens(ids))", "self.tokens(ids)"), "of the shape (1, 4, 50)"),
    "no super": (HEAD.replace("        super().__init__()\n", ""), "line 6: AttributeError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_file_and_the_line(tmp_path: Path, case: str) -> None:
    code, message = WRONG[case]
    path = written(tmp_path, code)
    with pytest.raises(LessonError) as error:
        built(path)(torch.zeros(1, 4, dtype=torch.long))
    assert message in str(error.value)
    assert "mine.py" in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "future"), [(HEAD, False), (NO_MASK, True), (WHOLE, False)])
def test_both_models_train_for_as_many_steps(tmp_path: Path, code: str, future: bool) -> None:
    text = material_of("그날 밤 나는 집을 나섰다. 비가 왔다.\n" * 200, ())
    comparison = Comparison(read_part(written(tmp_path, code)), text, minutes=None, steps=3, device="cpu")
    names = [which for which, _ in comparison.run()]
    assert comparison.yours is not None
    assert comparison.jumok is not None
    assert comparison.yours.steps == comparison.jumok.steps == 3
    assert names == sorted(names, reverse=True)  # first yours, then jumok's
    assert comparison.yours.sees_future is comparison.too_good is future
    assert len(comparison.yours.curve[0]) == len(comparison.jumok.curve[0]) >= 2
    assert comparison.jumok.sample
