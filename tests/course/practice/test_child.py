"""What the process of a check says about errors, earlier files and ready-made functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.course.practice.catalogue import exercise
from jumok.course.practice.child import judge
from jumok.course.words import LANGUAGES

NORMED = "(x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias"
SCORED = "q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])"

# exercise, what to replace in the solution, the excluded function
READY_MADE = [
    ("softmax", "e / e.sum(dim=-1, keepdim=True)", "torch.softmax(scores, dim=-1)"),
    ("softmax", "e / e.sum(dim=-1, keepdim=True)", "scores.softmax(-1)"),
    ("layer_norm", NORMED, "nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)"),
    ("embedding", "return table[ids]", "return torch.nn.functional.embedding(ids, table)"),
    (
        "cross_entropy",
        "return (log_sum - correct).mean()",
        "return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())",
    ),
    ("muon", "    x = matrix.T", "    matrix.svd()\n    x = matrix.T"),
]


@pytest.mark.parametrize(("slug", "old", "new"), READY_MADE)
def test_a_ready_made_function_is_refused(tmp_path: Path, slug: str, old: str, new: str) -> None:
    source = exercise(slug).solution("en")
    place = source.rindex(old)
    path = tmp_path / exercise(slug).file
    path.write_text(source[:place] + new + source[place + len(old) :], encoding="utf-8")
    verdict = judge(path, slug)
    assert verdict["faults"][0]["mistake"] == "ready-made", verdict
    line = 1 + source[:place].count("\n")
    assert f"line {line} " in verdict["faults"][0]["words"]["en"]


# exercise, mistake, what to replace in the solution, a part of the message
ERRORS = [
    ("query_key_value", "root-of-a-number", ("math.sqrt(q.shape[-1])", "torch.sqrt(q.shape[-1])"), "math.sqrt(...)"),
    (
        "gpt",
        "list-called",
        ("for block in self.blocks:\n            x = block(x)", "x = self.blocks(x)"),
        "only a list",
    ),
    ("kv_cache", "none-used", ("if cache else 0", "if True else 0"), "an argument that can be None"),
]


@pytest.mark.parametrize(("slug", "mistake", "change", "told"), ERRORS, ids=[one[1] for one in ERRORS])
def test_an_error_is_explained(judged, slug: str, mistake: str, change: tuple[str, str], told: str) -> None:
    verdict = judged(slug, change)
    assert (verdict["status"], verdict["faults"][0]["mistake"]) == ("wrong", mistake), verdict
    assert told in verdict["faults"][0]["words"]["en"]


def written(folder: Path, slug: str, *replacements: tuple[str, str]) -> Path:
    """Write the solution of an exercise with fragments replaced."""
    source = exercise(slug).solution("en")
    for old, new in replacements:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    path = folder / exercise(slug).file
    path.write_text(source, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_wrong_earlier_file_is_blamed_and_this_one_is_not(tmp_path: Path) -> None:
    """A broken 21_learned_positions.py was reported as a fault of a correct 24_gpt.py, which has no way to mend it."""
    written(tmp_path, "layer_norm")
    broken = written(tmp_path, "learned_positions", ("return x + ", "return 0.5 * x + "))
    path = written(tmp_path, "gpt")
    verdict = judge(path, "gpt")
    assert (verdict["status"], [fault["mistake"] for fault in verdict["faults"]]) == ("wrong", ["earlier-file"])
    words = verdict["faults"][0]["words"]
    for language in ("ko", "en"):
        assert f"`jumok learn check {broken.name}`" in words[language]
        assert "16_layer_norm.py" not in words[language]
    assert judge(broken, "learned_positions")["status"] == "wrong"


def test_two_wrong_earlier_files_are_both_named(tmp_path: Path) -> None:
    broken = [
        written(tmp_path, "layer_norm", ("x.mean(dim=-1", "x.mean(dim=-2")),
        written(tmp_path, "mlp", ("self.up_proj(x)", "self.up_proj(x * 2)")),
    ]
    verdict = judge(written(tmp_path, "block"), "block")
    assert [fault["mistake"] for fault in verdict["faults"]] == ["earlier-file"]
    assert all(path.name in verdict["faults"][0]["words"]["en"] for path in broken)


@pytest.mark.slow
def test_an_earlier_file_that_cannot_run_is_named(tmp_path: Path) -> None:
    broken = written(tmp_path, "learned_positions", ("class LearnedPositions", "1 / 0\n\n\nclass LearnedPositions"))
    verdict = judge(written(tmp_path, "gpt"), "gpt")
    assert [fault["mistake"] for fault in verdict["faults"]] == ["earlier-file"]
    assert broken.name in verdict["faults"][0]["words"]["en"]


def test_a_fault_of_this_file_is_not_laid_on_an_earlier_one(tmp_path: Path) -> None:
    written(tmp_path, "causal_mask")
    path = written(tmp_path, "head", (SCORED, f"{SCORED} * 1.3"))
    fault = judge(path, "head")["faults"][0]
    assert fault["mistake"] is None
    assert "11_causal_mask.py" not in fault["words"]["en"]
    written(tmp_path, "learned_positions")
    wrong = ("self.positions(self.token_embedding(ids))", "self.positions(ids[0, 0])")
    fault = judge(written(tmp_path, "gpt", wrong), "gpt")["faults"][0]
    assert "learned_positions" not in fault["words"]["en"]
    source = exercise("gpt").solution("en")
    assert fault["line"] == 1 + source[: source.index(wrong[0])].count("\n")


def test_all_wrong_functions_of_a_file_are_named(tmp_path: Path) -> None:
    """Only the first one was, so a reader mended one, checked, and met the next."""
    path = written(tmp_path, "shapes", ("x.transpose(-2, -1)", "x"), ("scores.sum(dim=-1)", "scores.sum(dim=1)"))
    verdict = judge(path, "shapes")
    assert verdict["status"] == "wrong"
    assert [fault["words"]["en"].partition(":")[0] for fault in verdict["faults"]] == ["swap", "sum_keys"]
    assert [fault["mistake"] for fault in verdict["faults"]] == [None, "wrong-dim"]
    assert len(verdict["right"]) == 2
    hole = ("return x.transpose(-2, -1)", "raise NotImplementedError")
    wrong = judge(written(tmp_path, "shapes", hole, ("scores.sum(dim=-1)", "scores.sum(dim=1)")), "shapes")
    assert (wrong["status"], [fault["mistake"] for fault in wrong["faults"]]) == ("wrong", ["not-written", "wrong-dim"])
    left = judge(written(tmp_path, "shapes", hole), "shapes")
    assert (left["status"], len(left["right"])) == ("open", 3)


def test_the_template_shows_how_earlier_parts_are_called() -> None:
    template = exercise("block").template("en")
    for line in (
        "# MultiHeadAttention(d_in: int, d_out: int, n_head: int, qkv_bias: bool=False, dropout: float=0.0)",
        "#     forward(x: Tensor, causal: bool=True) -> Tensor",
        "# Dropout(p: float)",
    ):
        assert f"{line}\n" in template
    assert "# softmax(scores: Tensor) -> Tensor\nsoftmax = mine" in exercise("dot_product_attention").template("en")


def test_the_file_says_where_to_read_and_how_to_check() -> None:
    for language in LANGUAGES:
        head = exercise("head").template(language).splitlines()[0]
        assert all(f"jumok learn {verb}" in head for verb in ("5", "check 12", "hint 12"))


def test_a_file_that_cannot_be_read_is_explained_once(tmp_path: Path) -> None:
    """The checks of its functions ran all the same, and told of an error of their own."""
    path = tmp_path / exercise("averaging_matrix").file
    for content in ("", exercise("averaging_matrix").solution("en") + "\nx = (\n"):
        path.write_text(content, encoding="utf-8")
        verdict = judge(path, "averaging_matrix")
        assert [fault["mistake"] for fault in verdict["faults"]] == ["empty-file" if not content else "syntax"]


@pytest.mark.slow
def test_a_wrong_file_that_another_one_uses_is_blamed_alone(tmp_path: Path) -> None:
    """With jumok's solution in the place of what uses it, it was not reached, and all files were named."""
    written(tmp_path, "block")
    broken = written(tmp_path, "mlp", ("self.up_proj(x)", "self.up_proj(x * 2)"))
    verdict = judge(written(tmp_path, "gpt"), "gpt")
    assert [fault["mistake"] for fault in verdict["faults"]] == ["earlier-file"]
    words = verdict["faults"][0]["words"]["en"]
    assert broken.name in words
    assert exercise("block").file not in words
