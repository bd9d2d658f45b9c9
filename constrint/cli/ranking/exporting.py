"""`constrint solve --export FORMAT`: what was found as a file for another tool."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from constrint.answers.question import Question
from constrint.cli.output import refuse_existing, write_file
from constrint.errors import UsageError
from constrint.export import export, format_named, list_formats
from constrint.select import Ranking


@dataclass(frozen=True)
class Wanted:
    """What the options of `solve` say of a file.

    Args:
        format: Name of the format.
        output: Where it is written; stdout if None.
        rename: Pairs `NAME=NEW`; with nothing behind the sign the parameter is left out.
        top: How many configurations; all if None.
    """

    format: str
    output: Path | None
    rename: Sequence[str]
    top: int | None

    @staticmethod
    def of(
        format: str | None, output: Path | None, rename: Sequence[str] | None, force: bool, top: int | None
    ) -> Wanted:
        """What the options say.

        Raises:
            UsageError: When there is no such format, it goes to a file that is there, or options lack their `--export`.
        """
        if format is None:
            option = "--output" if output is not None else "--rename" if rename else "--force"
            raise UsageError(f"{option} goes with --export FORMAT; formats are {', '.join(list_formats())}.")
        format_named(format)
        if output is not None and not force:
            refuse_existing(output)
        return Wanted(format, output, rename or (), top)


def write_export(question: Question, wanted: Wanted, backend: str, rank: Callable[[], Ranking]) -> None:
    """Write what was found: a ranking where the format takes one and not all is asked for, else a space.

    Args:
        question: What was asked.
        wanted: What is written, and where.
        backend: Who solves.
        rank: Ranks what was asked.

    Raises:
        UsageError: When the format cannot hold it.
        InfeasibleError: When nothing is valid.
    """
    renamed = dict(map(_pair, wanted.rename))
    is_ranked = bool(question.requests) and wanted.top is not None and "ranking" in format_named(wanted.format).takes
    if is_ranked and backend != "native":
        raise UsageError("a kernel's configs are ranked by the native back-end; --all takes another --backend.")
    if is_ranked:
        text = export(rank(), wanted.format, rename=renamed)
    else:
        if len(question.asked) > 1:
            names = ", ".join(asked.kernel for asked in question.asked)
            raise UsageError(f"{wanted.format} writes one space, and there are {names}: choose one with --kernel.")
        ((asked, space),) = question.spaces(backend)
        text = export(space, wanted.format, top=wanted.top, rename=renamed, about=asked.request, title=question.title)
    if wanted.output is None:
        sys.stdout.write(text)
        return
    write_file(wanted.output, [text])
    print(f"wrote {wanted.output}", file=sys.stderr)


def _pair(text: str) -> tuple[str, str]:
    name, sign, new = text.partition("=")
    if not sign or not name:
        raise UsageError(f"--rename takes NAME=NEW, such as tile_m=BLOCK_M, or NAME= to leave it out; got {text!r}.")
    return name.strip(), new.strip()
