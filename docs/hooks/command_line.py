"""Pages of the command reference, generated from the application: usage, arguments and options of each command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from constrint import list_kernels, load_kernel
from constrint.cli.app import application
from constrint.select import Operation


def pages() -> Iterator[tuple[str, str]]:
    """Each page's path and its text."""
    app, _ = application(())
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = [
        "# Command reference",
        "Here you can look up every command and option. The page is made of the command itself.",
        _table(
            "| command | what it does |\n|---|---|",
            [f"| [`constrint {name}`](#constrint-{name}) | {_first(command)} |" for name, command in commands.items()],
        ),
        "Exit codes: 0 done, 1 infeasible or failed, 2 usage, 130 interrupted. Results go to stdout, everything else "
        "to stderr.",
    ]
    for name, command in commands.items():
        lines += _section(f"constrint {name}", command, "##")
    yield "reference/cli.md", "\n\n".join(lines) + "\n"
    yield "reference/kernels.md", "\n\n".join(_kernels()) + "\n"


def _section(title: str, command: Any, level: str) -> Iterator[str]:
    yield f"{level} {title}"
    yield _escaped(_text(command), keep_lines=True)
    nested = getattr(command, "commands", None)
    if nested:
        for name, inner in nested.items():
            yield from _section(f"{title} {name}", inner, level + "#")
        return
    arguments = [p for p in command.params if p.param_type_name == "argument" and not getattr(p, "hidden", False)]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden and "--help" not in p.opts]
    words = " ".join([*(_usage(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    yield f"```text\n{title} {words}\n```".replace(" \n", "\n")
    rows = [f"| `{_usage(p)}` | {_escaped(getattr(p, 'help', '') or '')} | |" for p in arguments]
    rows += [f"| `{_names(p)}` | {_help(p)} | {_default(p)} |" for p in options]
    if rows:
        yield _table("| | meaning | default |\n|---|---|---|", rows)
    if {"--dtype", "--kernel"} <= {name for option in options for name in option.opts}:
        yield "The last options are the sizes of the kernel that is named, here of `gemm`: see [Kernels](kernels.md)."


def _kernels() -> Iterator[str]:
    """The kernels with their sizes, options and types."""
    yield "# Kernels"
    yield (
        "Here you can look up what `--kernel` takes, and the sizes that each kernel is asked with. The page is made of "
        "the kernels themselves. `--kernel FILE.py:NAME` takes [one of your own](../guides/own_kernel.md)."
    )
    for name in list_kernels():
        yield from _kernel(load_kernel(name))


def _kernel(operation: Operation) -> Iterator[str]:
    yield f"## {operation.name}"
    rows = [f"| `{s.full_name}` | {_escaped(s.summary)} | {', '.join(s.dtypes)} |" for s in operation.implementations]
    yield _table("| implementation | what it is | types |\n|---|---|---|", rows)
    numbers = [(size, "size") for size in operation.sizes] + [(size, "option") for size in operation.options]
    rows = [
        f"| `--{size.name.replace('_', '-')}` | {kind} | {_escaped(size.meaning)} | {size.default} |"
        for size, kind in numbers
    ]
    yield _table("| | | meaning | default |\n|---|---|---|---|", rows)


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, *rows])


def _text(command: Any) -> str:
    return str(command.help or "")


def _first(command: Any) -> str:
    return _escaped(" ".join(_text(command).split("\n\n")[0].split()))


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    return f"{names}{option.metavar}" if option.metavar == "[=N]" else f"{names} {_value(option)}"


def _value(option: Any) -> str:
    choices = getattr(option.type, "choices", None)
    if option.metavar or not choices:
        return option.metavar or str(option.type.name).upper()
    return "|".join(getattr(choice, "value", str(choice)) for choice in choices)


def _help(option: Any) -> str:
    text = _escaped(option.help or "")
    return f"{text} **Required.**" if option.required else text


def _default(option: Any) -> str:
    default = option.default
    is_shown = default not in (None, False, "", ()) and isinstance(default, (str, int, float))
    return f"`{default}`" if is_shown else ""


def _escaped(text: str, *, keep_lines: bool = False) -> str:
    """Help as Markdown; escapes angle brackets, bars, and the link that `[default: 3]` would be."""
    if not keep_lines:
        text = " ".join(text.split())
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        parts[place] = parts[place].replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[").replace("_", "\\_")
    return "`".join(parts).replace("|", "\\|") if not keep_lines else "`".join(parts)
