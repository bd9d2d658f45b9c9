"""`--install-completion` and `--show-completion`: the command line library's scripts for a named or detected shell."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from constrint.cli.completion.shell import ASKED
from constrint.errors import UnknownNameError, UsageError

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
#: Stands for the shell that the command was called from.
THIS_SHELL = "this"


def show(shell: str | None) -> None:
    """Print the script of a shell."""
    if shell is not None:
        script = _library().get_completion_script(prog_name="constrint", complete_var=ASKED, shell=_named(shell))
        typer.echo(script)
        raise typer.Exit


def install(shell: str | None) -> None:
    """Write the script of a shell where the shell finds it."""
    if shell is not None:
        try:
            name, path = _library().install(_named(shell), prog_name="constrint", complete_var=ASKED)
        except OSError as error:
            raise UsageError(
                f"completion cannot be installed: {error.filename}: {error.strerror}. "
                "`constrint --show-completion` prints the script, to be put where your shell reads it."
            ) from None
        typer.echo(f"{name} completion is installed in {path}; start a new shell to use it.")
        raise typer.Exit


def _library() -> Any:
    """The module of the command line library that has the scripts; it has no types for them."""
    return import_module("typer.completion")


def _named(shell: str) -> str:
    if shell == THIS_SHELL:
        return _detected()
    if shell.lower() not in SHELLS:
        raise UnknownNameError("shell", shell, SHELLS)
    return shell.lower()


def _detected() -> str:
    """The shell that the command was called from.

    Raises:
        UsageError: When it cannot be told.
    """
    found = ""
    try:
        found = import_module("shellingham").detect_shell()[0]
    except (ImportError, OSError):  # no such package, or no shell that it knows
        found = ""
    if found not in SHELLS:
        raise UsageError(f"say for which shell: {', '.join(SHELLS)}, as in `constrint --show-completion bash`.")
    return str(found)
