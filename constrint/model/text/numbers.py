"""Numbers that a text may name beside its own constants: `gpu.sm_count`. The caller knows where they come from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeAlias

from constrint.errors import UsageError, shortened

#: A number by its dotted name; text says why there is none.
Names: TypeAlias = Mapping[str, "int | str"]
#: Names that are told as near.
MAX_NEAR = 3


def number_named(names: Names | None, name: str) -> int:
    """The number that a dotted name stands for.

    Args:
        names: The numbers that may be named; None where the caller gave none.
        name: The name in the text.

    Raises:
        UsageError: When no number has that name, or it is not known.
    """
    if not isinstance(names, Mapping) and names is not None:
        raise UsageError(f"names maps names to numbers, such as {{'gpu.sm_count': 132}}; got {type(names).__name__}.")
    if name in (names or {}):
        value = (names or {})[name]
        if isinstance(value, str):
            raise UsageError(f"`{name}` has no value: {value}.")
        return value
    told = shortened(name)
    if not names:
        raise UsageError(
            f"nothing says what `{told}` is. A name with a dot is a number of a GPU: say which with --gpu NAME (in "
            f"Python: names=gpu_names(load_gpu(NAME))), or declare it in the problem: const {told} = 100"
        )
    raise UsageError(f"there is no number `{told}`. Nearest: {', '.join(nearest_names(told, names))}.")


def nearest_names(name: str, names: Names) -> list[str]:
    """The names most like one that there is not: those that contain what it ends with come first."""
    asked = name.rpartition(".")[2].lower()
    within = [known for known in names if asked and asked in known.rpartition(".")[2]]
    close = difflib.get_close_matches(name.lower(), list(names), n=MAX_NEAR, cutoff=0.3)
    return list(dict.fromkeys((*within[:MAX_NEAR], *close)))[:MAX_NEAR] or list(names)[:MAX_NEAR]
