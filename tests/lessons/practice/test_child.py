"""What the process of a check says about errors, earlier files and ready-made functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.lessons.practice.child import judge
from jumok.lessons.practice.course import exercise

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
    source = exercise(slug).solution
    place = source.rindex(old)
    path = tmp_path / exercise(slug).file
    path.write_text(source[:place] + new + source[place + len(old) :], encoding="utf-8")
    verdict = judge(path, slug)
    assert verdict["mistake"] == "ready-made", verdict
    line = 1 + source[:place].count("\n")
    assert f"line {line} " in verdict["wrong"]["en"]


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
    assert (verdict["status"], verdict["mistake"]) == ("wrong", mistake), verdict
    assert told in verdict["wrong"]["en"]


def test_an_error_in_an_earlier_file_is_named(tmp_path: Path) -> None:
    """With its line, and without the files that have nothing to do with it."""
    for slug in ("layer_norm", "learned_positions"):
        (tmp_path / exercise(slug).file).write_text(exercise(slug).solution, encoding="utf-8")
    path = tmp_path / exercise("gpt").file
    path.write_text(
        exercise("gpt").solution.replace("self.positions(self.token_embedding(ids))", "self.positions(ids[0, 0])"),
        encoding="utf-8",
    )
    said = judge(path, "gpt")["wrong"]["en"]
    assert "The error arose in line" in said
    assert "20_learned_positions.py" in said
    assert "15_layer_norm.py" not in said


def test_an_earlier_file_is_named_where_no_mistake_is_known(tmp_path: Path) -> None:
    (tmp_path / "07_causal_mask.py").write_text(exercise("causal_mask").solution, encoding="utf-8")
    path = tmp_path / exercise("head").file
    solution = exercise("head").solution
    assert SCORED in solution
    path.write_text(solution.replace(SCORED, f"{SCORED} + x.sum()"), encoding="utf-8")
    first = judge(path, "head")
    assert first["status"] == "right", first  # a shift does not change a softmax
    path.write_text(solution.replace(SCORED, f"{SCORED} * 1.3"), encoding="utf-8")
    verdict = judge(path, "head")
    assert verdict["mistake"] is None
    assert "The code also uses 07_causal_mask.py. The fault may be there." in verdict["wrong"]["en"]


def test_the_file_says_where_to_read_and_how_to_check() -> None:
    head = exercise("head").template.splitlines()[:2]
    assert [all(f"jumok learn {verb}" in line for verb in ("4", "check 8", "hint 8")) for line in head] == [True, True]
