"""Entry point of the `constrint` command: builds the command line, runs a sub-command, turns errors into exit codes.

Exit codes: 0 success, 1 infeasible or failed, 2 usage. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from constrint.answers.terminal import clean_streams, print_json
from constrint.cli import completion
from constrint.cli.options import (
    FILE_OPTIONS,
    SIZE,
    KernelCommand,
    named_operation,
    size_mistake,
    wants_json,
    with_counts,
)
from constrint.cli.settings import NAMES, UserSettings, apply_store, settings
from constrint.errors import ConstrintError, InfeasibleError, UsageError
from constrint.plugins import PluginWarning

if TYPE_CHECKING:
    from constrint.select import Operation

#: The sub-commands: each is a function of its name in the module of its name (`why-not`: `why_not`). Only the module of
#: the called command is imported.
COMMANDS = (
    "solve",
    "compare",
    "explain",
    "why",
    "why-not",
    "count",
    "sample",
    "verify",
    "report",
    "limits",
    "kernels",
    "gpus",
    "gpu",
    "occupancy",
    "banks",
    "compile",
    "prune",
    "tune",
    "propose",
    "evaluate",
    "records",
    "doctor",
    "docs",
)
#: Widest help text, in columns.
MAX_HELP_WIDTH = 120
#: Options that print a command's help.
HELP = {"--help", "-h"}
#: Options without a sub-command.
COMPLETION = ("--install-completion", "--show-completion")
#: Options whose number may be omitted, and the number that is used then.
COUNTED = {"--compile": 10}
#: Options that a command takes once, beside sizes: two GPUs, kernels, dtypes or files would be two questions.
GIVEN_ONCE = ("--gpu", "--kernel", "--dtype", "--problem", "--space")
#: Longest word of an argument that a message repeats whole.
MAX_WORD = 60
#: Optional packages whose versions `--version` prints.
OPTIONAL = ("torch", "triton", "ortools", "ray")
#: Base class of the command line library's errors for unknown options and the like; it has no stable public name.
_UsageMistake: type[Exception] = typer.BadParameter.__mro__[1]


def main(before: Callable[[], object] | None = None) -> None:
    """Run the command line. Errors that the project raises on purpose never end in a traceback.

    Args:
        before: Called after all imports, before the command itself runs.
    """
    usual = warnings.formatwarning

    def line(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        is_ours = issubclass(category, PluginWarning)
        return f"warning: {message}.\n" if is_ours else usual(message, category, *place, **more)

    warnings.formatwarning = line
    try:
        with clean_streams():
            _run(before)
    finally:
        warnings.formatwarning = usual


def _run(before: Callable[[], object] | None) -> None:
    """Run the command line on clean streams."""
    if completion.REQUEST in os.environ:
        sys.exit(completion.answer(lambda words: application(words, is_whole=False)[0]))
    arguments, operation = with_counts(sys.argv[1:], COUNTED), None
    if len(arguments) == 1 and arguments[0] in COMPLETION:
        arguments.append(completion.THIS_SHELL)
    try:
        called = _command(arguments[0]) if arguments and arguments[0] in COMMANDS else None
        if isinstance(called, KernelCommand):
            arguments[1:] = called.reads(arguments[1:])
        app, operation = application(arguments)
        if arguments and arguments[0] in COMMANDS and arguments[0] != "doctor" and not HELP & set(arguments):
            _SETTINGS.read()
        if before is not None:
            before()
        code = app(arguments, prog_name="constrint", standalone_mode=False)
        sys.stdout.flush()
    except _UsageMistake as mistake:
        _print_mistake(mistake, arguments, operation)
        sys.exit(2)
    except ConstrintError as error:
        if isinstance(error, InfeasibleError) and wants_json(arguments):
            from constrint.answers.explanation import infeasible_document  # a conflict is rare

            print_json(infeasible_document(error))
        text = str(error)
        for line in (line for word in arguments for line in word.split("\n")[1:]):
            text = text.replace(f"\n{line}", f"\\n{line}")  # a typed line is no line of the message
        print(f"error: {text}", file=sys.stderr)
        for line in _SETTINGS.notes():
            print(line, file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except MemoryError:
        print("error: there is not enough memory for this; narrow the problem or bound it by a rule.", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (BrokenPipeError, SystemExit) as ended:
        # The command line library turns a closed pipe into SystemExit.
        if not isinstance(ended, BrokenPipeError) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        # The reader (head, less) closed the pipe; that is no error of the command.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if isinstance(code, int) and code > 128:
        from constrint.cli.run import ENDED_BY  # imports the solver's limits

        if code in ENDED_BY:
            print(ENDED_BY[code], file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def application(arguments: Sequence[str], *, is_whole: bool = True) -> tuple[typer.Typer, Operation | None]:
    """Build the command line for these arguments.

    Args:
        arguments: The words behind `constrint`.
        is_whole: Whether these are all words. During completion they are not: no kernel file is loaded, and before the
            sub-command is typed only the names of the sub-commands exist.

    Returns:
        The application, and the kernel that the arguments name.

    Raises:
        UsageError: When the kernel is unknown.
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
    called = next((argument for argument in arguments if not argument.startswith("-")), "")
    operation = None
    is_known = bool(arguments) and arguments[0] in (*COMMANDS, *COMPLETION, "--version")
    for name in COMMANDS:
        if is_known and name != arguments[0]:
            continue
        if not is_known and not is_whole:
            app.command(name)(lambda: None)
            continue
        command, epilog = _command(name), None
        if isinstance(command, KernelCommand):
            named = named_operation(arguments, may_load_files=is_whole) if name == called else None
            operation = operation or named
            command, epilog = command.with_options_of(named), _epilog(name, named)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=Command, epilog=epilog)(command)
    return app, operation


