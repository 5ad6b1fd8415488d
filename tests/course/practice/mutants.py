"""Changed solutions: in each one thing in the body of a function is changed as readers get it wrong."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

EXCHANGED = {"sum": "mean", "mean": "sum", "tril": "triu", "sin": "cos", "cos": "sin", "argmax": "argmin", "max": "min"}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq
}  # fmt: skip
MODULES = {"torch", "F", "nn", "math", "self"}
Change = Callable[[ast.AST], ast.AST | None]


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield what is changed, and the changed source. Loops with `while` stay as they are: they may not end."""
    tree = ast.parse(source)
    for node in _in_functions(tree):
        for what, change in _changes(node):
            memo: dict[int, ast.AST] = {}
            changed = copy.deepcopy(tree, memo)
            _Replaced(memo[id(node)], change).visit(changed)
            yield f"{what}: {ast.unparse(node)}", ast.unparse(ast.fix_missing_locations(changed))


def _in_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions and statements in functions that may be changed."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                loops = any(isinstance(inner, ast.While) for inner in ast.walk(statement))
                if not loops and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    yield from ast.walk(statement)


class _Replaced(ast.NodeTransformer):
    """Puts what a change makes of one node in its place."""

    def __init__(self, node: ast.AST, change: Change) -> None:
        self._node, self._change = node, change

    def visit(self, node: ast.AST) -> ast.AST | None:
        return self._change(node) if node is self._node else self.generic_visit(node)


def _with(name: str, value: Callable[[ast.AST], object]) -> Change:
    """Return a change of one attribute of a node."""

    def change(node: ast.AST) -> ast.AST:
        setattr(node, name, value(node))
        return node

    return change


def _part(name: str) -> Change:
    """Return a change that leaves one part of a node."""
    return lambda node: getattr(node, name)


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield the changes of a node, with names."""
    match node:
        case ast.BinOp(op=op):
            yield "left side only", _part("left")
            yield "right side only", _part("right")
            if type(op) in OPERATORS:
                yield "another operator", _with("op", lambda _: OPERATORS[type(op)]())
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            for other in {-1, -2, 0, 1} - {-number}:
                yield f"{other} in place", lambda _, other=other: ast.Constant(other)
        case ast.UnaryOp():
            yield "without the sign", _part("operand")
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield "another comparison", _with("ops", lambda _: [COMPARISONS[type(op)]()])
        case ast.Constant(value=bool(value)):
            yield "the opposite", lambda _: ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "one more", lambda _: ast.Constant(value + 1)
            yield "one less", lambda _: ast.Constant(value - 1)
        case ast.Call():
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[tuple[str, Change]]:
    """Yield the changes of a call: left out, another function, an argument less."""
    if isinstance(node.func, ast.Attribute):
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id in MODULES):
            yield "without the call", lambda call: call.func.value  # type: ignore[attr-defined]
        if node.func.attr in EXCHANGED:
            other = EXCHANGED[node.func.attr]
            yield (
                f"{other} in place",
                lambda call: ast.Call(ast.Attribute(call.func.value, other, ast.Load()), call.args, call.keywords),  # type: ignore[attr-defined]
            )
    if node.args:
        yield "the argument alone", lambda call: call.args[0]  # type: ignore[attr-defined]
    for place, keyword in enumerate(node.keywords):
        yield (
            f"without {keyword.arg}",
            _with("keywords", lambda call, place=place: [k for i, k in enumerate(call.keywords) if i != place]),  # type: ignore[attr-defined,misc]
        )
