"""Entry point of the `constrint` command: registers the sub-commands and turns errors into exit codes.

Exit codes: 0 done, 1 infeasible or failed, 2 usage. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from constrint import __version__
from constrint.cli import explain, gpu, gpus, limits, occupancy, solve, verify
from constrint.errors import ConstrintError, UsageError

app = typer.Typer(
    name="constrint",
    help="Which kernel configurations fit a named GPU, which is best, and why - with no device present.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    solve.solve,
    explain.explain,
    verify.verify,
    limits.limits,
    gpus.gpus,
    gpu.gpu,
    occupancy.occupancy,
):
    app.command()(command)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"constrint {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which kernel configurations fit a named GPU, which is best, and why - with no device present."""


def main() -> None:
    """Run the command line; never ends in a traceback for an error that the project raises on purpose."""
    try:
        app()
    except ConstrintError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) went away; that is not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
