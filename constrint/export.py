"""Export a ranking or a space to another tool: Triton, JSON, CSV, a C header, Kernel Tuner, CUTLASS.

`export(found, "triton")` returns the text of a file. Formats of your own: `register`, or an entry point of the group
`constrint.exports`.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.answers.exported import Export, Row
from constrint.answers.registry import EXPORTS, Format, Kind
from constrint.errors import UsageError
from constrint.select.rank import KernelProblem, Ranking
from constrint.solve import SearchSpace

__all__ = ["Export", "Format", "Row", "export", "format_named", "list_formats", "register"]


def export(
    found: Ranking | SearchSpace,
    format: str,
    *,
    top: int | None = None,
    rename: Mapping[str, str] | None = None,
    about: KernelProblem | None = None,
    title: str = "",
    raw: bool = False,
) -> str:
    """Write a ranking or a space in the format of another tool. The same input gives the same text.

    Example:
        >>> from constrint import enumerate_space, parse
        >>> space = enumerate_space(parse("var x in {1, 2, 4}" + chr(10) + "x <= 2"))
        >>> print(export(space, "csv", rename={"x": "BLOCK"}), end="")
        rank,BLOCK
        1,1
        2,2

    Args:
        found: The result of `rank` or `enumerate_space`.
        format: `triton`, `json`, `csv`, `c-header`, `kernel-tuner`, `cutlass-like`, or a registered format.
        top: Most configurations to write; None writes all. Formats of whole spaces ignore it.
        rename: New names of parameters by their own names, such as `{"tile_m": "BLOCK_M"}`. An empty name leaves out a
            parameter that has a single value.
        about: The kernel, the GPU and the workload of a space, for the file's header.
        title: The title of a user's own problem in the header; the problem's name if empty.
        raw: In CSV, write text without the `'` that keeps a spreadsheet from computing what begins with `=`.

    Returns:
        The text of a file.

    Raises:
        UnknownNameError: When the format or a renamed parameter is unknown.
        UsageError: When the format cannot hold the result; names the reason and the way out.
        InfeasibleError: When no configuration is valid.
    """
    writer = format_named(format)
    kind: Kind = "ranking" if isinstance(found, Ranking) else "space"
    if kind not in writer.takes:
        raise UsageError(
            f"{format} holds {'a space with its rules' if kind == 'ranking' else 'ranked configurations'}, and got a "
            f"{type(found).__name__}: give what {'enumerate_space' if kind == 'ranking' else 'rank'} returns."
        )
    exported = Export(
        ranking=found if isinstance(found, Ranking) else None,
        space=None if isinstance(found, Ranking) else found,
        about=about,
        top=top,
        rename=dict(rename or {}),
        name=title,
        is_raw=raw,
    )
    exported.check()
    return writer.write(exported)


def register(added: Format) -> None:
    """Add a format to this process; it replaces a format of the same name."""
    EXPORTS.add(added.name, added)


def list_formats() -> tuple[str, ...]:
    """Names of all export formats."""
    return EXPORTS.names()


def format_named(name: str) -> Format:
    """The export format with this name.

    Raises:
        UnknownNameError: When no format has the name; lists the known ones.
    """
    return EXPORTS.named(name)
