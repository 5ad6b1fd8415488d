"""Commands and their options: help under headings, examples with their line breaks, and the common options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from jumok.cli.console.help import Help
from jumok.corpora import hub
from jumok.errors import ConfigError
from jumok.files import on_disk
from jumok.messages import tr

Command = Callable[..., None]
ALL = "jumok.help_all"  # key of a context whose help shows all options
BRIEF_PARAGRAPHS, BRIEF_EXAMPLES = 2, 4  # of a command that has --help-all, in --help


class _FilePath(click.Path):
    """The name of a file or a folder, as the disk spells it.

    An empty one, as of an unset variable of a shell, would be the current folder.
    """

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(tr("it is empty; name a file or a folder"), parameter, ctx)
        return super().convert(on_disk(value), parameter, ctx)


PATH = _FilePath(path_type=Path)
FOLDER_PATH = _FilePath(path_type=Path, file_okay=False)


class _Context(click.Context):
    formatter_class = Help


class Group(click.Group):
    """A group of commands, with help in the current language."""

    context_class = _Context


class Verb(click.Command):
    """A command that lists its options under headings and keeps the line breaks of its examples."""

    context_class = _Context

    def __init__(self, *args: Any, examples: str = "", brief: Sequence[str] = (), **kwargs: Any) -> None:
        """brief: the parameters that --help shows; the others stand in --help-all. None: it shows all of them."""
        super().__init__(*args, **kwargs)
        self.examples, self.brief = examples, brief
        if brief:
            self.params.append(
                _SectionedOption(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all_help,
                    help="show all options, by task",
                )
            )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; with --quiet, downloads of models show nothing either."""
        before = hub.quiet.set(bool(ctx.params.get("quiet")))
        try:
            return super().invoke(ctx)
        finally:
            hub.quiet.reset(before)

    def is_brief(self, ctx: click.Context) -> bool:
        """Return whether the help is that of --help, of a command that has --help-all."""
        return bool(self.brief) and ALL not in ctx.meta

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does; the brief help has the first two paragraphs."""
        text = inspect.cleandoc(self.help or "")
        text = tr(text)  # as a whole, and then in parts
        shown = "\n\n".join(text.split("\n\n")[:BRIEF_PARAGRAPHS]) if self.is_brief(ctx) else text
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(shown)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each option under its heading. Arguments are explained in the text above."""
        sections: dict[str, list[tuple[str, str]]] = {}
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        brief = self.is_brief(ctx)
        if brief:  # in the order of `brief`; --help itself is last
            known = {one.name: one for one in options}
            options = [*(known[name] for name in self.brief), options[-1]]
        for one in options:
            if record := one.get_help_record(ctx):
                heading = "Options" if brief else getattr(one, "section", "Options")
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are."""
        if self.examples:
            with formatter.section("Examples"):
                lines = self.examples.strip().splitlines()
                for line in lines[:BRIEF_EXAMPLES] if self.is_brief(ctx) else lines:
                    formatter.write(f"  {line.strip()}\n")


def _show_all_help(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class _SectionedOption(click.Option):
    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def option(*names: str, section: str = "Options", **settings: Any) -> Callable[[Command], Command]:
    """Add a click option under a heading."""
    return click.option(*names, cls=_SectionedOption, section=section, **settings)


def require_options(run: Path, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise ConfigError for a given option that does not apply to the task of the model in `run`."""
    if strange := [name for name in given if name not in known]:
        option, *options = (name.replace("_", "-") for name in (strange[0], *known))
        raise ConfigError(
            "--{option} does not apply to the model in {run}; its options are --{options}.",
            option=option,
            run=run,
            options=", --".join(options),
        )


def reading(section: str = "Options") -> Callable[[Command], Command]:
    """Add the options for reading a text, `jumok.cli.material.READING`."""

    def add(function: Command) -> Command:
        help_text = "column of tables (.csv, .tsv, .json, .jsonl, .parquet) [text]"
        function = option("--column", section=section, help=help_text)(function)
        return option("--encoding", section=section, help="encoding of the text files [detected]")(function)

    return add


def common(*, device: bool = True, seed: bool = False) -> Callable[[Command], Command]:
    """Add the options that most verbs have."""

    def add(function: Command) -> Command:
        function = option("--quiet", is_flag=True, section="Common", help="show no progress and no notices")(function)
        function = option(
            "--json", "as_json", is_flag=True, section="Common", help="print a JSON object as the last line of stdout"
        )(function)
        if seed:
            function = option("--seed", type=int, section="Common", help="seed of all random choices")(function)
        if device:
            function = option(
                "--device", default="auto", section="Common", help="auto (the fastest), cpu, cuda or mps [auto]"
            )(function)
        return function

    return add