def _command(name: str) -> Any:
    """The function of a sub-command, a `KernelCommand` if its options depend on the kernel, or a group of commands."""
    attribute = name.replace("-", "_")
    return getattr(import_module(f"constrint.cli.{attribute}"), attribute)


def _epilog(name: str, operation: Operation | None) -> str | None:
    """The last lines of a kernel command's help: whose sizes its options are."""
    if operation is None:
        return None
    sizes = ", ".join("--" + size.name.replace("_", "-") for size in operation.sizes)
    return (
        f"{sizes} are sizes of {operation.name}. Those of another kernel: constrint {name} --kernel NAME --help; "
        "constrint kernels lists all kernels with their sizes."
    )


@dataclass
class _Taken:
    """The user's settings in this process, and the words that stand for those that the command takes."""

    found: UserSettings = field(default_factory=UserSettings)
    words: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Read the settings, and name the store."""
        self.found, self.words = settings(), []
        apply_store(self.found)

    def notes(self) -> Iterator[str]:
        """One line for each setting that the command takes."""
        for option, value in zip(self.words[::2], self.words[1::2], strict=True):
            yield f"note: {option} {value} is set in {self.found.sources[option.removeprefix('--')]}."


_SETTINGS = _Taken()


class Command(TyperCommand):
    """A sub-command that refuses an option of `GIVEN_ONCE`, or a size, with two values, and takes the user's settings.

    Of other options the last value counts, so that a shell alias may set one.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            UsageError: When an option that is given once has two values.
        """
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            times = Counter(id(param) for param in order)
            for param in order:
                is_single = param.opts[0] in GIVEN_ONCE or str(param.name).startswith(SIZE)
                if is_single and times[id(param)] > 1 and not param.multiple:
                    raise UsageError(_twice(param.opts[0], str(ctx.info_name)))
            args = [*self._settings({param.opts[0] for param in order}), *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write examples, arguments and options."""
        from constrint.cli.help import write_help  # only help texts need it

        write_help(self, ctx, formatter)

    def _settings(self, typed: set[str]) -> list[str]:
        """The words of the user's settings for options that were not typed."""
        words: list[str] = []
        for param in self.params:
            name = param.opts[0].removeprefix("--")
            # A file is a question of its own, and `--json` a format.
            is_settled = typed & {*FILE_OPTIONS, param.opts[0]} or (name == "format" and "--json" in typed)
            if name in NAMES and not is_settled:
                words += _SETTINGS.found.words(name, may_repeat=bool(getattr(param, "multiple", False)))
        _SETTINGS.words += words
        return words


class Group(TyperGroup):
    """The `constrint` command with its sub-commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each sub-command's help, whole."""
        rows = [(name, " ".join((c.help or "").partition("\n\n")[0].split())) for name, c in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _twice(option: str, command: str) -> str:
    if option == "--gpu":
        return (
            f"--gpu is given twice, and `constrint {command}` answers for one GPU. `constrint solve` ranks for each, "
            "and `constrint compare` sets them side by side."
        )
    return f"{option} is given twice; give it one value."


def _print_version(value: bool) -> None:
    if value:
        typer.echo(version_text())
        raise typer.Exit


def version_text() -> str:
    """The version in the first line, then Python, the solver's core and optional packages."""
    from constrint import __version__
    from constrint.core import compiled

    slow = "numpy, which is slower: no compiled core of this version is here"
    system = f"{platform.system()} {platform.machine()}".strip()
    lines = [
        f"constrint {__version__}",
        f"python {platform.python_version()} ({platform.python_implementation()}, {system})",
        f"core: {'compiled' if compiled is not None else slow}",
    ]
    return "\n".join([*lines, *(f"{name} {_version(name)}" for name in OPTIONAL)])


def _version(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _only_if_given(act: Callable[[str], None]) -> Callable[[str | None], None]:
    """The callback of an option that acts and ends the program; the library calls it without a value, too."""

    def called(value: str | None) -> None:
        if value is not None:
            act(value)
            raise typer.Exit

    return called


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="[SHELL]",
            callback=_only_if_given(completion.install),
            is_eager=True,
            help="Install completion for this shell, or for bash, zsh, fish or powershell.",
        ),
    ] = None,
    show_completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="[SHELL]",
            callback=_only_if_given(completion.show),
            is_eager=True,
            help="Print the completion script instead.",
        ),
    ] = None,
) -> None:
    """Which kernel configurations fit a named GPU, which is best, and why - with no device present."""


def _print_mistake(mistake: Any, arguments: Sequence[str], operation: Operation | None) -> None:
    """Print one line for an unknown option or command or a missing argument; the help if there is no argument."""
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
    # The message may repeat typed words.
    text = re.sub(rf"\S{{{MAX_WORD},}}", lambda word: f"{word[0][: MAX_WORD - 3]}...", " ".join(message.split()))
    print(f"error: {text.rstrip('.?')}. See `{command} --help`.", file=sys.stderr)


if __name__ == "__main__":
    main()
