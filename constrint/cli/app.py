"""Entry point of the `constrint` command: registers the sub-commands and turns errors into exit codes.

Exit codes: 0 done, 1 infeasible or failed, 2 usage. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint import __version__
from constrint.cli import count, explain, gpu, gpus, limits, occupancy, sample, solve, verify, why_not
from constrint.cli.kernel_options import KernelCommand, asked_operation, size_mistake
from constrint.errors import ConstrintError, UsageError

if TYPE_CHECKING:
    from constrint.select import Operation

COMMANDS = (
    solve.solve,
    explain.explain,
    why_not.why_not,
    count.count,
    sample.sample,
    verify.verify,
    limits.limits,
    gpus.gpus,
    gpu.gpu,
    occupancy.occupancy,
)
#: What the command line library raises for unknown options and the like; it has no stable public name.
_UsageMistake: type[Exception] = typer.BadParameter.__mro__[1]


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"constrint {__version__}")
        raise typer.Exit


def application(arguments: Sequence[str]) -> tuple[typer.Typer, Operation | None]:
    """The command line for these arguments, and the kernel that they ask about.

    Raises:
        UsageError: When there is no such kernel.
    """
    app = typer.Typer(
        name="constrint",
        help=_options.__doc__,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    named = next((argument for argument in arguments if not argument.startswith("-")), "")
    asked = None
    for command in COMMANDS:
        if not isinstance(command, KernelCommand):
            app.command()(command)
            continue
        operation = None
        if command.name == named:
            operation = asked = asked_operation(arguments)
        app.command(command.name)(command.with_options_of(operation))
    return app, asked


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which kernel configurations fit a named GPU, which is best, and why - with no device present."""


def main() -> None:
    """Run the command line; never ends in a traceback for an error that the project raises on purpose."""
    arguments, operation = sys.argv[1:], None
    try:
        app, operation = application(arguments)
        code = app(arguments, prog_name="constrint", standalone_mode=False)
        sys.stdout.flush()
    except _UsageMistake as mistake:
        _print_mistake(mistake, arguments, operation)
        sys.exit(2)
    except ConstrintError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as ended:
        # The command line library turns a closed pipe into this.
        if isinstance(ended.__context__, BrokenPipeError):
            _end_quietly()
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _end_quietly() -> None:
    """The reader (head, less) went away; that is not an error of ours."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _print_mistake(mistake: Any, arguments: Sequence[str], operation: Operation | None) -> None:
    """Unknown options and commands, missing arguments: one line; no argument at all: the help."""
    message = " ".join(mistake.format_message().split())
    context = mistake.ctx
    if type(mistake).__name__ == "NoArgsIsHelpError":
        print(mistake.format_message(), file=sys.stderr)
        return
    option = getattr(mistake, "option_name", None) if type(mistake).__name__ == "NoSuchOption" else None
    is_about_kernel = context is not None and context.info_name in {
        c.name for c in COMMANDS if isinstance(c, KernelCommand)
    }
    if option and is_about_kernel and (wrong_size := size_mistake(arguments, option, operation)):
        print(f"error: {wrong_size}", file=sys.stderr)
        return
    command = context.command_path if context is not None else "constrint"
    print(f"error: {message.rstrip('.?')}. See `{command} --help`.", file=sys.stderr)


if __name__ == "__main__":
    main()
