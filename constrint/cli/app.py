"""Entry point of the `constrint` command: registers the sub-commands and turns errors into exit codes.

Exit codes: 0 done, 1 infeasible or failed, 2 usage. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint import __version__
from constrint.cli.kernel_options import KernelCommand, asked_operation, size_mistake, with_counts
from constrint.errors import ConstrintError, UsageError

if TYPE_CHECKING:
    from constrint.select import Operation

#: Each is a function in a file of its own. Only the file of the command that is called is imported.
COMMANDS = (
    *(
        "solve",
        "explain",
        "why-not",
        "count",
        "sample",
        "verify",
        "limits",
        "gpus",
        "gpu",
        "occupancy",
        "tune",
        "records",
    ),
)
#: Options whose number may be left out, and the number that is meant then.
COUNTED = {"--compile": 10}
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
    operation = None
    is_told = bool(arguments) and arguments[0] in (*COMMANDS, "--version")
    for name in COMMANDS:
        if is_told and name != arguments[0]:
            continue
        command = _command(name)
        if isinstance(command, KernelCommand):
            asked = asked_operation(arguments) if name == named else None
            operation = operation or asked
            command = command.with_options_of(asked)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app, operation


def _command(name: str) -> Any:
    """The function of a sub-command; a `KernelCommand` where its options depend on the kernel, an app of several."""
    name = name.replace("-", "_")
    return getattr(import_module(f"constrint.cli.{name}"), name)


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which kernel configurations fit a named GPU, which is best, and why - with no device present."""


def main() -> None:
    """Run the command line; never ends in a traceback for an error that the project raises on purpose."""
    arguments, operation = with_counts(sys.argv[1:], COUNTED), None
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
    except (BrokenPipeError, SystemExit) as ended:
        # The command line library turns a closed pipe into the exit.
        if not isinstance(ended, BrokenPipeError) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        # The reader (head, less) went away; that is not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _print_mistake(mistake: Any, arguments: Sequence[str], operation: Operation | None) -> None:
    """Unknown options and commands, missing arguments: one line; no argument at all: the help."""
    message, context = mistake.format_message(), mistake.ctx
    if type(mistake).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return
    is_unknown = type(mistake).__name__ == "NoSuchOption" and context is not None and context.info_name in COMMANDS
    if is_unknown and isinstance(_command(context.info_name), KernelCommand):
        wrong_size = size_mistake(arguments, mistake.option_name, operation)
        if wrong_size:
            print(f"error: {wrong_size}", file=sys.stderr)
            return
    command = context.command_path if context is not None else "constrint"
    print(f"error: {' '.join(message.split()).rstrip('.?')}. See `{command} --help`.", file=sys.stderr)


if __name__ == "__main__":
    main()
