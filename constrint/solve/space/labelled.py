"""The search space of a problem whose variables have other values than integers: it takes and gives those values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError, UsageError
from constrint.model import Expr
from constrint.model.encode import Coding
from constrint.model.ratio import Ratio
from constrint.solve.budget import Limits
from constrint.solve.space.best import Cost, Ranked
from constrint.solve.space.space import SearchSpace


class LabelledSpace(SearchSpace):
    """Asks a space of codes, and translates what goes in and what comes out.

    Attributes:
        codes: The space of codes.
    """

    def __init__(self, codes: SearchSpace, coding: Coding) -> None:
        self.__dict__.update(codes.__dict__)
        self.codes, self._coding = codes, coding
        self.excluded = tuple(coding.decoded(e) for e in codes.excluded)

    def _translated(self, answer: Any) -> Any:
        if isinstance(answer, SearchSpace):
            return LabelledSpace(answer, self._coding)
        if isinstance(answer, Mapping):
            return self._coding.decoded(answer)
        return [self._translated(item) for item in answer]

    def _coded(self, assignment: Mapping[str, Any]) -> dict[str, Any] | None:
        for name in assignment:
            if name not in self.problem.variables:
                raise UnknownNameError("variable", str(name), self.problem.variables)
        return self._coding.encoded(assignment)

    def __eq__(self, other: object) -> bool:
        """Whether the other space has the same variables and the same solutions, in whatever order."""
        if not isinstance(other, SearchSpace):
            return NotImplemented
        if isinstance(other, LabelledSpace) and self._coding.same(other._coding):
            return self.codes == other.codes
        if set(self.names) != set(other.names) or self.size != other.size:
            return False
        try:
            return all(other.contains(solution) for solution in self)
        except UsageError:  # a variable has integers in one space and other values in the other
            return False

    __hash__ = SearchSpace.__hash__

    def take(self, indices: Sequence[int] | NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Lists the solutions with these indices as columns."""
        return self._coding.decoded_columns(self.codes.take(indices))

    def __getitem__(self, index: Any) -> Any:
        return self._translated(self.codes[index])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self._coding.decoded, self.codes)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Lists every solution: columns of integers, of bools, of floats, or else of Python objects."""
        return self._coding.decoded_columns(self.codes.columns())

    def contains(self, assignment: Mapping[str, Any]) -> bool:
        """Says whether a full assignment is one of the solutions."""
        missing = [n for n in self.names if n not in assignment]
        if missing:
            raise UsageError(f"contains needs a value for every variable; missing: {', '.join(missing)}.")
        codes = self._coded(assignment)
        return codes is not None and self.codes.contains(codes)

    __contains__ = contains

    def contains_columns(self, columns: Mapping[str, NDArray[Any]]) -> bool:
        """Whether every row of columns, one per variable, is a solution; many rows at once."""
        try:
            codes = self._coding.encoded_columns(columns)
        except UsageError:  # a value that is not in its domain
            return False
        return self.codes.contains_columns(codes)

    def index(self, assignment: Mapping[str, Any]) -> int:
        """Index of a solution: `space.index(space[i]) == i`."""
        if not self.contains(assignment):
            raise UsageError(f"{dict(assignment)} is not in the space; why_not(problem, config) says why.")
        return self.codes.index(self._coding.encoded(assignment) or {})

    def exclude(self, *solutions: Mapping[str, Any]) -> SearchSpace:
        """Returns the space without these solutions; what is not in it is ignored."""
        coded = [codes for codes in map(self._coded, solutions) if codes is not None]
        return LabelledSpace(self.codes.exclude(*coded), self._coding)

    def restrict(self, **fixed: Any) -> SearchSpace:
        """Returns the solutions in which these variables have this value each, or one of several listed ones.

        What is itself a value of the variable, a tuple for example, is that value.
        """
        codes = {n: self._codes(n, value) if n in self._coding.domains else value for n, value in fixed.items()}
        return LabelledSpace(self.codes.restrict(**codes), self._coding)

    def _codes(self, name: str, given: Any) -> list[int]:
        """The codes of one or of several listed values; values that the variable does not have are left out."""
        listed = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
        if listed and getattr(given, "ndim", 1) != 0 and not self._is_value(name, given):
            found = [self._coding.code(name, value) for value in given]
        else:
            found = [self._coding.code(name, given)]
        return [code for code in found if code is not None]

    def _is_value(self, name: str, value: object) -> bool:
        try:
            hash(value)
        except TypeError:
            return False
        return self._coding.code(name, value) is not None

    def extend(self, partial: Mapping[str, Any]) -> SearchSpace:
        """Returns all completions of a partial assignment."""
        codes = self._coded(partial)
        return LabelledSpace(self.codes._nothing() if codes is None else self.codes.extend(codes), self._coding)

    def sample(self, n: int, seed: int | None = None) -> list[dict[str, Any]]:
        """Draws `n` distinct solutions uniformly (all of them, shuffled, if there are fewer)."""
        return list(map(self._coding.decoded, self.codes.sample(n, seed)))

    def first(self) -> dict[str, Any]:
        """The solution that comes first by the declared order of variables and of their values."""
        return self._coding.decoded(self.codes.first())

    def neighbours(self, assignment: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Solutions that differ from `assignment` in exactly one variable, in declared order."""
        codes = self._coded(assignment)
        if codes is None:
            codes = {n: self._coding.code(n, v) if n in self._coding.domains else v for n, v in assignment.items()}
            outside = [n for n, code in codes.items() if code is None]
            if len(outside) > 1:
                return []
            others = {n: code for n, code in codes.items() if n not in outside}
            return list(map(self._coding.decoded, self.codes.extend(others)))
        return list(map(self._coding.decoded, self.codes.neighbours(codes)))

    def neighbour_columns(
        self, assignments: Mapping[str, NDArray[Any]]
    ) -> tuple[NDArray[np.intp], dict[str, NDArray[Any]]]:
        """Neighbours of many assignments at once; see `SearchSpace.neighbour_columns`."""
        source, columns = self.codes.neighbour_columns(self._coding.encoded_columns(assignments))
        return source, self._coding.decoded_columns(columns)

    def project(self, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
        """Distinct combinations of some variables that extend to a solution, and how many each stands for."""
        columns, counts = self.codes.project(names)
        return self._coding.decoded_columns(columns), counts

    def covering(self, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], int]:
        """Every combination of some variables that extends to a solution, each at least once, and how many rows."""
        columns, number = self.codes.covering(names)
        return self._coding.decoded_columns(columns), number

    def best(
        self,
        k: int,
        cost: Expr | Ratio | Cost,
        *,
        names: Sequence[str] | None = None,
        maximise: bool = False,
        limits: Limits | None = None,
    ) -> list[Ranked]:
        """The `k` cheapest solutions, cheapest first; see `SearchSpace.best`."""
        code_cost: Any = cost
        if isinstance(cost, Ratio):
            code_cost = cost.num
        elif not isinstance(cost, Expr):
            code_cost = lambda columns: cost(self._coding.decoded_columns(columns))  # noqa: E731
        ranked = self.codes.best(k, code_cost, names=names, maximise=maximise, limits=limits)
        den = cost.den if isinstance(cost, Ratio) else 1
        return [Ranked(r.cost if den == 1 else r.cost / den, self._coding.decoded(r.config)) for r in ranked]
