"""How a sub-command reads its arguments: an option that says what is asked is given once, never silently twice."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperGroup

from constrint.errors import UsageError

#: A longer word of an argument is not repeated as a whole in a message.
MAX_WORD = 60
#: The options that say what is asked, beside sizes, whose parameters' names begin with `SIZE`.
ASKED = ("--gpu", "--kernel", "--dtype", "--problem", "--space")
SIZE = "size_"


class Command(TyperCommand):
    """A sub-command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments.

        Of an option that says how something is printed or searched the last value counts, so that an alias of a shell
        may have one. Two GPUs, kernels, dtypes, files or sizes look like two questions.

        Raises:
            UsageError: When such an option, which takes one value, is given twice.
        """
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            times = Counter(id(param) for param in order)
            for param in order:
                is_asked = param.opts[0] in ASKED or str(param.name).startswith(SIZE)
                if is_asked and times[id(param)] > 1 and not param.multiple:
                    raise UsageError(_twice(param.opts[0], str(ctx.info_name)))
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """The command with its sub-commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what each sub-command does, a whole sentence that goes on in the next line."""
        rows = [(name, _summary(command)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _summary(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _twice(option: str, command: str) -> str:
    if option == "--gpu":
        return (
            f"--gpu is given twice, and `constrint {command}` answers for one GPU. `constrint solve` ranks for each, "
            "and `constrint compare` sets them side by side."
        )
    return f"{option} is given twice; give it one value."


def printable(message: str) -> str:
    """A message with what was typed in it: no control characters, and no word longer than anybody reads."""
    text = "".join(ch if ch.isprintable() else "?" for ch in message)
    return re.sub(rf"\S{{{MAX_WORD},}}", lambda word: f"{word[0][: MAX_WORD - 3]}...", text)
