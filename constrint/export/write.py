"""The one function that exports: from a ranking or a space to the text of a file."""

from __future__ import annotations

from collections.abc import Mapping

from constrint.errors import UsageError
from constrint.export.found import Found
from constrint.export.registry import Kind, format_named
from constrint.select.rank import KernelProblem, Ranking
from constrint.solve import SearchSpace


def export(
    found: Ranking | SearchSpace,
    format: str,
    *,
    top: int | None = None,
    rename: Mapping[str, str] | None = None,
    about: KernelProblem | None = None,
    title: str = "",
) -> str:
    """Writes what was found in a form in which it is used. The same input gives the same text.

    Example:
        >>> from constrint import enumerate_space, parse
        >>> space = enumerate_space(parse("var x in {1, 2, 4}" + chr(10) + "x <= 2"))
        >>> print(export(space, "csv", rename={"x": "BLOCK"}), end="")
        rank,BLOCK
        1,1
        2,2

    Args:
        found: What `rank` or `enumerate_space` gave.
        format: `triton`, `json`, `csv`, `c-header`, `kernel-tuner`, `cutlass-like`, or another that is registered.
        top: How many configurations are written; all if None. A format of whole spaces does not look at it.
        rename: Names that parameters get, by their own names, such as `{"tile_m": "BLOCK_M"}`; an empty name leaves
            out a parameter that has one value only.
        about: The kernel, the GPU and the workload that a space is of, for the lines that say so.
        title: What a user's own problem is called there; the problem's name if empty.

    Returns:
        The text of a file.

    Raises:
        UnknownNameError: When there is no such format or parameter.
        UsageError: When the format cannot hold what was found; says what, and the way out.
        InfeasibleError: When there is no valid configuration.
    """
    writer = format_named(format)
    kind: Kind = "ranking" if isinstance(found, Ranking) else "space"
    if kind not in writer.takes:
        raise UsageError(
            f"{format} holds {'a space with its rules' if kind == 'ranking' else 'ranked configurations'}, and got a "
            f"{type(found).__name__}: give what {'enumerate_space' if kind == 'ranking' else 'rank'} returns."
        )
    asked = Found(
        ranking=found if isinstance(found, Ranking) else None,
        space=None if isinstance(found, Ranking) else found,
        about=about,
        top=top,
        rename=dict(rename or {}),
        name=title,
    )
    asked.check()
    return writer.write(asked)
