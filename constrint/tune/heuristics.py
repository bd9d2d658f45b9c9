"""The values that `triton.heuristics` computes for a kernel, as far as its signature and constants say them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

#: The alignment in bytes that a pointer's stand-in states.
_ALIGNED: Final = 16


class StandInPointer:
    """A tensor in the eyes of a heuristic: it is there, and its address is aligned; nothing else is known of it."""

    def __init__(self, is_aligned: bool) -> None:
        self._address = _ALIGNED if is_aligned else 1

    def data_ptr(self) -> int:
        """An address as aligned as the signature says."""
        return self._address


class StandInNumber:
    """A number in the eyes of a heuristic: it is there, and nothing can be done with its value."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Refuse, as every operation does.

        Raises:
            TypeError: Always.
        """
        raise TypeError("the value of this argument is not known.")

    def __bool__(self) -> bool:
        """Refuse.

        Raises:
            TypeError: Always.
        """
        raise TypeError("the value of this argument is not known.")


def heuristics_of(function: Any) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """The functions of all `triton.heuristics` above a kernel, by the name of what they compute."""
    found: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
    while function is not None and not hasattr(function, "params"):
        values = getattr(function, "values", None)
        if isinstance(values, Mapping):
            found = {name: value for name, value in values.items() if callable(value)} | found
        function = getattr(function, "fn", None)
    return found


def computed_by_heuristics(
    function: Any, types: Mapping[str, str], aligned: frozenset[str], values: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that a kernel's heuristics compute without a call; those that need more than is known are left out.

    Args:
        function: The kernel with its decorators.
        types: Types of the arguments that have no value; a pointer counts as a tensor that is there.
        aligned: Those arguments that are multiples of 16.
        values: Values of arguments and options that are known; they are not computed again.
    """
    known: dict[str, Any] = {
        n: StandInPointer(n in aligned) if text.startswith("*") else StandInNumber() for n, text in types.items()
    }
    known |= values
    computed: dict[str, Any] = {}
    for name, heuristic in heuristics_of(function).items():
        if name in values:
            continue
        try:
            result = heuristic({**known, **computed})
        except Exception:  # noqa: BLE001 - a user's function that asks for what no signature says
            continue
        computed[name] = result
    return computed
