"""`jumok learn`: the chapters, the exercises and the ladder."""

from __future__ import annotations

import click

from jumok.cli.commands import Group
from jumok.cli.learn import chapter, exam, ladder, practice, use


class Course(Group):
    """A group whose first word may also be a chapter: `jumok learn 3` is `jumok learn chapter 3`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the command `chapter` where none is named."""
        return super().parse_args(
            ctx, args if args[:1] in ([name] for name in ctx.help_option_names) else self.full(args)
        )

    def full(self, args: list[str]) -> list[str]:
        """Return the arguments with `chapter` in front, unless they begin with a command."""
        return args if args and args[0] in self.commands else ["chapter", *args]


@click.group(
    cls=Course,
    short_help="Read the chapters, write the exercises, and train the ladder.",
)
def learn() -> None:
    """Learn Transformers: read the chapters, write the classes yourself, and train models with them.

    \b
    Examples:
      jumok learn
      jumok learn 3
      jumok learn practice
      jumok learn check practice/08_softmax.py
      jumok learn ladder novel.txt
      jumok learn slides 3
      jumok learn exam --students 30
    """


for command in (
    chapter.chapter, practice.practice, practice.check, practice.hint, practice.solution, ladder.ladder,
    use.use, chapter.script, chapter.slides, exam.exam,
):  # fmt: skip
    learn.add_command(command)
