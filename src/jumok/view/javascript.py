"""Comments of JavaScript, told from what only looks like one in a string, a template or a regular expression."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      (?P<comment>  //[^\n]* | /\*.*?\*/ )
    | (?P<string>   "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<code>     [^"'`/{}]+ )
    | (?P<sign>     . )
    """,
    re.VERBOSE | re.DOTALL,
)
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(?:`|\$\{)", re.DOTALL)  # to its end or to its next expression
_EXPRESSION = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/")  # a regular expression
_STATEMENT = re.compile(r"^(?:import|export)\b", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[ \t]*\n")
_INDENT = re.compile(r"\n\s+")
# A slash behind a value divides. Behind another sign, or one of these words, it begins a regular expression.
_VALUE = re.compile(r"(?:(?P<word>[\w$]+)|[)\]}\"'`/])\s*$")
_BEFORE_A_VALUE = {"await", "case", "delete", "do", "else", "in", "of", "return", "throw", "typeof", "void", "yield"}


def without_comments(source: str) -> str:
    """The source of a module without comments, indentation and empty lines.

    Raises:
        ValueError: a string, a template or a comment does not end; a slash may begin a regular expression or divide;
            or a line of a template begins with import or export, which `jumok.view.bundle` takes for a statement.
    """
    kept = ["\n"]
    braces: list[str] = []  # those that are open: "${" of a template, or "{"
    last = ""  # the last token that is neither space nor comment
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        assert match
        token = match[0]
        if match.lastgroup == "comment":
            at = _leave_out(source, match, kept)
            continue
        if token == "`" or (token == "}" and braces and braces.pop() == "${"):
            token += _found(_TEMPLATE, source, match.end())
            if _STATEMENT.search(token):
                raise ValueError(f"a line of a template begins like a statement: {token!r}")
            if token.endswith("${"):
                braces.append("${")
        elif token == "{":
            braces.append(token)
        elif token == "/" and not _divides(source, at, last):
            token = _found(_EXPRESSION, source, at)
        elif token in ('"', "'"):
            raise ValueError(f"this does not end: {source[at : at + 40]!r}")
        at += len(token)
        if match.lastgroup == "code":
            token = _INDENT.sub("\n", token)
        if token.isspace():
            kept[-1] += token
        else:
            kept.append(token)
            last = token
    return "".join(kept)[1:]


def _divides(source: str, at: int, last: str) -> bool:
    """Whether the slash there divides what stands before it."""
    value = _VALUE.search(last)
    divides = value is not None and value["word"] not in _BEFORE_A_VALUE
    if divides and last.rstrip()[-1] in ")}" and source[at + 1] not in " =\n":
        raise ValueError(f"write spaces around a division, parentheses around an expression: {source[at : at + 40]!r}")
    if source.startswith("/*", at):
        raise ValueError(f"this does not end: {source[at : at + 40]!r}")
    return divides


def _found(pattern: re.Pattern[str], source: str, at: int) -> str:
    match = pattern.match(source, at)
    if match is None:
        raise ValueError(f"this does not end: {source[at : at + 40]!r}")
    return match[0]


def _leave_out(source: str, comment: re.Match[str], kept: list[str]) -> int:
    """Put what stands in the place of a comment, and say where the source goes on."""
    before = kept[-1].rstrip(" \t")
    rest = _REST_OF_LINE.match(source, comment.end())
    if rest and before.endswith("\n"):
        kept[-1] = before
        return rest.end()
    # A comment of several lines ends a statement as a line does.
    kept[-1] += "\n" if "\n" in comment[0] else " " if comment[0].startswith("/*") else ""
    return comment.end()
