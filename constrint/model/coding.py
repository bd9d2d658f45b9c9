"""Translation between values and the integers that code them, at the border between callers and the solver.

Inside, every variable is an integer (`constrint/model/domain.py`). Callers of a problem with other values pass and
get values; `Coding` translates. Problems of integers alone need none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constrint.errors import UsageError
from constrint.model.domain import Domain, literal, plain
from constrint.model.problem import Problem


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
