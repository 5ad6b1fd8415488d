"""Ready-made functions that an exercise excludes because the reader writes them: found in the source, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from jumok.course.practice.checking import Wrong
from jumok.course.practice.course import Words

EXCLUDED: Mapping[str, frozenset[str]] = {  # exercise -> the names that its task excludes
    "softmax": frozenset({"softmax", "log_softmax", "Softmax"}),
    "layer_norm": frozenset({"LayerNorm", "layer_norm", "native_layer_norm"}),
    "dropout": frozenset({"Dropout", "dropout", "native_dropout"}),
    "embedding": frozenset({"Embedding", "embedding", "one_hot"}),
    "cross_entropy": frozenset({"cross_entropy", "CrossEntropyLoss", "log_softmax", "LogSoftmax", "logsumexp"}),
    "adamw": frozenset({"optim", "AdamW", "Adam"}),
    "muon": frozenset({"svd"}),
}


def require_own_code(slug: str, source: str) -> None:
    """Check that a file uses none of the functions that its exercise excludes.

    Raises:
        Wrong: it uses one.
    """
    for name, line in _used(ast.parse(source)):
        if name in EXCLUDED.get(slug, ()):
            raise Wrong(
                Words(
                    "결과는 맞지만, 과제에서 쓰지 말라고 한 {name} 구현을 {line}번째 줄에서 썼습니다. 그 계산을 직접 "
                    "작성하세요.",
                    "The result is right, but line {line} uses {name}, which the task excludes because it is what you "
                    "write here.",
                ),
                mistake="ready-made",
                name=name,
                line=line,
            )


def _used(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a file takes from modules and tensors, with their lines. What it defines itself is not among them.

    `F.softmax`, `scores.softmax` and `from torch import softmax` count; `softmax` and `self.dropout` alone do not.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.name, node.lineno
            yield from ((part, node.lineno) for part in (node.module or "").split("."))
