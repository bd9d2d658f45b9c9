"""Answers a shell that asks for completions; whatever goes wrong, it gets no word rather than a traceback.

The questions come in the environment, in the form of the command line library's own scripts
(`constrint --show-completion`), whose answers are used: only the command that is typed is loaded for them.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

#: The environment variable with which the scripts ask, by the name of the command.
ASKED = "_CONSTRINT_COMPLETE"
#: Signs at which bash begins a new word.
_BREAKS = "=:"


def answer(application: Callable[[Sequence[str]], Any]) -> int:
    """Print the words that fit.

    Args:
        application: Makes the command line for the words that were typed before the one to complete.

    Returns:
        The exit code.
    """
    instruction = os.environ[ASKED]
    prefix, code = "", 0
    out = io.StringIO()
    # Warnings, and what a broken kernel package prints, would end up in the line that is typed.
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            completion: Any = import_module("typer.completion")
            completion.completion_init()
            before, prefix = _typed(instruction)
            application(before)(prog_name="constrint", standalone_mode=True)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except (Exception, KeyboardInterrupt):  # noqa: BLE001 - another's kernel package may raise anything
            return 1
    words = [word for word in out.getvalue().splitlines() if word]
    shown = [word.removeprefix(prefix) for word in words] if prefix else words
    sys.stdout.write("".join(f"{word}\n" for word in shown))
    return code


def _typed(instruction: str) -> tuple[list[str], str]:
    """The words before the one to complete, and what bash has of that one already."""
    if instruction.endswith("bash") and "COMP_WORDS" in os.environ:
        words, prefix = _joined(os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"]))
        os.environ["COMP_WORDS"] = shlex.join(words)
        os.environ["COMP_CWORD"] = str(len(words) - 1)
        return words[1:-1], prefix
    typed = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    try:
        words = shlex.split(typed)
    except ValueError:  # an open quote
        words = typed.split()
    return words[1:] if typed.endswith(" ") else words[1:-1], ""


def _joined(words: Sequence[str], at: int) -> tuple[list[str], str]:
    """Puts together what bash split at `=` and `:`: `--set tile_m = 1` is `--set tile_m=1`.

    Returns:
        The words up to the one to complete, and the part of that one that bash keeps before what is completed.
    """
    joined: list[str] = []
    glued = False
    kept = ""
    for place, word in enumerate([*words[: at + 1], *([""] if at >= len(words) else [])]):
        is_break = bool(word) and set(word) <= set(_BREAKS)
        if joined and (is_break or glued):
            kept = joined[-1] if not is_break else joined[-1] + word
            joined[-1] += word
        else:
            joined.append(word)
            kept = ""
        glued = is_break and place < at
    return joined, kept
