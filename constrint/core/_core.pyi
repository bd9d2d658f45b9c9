"""Functions of the compiled core; each answers None where it declines the problem."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

#: Version of these signatures and of the encoding.
INTERFACE: int

Model = object
Space = object
Walk = object
Poll = Callable[[int], object] | None
# Per variable the values that are left (int64), and whether there is only one.
Axes = list[tuple[bytearray, bool]]
# Variables, their columns of positions (uint8 up to 256 values, else uint16), rows, the parent's place, the variables
# shared with it.
Table = tuple[list[int], list[bytearray], int, int, list[int]]
# ("limit", "cells" | "rows" | "bytes", how many, variables of the table)
Limit = tuple[str, str, int, list[int]]

def read(
    params: Mapping[str, Sequence[int]], restrictions: Sequence[str], reserved: AbstractSet[str]
) -> tuple[Model, list[int]] | None:
    """Reads parameters and restrictions; also the numbers of the restrictions that it could not read."""

def build(domains: list[list[int]], codes: list[list[int]]) -> Model | None:
    """Builds a model from listed domains and encoded conditions."""

def require(model: Model, code: list[int]) -> bool | None:
    """Adds an encoded condition."""

def enumerate(
    model: Model, max_cells: int, max_rows: int, max_bytes: int, poll: Poll
) -> tuple[str, Space, list[int], int, int, int, int] | tuple[str, int] | Limit | None:
    """("space", space, solutions of each part, cells, rows, tables, bytes), ("infeasible", cells) or a limit."""

def evaluate(code: list[int], columns: list[bytes], rows: int) -> bytearray | None:
    """An encoded expression over int64 columns, its variables; None also where some row has no value."""

def columns(space: Space, rows: int) -> list[tuple[int, bytearray]] | None:
    """Per variable the bytes of a value and the values of all solutions in index order."""

def factors(space: Space) -> tuple[Axes, list[int | list[Table]]] | None:
    """The axes, and the parts: a free variable or the tables of a tree, parents before children."""

def best(model: Model, space: Space, code: list[int], maximise: bool) -> list[tuple[int, int]] | None:
    """Values of an encoded expression's open variables in its best solution; the first of equally good ones."""

def walk(
    model: Model, max_cells: int, poll: Poll, chosen: Sequence[tuple[int, int]]
) -> tuple[str, Walk, list[list[int]], Axes] | tuple[str] | Limit | None:
    """("walk", walk, variables of each component, axes), ("infeasible",) or a limit."""

def walk_next(
    walk: Walk, component: int, max_cells: int, poll: Poll
) -> tuple[str, int, list[int]] | tuple[str, int] | Limit | None:
    """("row", cells, positions), ("end", cells) or a limit."""
