"""What expressions and constraints have in common: parts, variables, a shape within bounds, and their text.

Writing a node and evaluating it on columns is the work of `text/render.py` and `columns.py`. These import the classes
and enter their functions here as they are loaded, so that knowledge flows one way and `str(node)` still works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from constrint.errors import UsageError

MAX_DEPTH: Final = 150
MAX_NODES: Final = 100_000


def check_shape(depth: int, size: int) -> None:
    """Refuses a tree that is too deep or too large to handle within bounds."""
    if depth > MAX_DEPTH:
        raise UsageError(f"an expression is nested {depth} levels deep; the limit is {MAX_DEPTH}. Split it up.")
    if size > MAX_NODES:
        raise UsageError(f"an expression has {size} parts; the limit is {MAX_NODES}. Split it up.")


class Node:
    """An expression or a constraint; it never changes once it is built."""

    __slots__ = ("_variables", "depth", "size")

    #: Writes a node in the text language; `text/render.py` enters one function per kind of node.
    writer: ClassVar[Callable[[Any], str]]

    depth: int
    size: int
    _variables: frozenset[str] | None

    def measure(self, parts: Sequence[Node]) -> None:
        """Sets depth and size from the parts; refuses a tree beyond the limits."""
        self._variables = None
        self.depth = 1 + max((p.depth for p in parts), default=0)
        self.size = 1 + sum(p.size for p in parts)
        check_shape(self.depth, self.size)

    def operands(self) -> tuple[Node, ...]:
        """The nodes directly below."""
        raise NotImplementedError

    def key(self) -> tuple[Any, ...]:
        """Structure as nested tuples: two nodes are the same text exactly if their keys are equal."""
        raise NotImplementedError

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that occur in the node."""
        if self._variables is None:
            self._variables = frozenset().union(*(p.variables for p in self.operands()))
        return self._variables

    def __str__(self) -> str:
        return type(self).writer(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"
