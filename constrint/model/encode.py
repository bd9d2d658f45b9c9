"""Translation at the border of the solver: values as integer codes, and constraints as numbers for the compiled core.

Inside, every variable is an integer (`constrint/model/domain.py`). Callers of a problem with other values pass and
get values; `Coding` translates. Problems of integers alone need none of this.

The core takes constraints in postfix order. Every operation is three numbers: its place in `OPERATIONS`, the number of
operands it pops off the stack, and a value (a variable's place, a number, the count of listed numbers that follow, or
the index of a shared operation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constrint.errors import UsageError
from constrint.model.constraint import AllOf, AnyOf, Comparison, Constraint, Divides, Implies, IsIn, Not
from constrint.model.domain import Domain, literal, plain
from constrint.model.expr import Calculation, Const, Expr, Truth, Var
from constrint.model.operations import TABLE, step
from constrint.model.problem import Problem
from constrint.model.table import InTable


class Coding:
    """Translates assignments and columns of one problem.

    Attributes:
        domains: The variables whose values are coded.
    """

    def __init__(self, variables: Mapping[str, Domain]) -> None:
        self.domains = {name: domain for name, domain in variables.items() if domain.labels is not None}
        self._labels: dict[str, dict[int, Any]] = {}
        self._codes: dict[str, dict[Any, int]] = {}
        for name, domain in self.domains.items():
            pairs = list(zip(domain.listed or (), domain.labels or (), strict=True))
            self._labels[name] = dict(pairs)
            self._codes[name] = {label: code for code, label in pairs}

    @staticmethod
    def of(problem: Problem) -> Coding | None:
        """The coding of a problem; None where all of its variables are plain integers."""
        return Coding(problem.variables) if problem.has_codes else None

    def same(self, other: Coding) -> bool:
        """Whether both translate identically."""
        return self._labels == other._labels and all(
            type(label) is type(other._labels[name][code])
            for name, labels in self._labels.items()
            for code, label in labels.items()
        )

    def decoded(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """Replace codes by values; a code without a value stays."""
        return {n: self._labels[n].get(c, c) if n in self._labels else c for n, c in assignment.items()}

    def encoded(self, assignment: Mapping[str, Any]) -> dict[str, Any] | None:
        """Replace values by codes; None where some value is not in its domain."""
        codes: dict[str, Any] = {}
        for name, value in assignment.items():
            if name in self._codes:
                code = self.code(name, value)
                if code is None:
                    return None
                codes[name] = code
            else:
                codes[name] = value
        return codes

    def code(self, name: str, value: object) -> int | None:
        """The code of a value of a coded variable; None for a value outside its domain."""
        return self._codes[name].get(plain(value, f"the value of {name!r}"))

    def decoded_columns(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Replace columns of codes by columns of values: bools, floats, or else Python objects."""
        return {n: self._decoded_column(n, c) if n in self.domains else c for n, c in columns.items()}

    def _decoded_column(self, name: str, column: NDArray[Any]) -> NDArray[Any]:
        labels = self._labels[name]
        listed = array_of(labels.values())
        domain = self.domains[name]
        if column.dtype == object or domain.lower < -(2**63) or domain.upper >= 2**63:
            places = {code: place for place, code in enumerate(labels)}
            return listed[np.array([places[code] for code in column.tolist()], dtype=np.intp)]
        codes = np.array(list(labels), dtype=np.int64)
        order = np.argsort(codes)
        decoded: NDArray[Any] = listed[order[np.searchsorted(codes[order], column)]]
        return decoded

    def encoded_columns(self, columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Replace columns of values by columns of codes.

        Raises:
            UsageError: For a value that is not in its domain.
        """
        return {n: self._encoded_column(n, c) if n in self.domains else np.asarray(c) for n, c in columns.items()}

    def _encoded_column(self, name: str, column: ArrayLike) -> NDArray[Any]:
        codes: list[int] = []
        for value in np.asarray(column).tolist() if isinstance(column, np.ndarray) else list(column):  # type: ignore[arg-type]
            code = self.code(name, value)
            if code is None:
                raise UsageError(f"{name!r} has no value {literal(value)}; it has {self.domains[name]}.")
            codes.append(code)
        fits = all(-(2**63) <= code < 2**63 for code in codes)
        return np.array(codes, dtype=np.int64 if fits else object)


def in_codes(problem: Problem) -> Problem:
    """The problem over codes, to which rules on codes can be added; the same problem where nothing is coded."""
    coding = Coding.of(problem)
    for name, domain in coding.domains.items() if coding is not None else ():
        problem = problem.with_domain(name, Domain.from_values(domain.listed or (), domain.because))
    return problem


def array_of(values: Iterable[Any]) -> NDArray[Any]:
    """Values as an array of bools or of floats where all are, else of Python objects."""
    listed = list(values)
    for kind, dtype in ((bool, np.bool_), (float, np.float64)):
        if listed and all(type(value) is kind for value in listed):
            return np.array(listed, dtype=dtype)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


# The order is that of `Op` in the core's model.hpp.
OPERATIONS: Final = (
    *("var", "const", *(rule.name for rule in TABLE), "truth", "element"),
    *("==", "!=", "<=", "<", "divides", "in list", "in range", "table", "and", "or", "not", "again"),
)
_CODE: Final = {name: place for place, name in enumerate(OPERATIONS)}
_VAR, _CONST, _LIST, _RANGE = _CODE["var"], _CODE["const"], _CODE["in list"], _CODE["in range"]
_AGAIN, _TRUTH, _TABLE = _CODE["again"], _CODE["truth"], _CODE["table"]
_AND, _OR, _NOT, _DIVIDES = _CODE["and"], _CODE["or"], _CODE["not"], _CODE["divides"]


def encode(constraint: Constraint, places: Mapping[str, int]) -> list[int]:
    """Encodes a constraint.

    Args:
        constraint: Any constraint; numbers of any size (the core declines those beyond its range).
        places: The place of every variable in the list of domains.
    """
    encoder = _Encoder(places)
    encoder.condition(constraint)
    return encoder.code


def encode_all(constraints: Sequence[Constraint], places: Mapping[str, int]) -> list[int]:
    """Encode the conjunction of constraints as one condition; shared subexpressions are written once."""
    encoder = _Encoder(places)
    encoder.all_of(constraints)
    return encoder.code


def encode_expression(expr: Expr, places: Mapping[str, int]) -> list[int]:
    """Encodes an expression in the same way."""
    encoder = _Encoder(places)
    encoder.expression(expr)
    return encoder.code


class _Encoder:
    """Writes operations in postfix order; a shared one is written once."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self.places = places
        self.code: list[int] = []
        self._count = 0
        self._written: dict[int, int] = {}

    def _add(self, operation: int, operands: int, value: int) -> None:
        self.code += (operation, operands, value)
        self._count += 1

    def condition(self, item: Constraint) -> None:
        """Writes a condition after its operands."""
        step()
        if isinstance(item, Comparison):
            op, left, right = item.op, item.left, item.right
            if op in (">=", ">"):
                op, left, right = "<=" if op == ">=" else "<", right, left
            self.expression(left)
            self.expression(right)
            self._add(_CODE[op], 2, 0)
        elif isinstance(item, Divides):
            self.expression(item.divisor)
            self.expression(item.number)
            self._add(_DIVIDES, 2, 0)
        elif isinstance(item, IsIn):
            self.expression(item.expr)
            domain = item.domain
            if domain.listed is not None:
                self._add(_LIST, 1, len(domain.listed))
                self.code += sorted(domain.listed)
            else:
                self._add(_RANGE, 1, 3)
                self.code += (domain.lower, domain.upper, domain.step)
        elif isinstance(item, InTable):
            for expr in item.exprs:
                self.expression(expr)
            self._add(_TABLE, len(item.exprs), len(item.rows) * len(item.exprs))
            for row in item.rows:
                self.code += row
        elif isinstance(item, AllOf):
            self.all_of(item.parts)
        elif isinstance(item, AnyOf):
            for part in item.parts:
                self.condition(part)
            self._add(_OR, len(item.parts), 0)
        elif isinstance(item, Not):
            self.condition(item.part)
            self._add(_NOT, 1, 0)
        else:
            assert isinstance(item, Implies)
            self.condition(item.condition)
            self._add(_NOT, 1, 0)
            self.condition(item.consequence)
            self._add(_OR, 2, 0)

    def all_of(self, parts: Sequence[Constraint]) -> None:
        """Writes conditions and their conjunction."""
        for part in parts:
            self.condition(part)
        self._add(_AND, len(parts), 0)

    def expression(self, expr: Expr) -> None:
        """Writes an expression after its operands."""
        if isinstance(expr, Var):
            self._add(_VAR, 0, self.places[expr.name])
        elif isinstance(expr, Const):
            self._add(_CONST, 0, expr.number)
        else:
            written = self._written.get(id(expr))
            if written is not None:
                self._add(_AGAIN, 0, written)
                return
            if isinstance(expr, Truth):
                self.condition(expr.condition)
                operation, operands = _TRUTH, 1
            else:
                assert isinstance(expr, Calculation)
                for arg in expr.args:
                    self.expression(arg)
                operation, operands = _CODE[expr.op], len(expr.args)
            self._written[id(expr)] = self._count
            self._add(operation, operands, 0)
