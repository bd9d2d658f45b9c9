"""Attacks on the package as programs: `python -m benchmarks.attacks.NAME --count N --seed S`.

Each draws cases by a seed, prints a summary line, and exits with 1 where it finds a fault. A few run in the suite.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Collection, Sequence
from typing import Any
from unittest import mock

from constrint.cli.app import main as command_line


def parser_of(description: str | None, count: int) -> argparse.ArgumentParser:
    """The parser of an attack: `--count`, with this default, and `--seed`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count, help="how many cases are drawn")
    parser.add_argument("--seed", type=int, default=1, help="the cases that are drawn")
    return parser


def asked_of(description: str | None, count: int, arguments: Sequence[str] | None = None) -> Any:
    """The values of `--count` and `--seed` on the command line of an attack that has no other options."""
    return parser_of(description, count).parse_args(arguments)


def resumed_of(description: str | None, count: int, arguments: Sequence[str] | None = None) -> Any:
    """As `asked_of`, and of `--first`: the number of the first case, so that a run that was stopped can go on."""
    parser = parser_of(description, count)
    parser.add_argument("--first", type=int, default=0, help="how many cases are drawn before, and not tried")
    return parser.parse_args(arguments)


def said(text: str) -> None:
    """Print at once, beside the summary: what was found, or how far an attack has come."""
    print(text, file=sys.stderr, flush=True)


def ended(finds: Collection[str], summary: str) -> int:
    """Print the finds and the summary of an attack, and return its exit code."""
    for find in finds:
        print(find)
    print(summary)
    return 1 if finds else 0


def called(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `constrint` in this process; 3 for a code that is no number.

    Any exception but the command's own end passes: it would be a traceback.
    """
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with mock.patch.object(sys, "argv", ["constrint", *arguments]):
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                command_line()
        except SystemExit as end:
            code = end.code or 0
    return code if isinstance(code, int) else 3, out.getvalue(), err.getvalue()
