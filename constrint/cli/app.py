"""Entry point of the `constrint` command: registers the sub-commands and turns errors into exit codes.

Exit codes: 0 done, 1 infeasible or failed, 2 usage. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.cli.asked.command import Command, Group, printable
from constrint.cli.asked.kernel_options import KernelCommand, asked_operation, size_mistake, wants_json, with_counts
from constrint.cli.completion import scripts, shell
from constrint.cli.running.signals import ENDED_BY
from constrint.errors import ConstrintError, InfeasibleError, UsageError

if TYPE_CHECKING:
    from constrint.select import Operation

#: Each is a function of its name, in the module named here. Only the module of the command that is called is imported.
COMMANDS = {
    "solve": "ranking.solve",
    "compare": "ranking.compare",
    "explain": "space.explain",
    "why": "why",
    "why-not": "space.why_not",
    "count": "space.count",
    "sample": "space.sample",
    "verify": "ranking.verify",
    "report": "report.command",
    "limits": "hardware.limits",
    "kernels": "ranking.kernels",
    "gpus": "hardware.gpus",
    "gpu": "hardware.gpu",
    "occupancy": "hardware.occupancy",
    "compile": "compile",
    "tune": "tune",
    "propose": "propose",
    "records": "records",
    "docs": "docs",
}
#: Columns of the help on a terminal that has as many.
MAX_HELP_WIDTH = 120
#: Options that take no sub-command.
COMPLETION = ("--install-completion", "--show-completion")
#: Options whose number may be left out, and the number that is meant then.
COUNTED = {"--compile": 10}
#: What the command line library raises for unknown options and the like; it has no stable public name.
_UsageMistake: type[Exception] = typer.BadParameter.__mro__[1]


def _print_version(value: bool) -> None:
    if value:
        from constrint.cli.version import version_text

        typer.echo(version_text())
        raise typer.Exit


def application(arguments: Sequence[str], *, is_whole: bool = True) -> tuple[typer.Typer, Operation | None]:
    """The command line for these arguments, and the kernel that they ask about.

    Args:
        arguments: What was typed.
        is_whole: Whether these are all; else somebody is still typing: no file of a kernel is loaded, and of commands
            only the names matter where none was typed yet.

    Raises:
        UsageError: When there is no such kernel.
    """
    app = typer.Typer(
        name="constrint",
        cls=Group,
        help=_options.__doc__,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_HELP_WIDTH},
    )
    app.callback()(_options)
    named = next((argument for argument in arguments if not argument.startswith("-")), "")
    operation = None
    is_told = bool(arguments) and arguments[0] in (*COMMANDS, *COMPLETION, "--version")
    for name in COMMANDS:
        if is_told and name != arguments[0]:
            continue
        if not is_told and not is_whole:
            app.command(name)(lambda: None)
            continue
        command = _command(name)
        if isinstance(command, KernelCommand):
            asked = asked_operation(arguments, may_load_files=is_whole) if name == named else None
            operation = operation or asked
            command, epilog = command.with_options_of(asked), _epilog(name, asked)
        else:
            epilog = None
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=Command, epilog=epilog)(command)
    return app, operation


def _epilog(name: str, operation: Operation | None) -> str | None:
    """What the help says below the options of a kernel's command: whose sizes these are."""
    if operation is None:
        return None
    sizes = ", ".join("--" + size.name.replace("_", "-") for size in operation.sizes)
    return (
        f"{sizes} are sizes of {operation.name}. Those of another kernel: constrint {name} --kernel NAME --help; "
        "constrint kernels lists all kernels with their sizes."
    )


def _command(name: str) -> Any:
    """The function of a sub-command; a `KernelCommand` where its options depend on the kernel, an app of several."""
    return getattr(import_module(f"constrint.cli.{COMMANDS[name]}"), name.replace("-", "_"))


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="[SHELL]",
            callback=scripts.install,
            is_eager=True,
            help="Install completion for this shell, or for bash, zsh, fish or powershell.",
        ),
    ] = None,
    show_completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="[SHELL]",
            callback=scripts.show,
            is_eager=True,
            help="Print the script that does it instead.",
        ),
    ] = None,
) -> None:
    """Which kernel configurations fit a named GPU, which is best, and why - with no device present."""


def main(before: Callable[[], object] | None = None) -> None:
    """Run the command line; never ends in a traceback for an error that the project raises on purpose.

    Args:
        before: Called once everything is imported, before the command itself runs.
    """
    if shell.ASKED in os.environ:
        sys.exit(shell.answer(lambda words: application(words, is_whole=False)[0]))
    arguments, operation = with_counts(sys.argv[1:], COUNTED), None
    if len(arguments) == 1 and arguments[0] in COMPLETION:
        arguments.append(scripts.THIS_SHELL)
    if arguments[:1] == ["why"]:
        from constrint.cli.why import SWITCHES, with_kernel_option  # loaded for this command alone

        arguments = with_counts(with_kernel_option(arguments), SWITCHES)
    try:
        app, operation = application(arguments)
        if before is not None:
            before()
        code = app(arguments, prog_name="constrint", standalone_mode=False)
        sys.stdout.flush()
    except _UsageMistake as mistake:
        _print_mistake(mistake, arguments, operation)
        sys.exit(2)
    except ConstrintError as error:
        if isinstance(error, InfeasibleError) and wants_json(arguments):
            _print_conflict(error)
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except MemoryError:
        print("error: there is not enough memory for this; narrow the problem or bound it by a rule.", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (BrokenPipeError, SystemExit) as ended:
        # The command line library turns a closed pipe into the exit.
        if not isinstance(ended, BrokenPipeError) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        # The reader (head, less) went away; that is not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if code in ENDED_BY:
        print(ENDED_BY[code], file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _print_conflict(error: InfeasibleError) -> None:
    """What has no solution, for a program: the document stands where the answer would."""
    from constrint.cli.asked.conflicts import infeasible_document
    from constrint.cli.output import print_json

    print_json(infeasible_document(error))


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
    if command == "constrint" and arguments and arguments[0] in COMMANDS:
        command = f"constrint {arguments[0]}"
    text = printable(" ".join(message.split()))
    print(f"error: {text.rstrip('.?')}. See `{command} --help`.", file=sys.stderr)


if __name__ == "__main__":
    main()
