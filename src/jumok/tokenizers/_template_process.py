"""The program that renders chat templates, run as a process of its own: a template is code that a stranger wrote.

Jinja's sandbox keeps a template from files and from Python. Limits of the operating system end one that computes
without end or fills the memory. This file imports nothing of jumok.

It reads a JSON object a line, {"template", "values", "time"}, from stdin, and writes {"text"} or {"error"} to stdout.
The functions and filters are those that `transformers` offers.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
import jinja2.parser
import jinja2.sandbox
import jinja2.utils

SECONDS = 2  # of the processor, for one text
MEMORY = 512 * 1024**2  # bytes, of the whole process
LONGEST_TEXT = 4_000_000  # characters


class Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what an assistant wrote, for training; it changes nothing in the text."""

    tags = {"generation"}  # noqa: RUF012  (as Jinja declares it)

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Return the body of the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class Dictionary:
    """`dict` without its attributes."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        """Return a dictionary."""
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Return a dictionary with the same value for each key."""
        return dict.fromkeys(*args)


class Namespace(jinja2.utils.Namespace):
    """`namespace` without names of Python's internals."""

    def __init__(*args: Any, **values: Any) -> None:  # a template may name an attribute `self`
        for name in dict(*args[1:], **values):
            _require_plain(name)
        jinja2.utils.Namespace.__init__(*args, **values)

    def __setitem__(self, name: str, value: Any) -> None:
        _require_plain(name)
        super().__setitem__(name, value)


def _require_plain(name: object) -> None:
    if str(name).startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no attribute {name!r}")


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=16)
def compiled(template: str) -> jinja2.Template:
    """Return a template, ready to render."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "dict": Dictionary(),
        "namespace": Namespace,
    }
    return environment.from_string(template)


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Return the text of a request, or why there is none."""
    time = datetime.fromisoformat(request["time"])
    try:
        values = {**request["values"], "strftime_now": lambda form: time.strftime(form)}
        text = compiled(request["template"]).render(values)
    except Exception as error:  # whatever a template does
        return {"error": str(error)[:500] or type(error).__name__}
    if len(text) > LONGEST_TEXT:
        return {"error": f"it makes {len(text):,} characters; at most {LONGEST_TEXT:,} are allowed"}
    return {"text": text}


def main() -> None:
    """Answer each line."""
    try:
        import resource
    except ImportError:  # Windows; the parent ends a process that takes too long
        resource = None  # type: ignore[assignment]
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print("ready", flush=True)
    for line in sys.stdin:
        if resource is not None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            _, most = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS + 1, most))
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
