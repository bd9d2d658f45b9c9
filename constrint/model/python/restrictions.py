"""Problems from tunable parameters with restrictions, as Kernel Tuner and the T1 format state them.

A restriction is a Python expression (`constrint.model.python.expression` says which); it is read with `ast` and
never evaluated.
`load_space` reads the JSON form: {"name": ..., "params": {name: [values]}, "restrictions": [...]}.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from constrint.core import compiled
from constrint.errors import ParseError, UsageError
from constrint.model.constraint import Constraint
from constrint.model.domain import Domain
from constrint.model.encode import encode
from constrint.model.expr import RESERVED, Var
from constrint.model.problem import Problem
from constrint.model.python.expression import Trials, read_restriction

MAX_BYTES: Final = 16_000_000
MAX_PARAMS: Final = 1_000
MAX_RESTRICTIONS: Final = 10_000
# Parameters of these names are refused, or mean something else in an expression: the Python reader says what.
_NOT_FOR_CORE: Final = RESERVED | frozenset(keyword.kwlist)


def problem_from_space(
    params: Mapping[str, Sequence[int]], restrictions: Sequence[str], name: str = "", *, source: str = ""
) -> Problem:
    """Builds the problem of all configurations that satisfy every restriction.

    Args:
        params: The values of each parameter; their order is the order of preference.
        restrictions: Python expressions over the parameters.
        name: Name of the problem.
        source: Name of the file, for messages.

    Raises:
        ParseError: Where a restriction is not of the supported kind, with line, column and a caret.
        UsageError: For parameters that are no lists of integers.
    """
    where = f"{source}: " if source else ""
    _check_type(params, Mapping, f"{where}params", "an object from parameter names to lists of integers")
    _check_list(restrictions, f"{where}restrictions", "Python expressions")
    for number, limit, what in (
        (len(params), MAX_PARAMS, "parameters"),
        (len(restrictions), MAX_RESTRICTIONS, "restrictions"),
    ):
        if number > limit:
            raise UsageError(f"{where}{number:,} {what}; at most {limit:,} are read.")
    if compiled is not None:
        problem = _read_by_core(compiled, params, restrictions, name, where)
        if problem is not None:
            return problem
    return _read_by_python(params, restrictions, name, where)


def _read_by_python(params: Mapping[str, Sequence[int]], restrictions: Sequence[str], name: str, where: str) -> Problem:
    problem = Problem(name)
    for param, values in params.items():
        _check_list(values, f"{where}params: {param!r}", "integers")
        try:
            problem.declare(param, Domain.from_values(values, what=repr(param)))
        except UsageError as error:
            raise UsageError(f"{where}params: {error}") from None
    trials = Trials()
    for number, text in enumerate(restrictions):
        place = f"{where}restrictions[{number}]"
        if not isinstance(text, str):
            raise UsageError(f"{place} must be the text of a Python expression, got {_shown(text)}.")
        problem.add(read_restriction(text, problem.variables, place, trials))
    return problem


def _read_by_core(
    core: ModuleType, params: Mapping[str, Sequence[int]], restrictions: Sequence[str], name: str, where: str
) -> Problem | None:
    """Lets the compiled core read what it can; None where it declines, which includes every mistake."""
    read = core.read(params, restrictions, _NOT_FOR_CORE)
    if read is None:
        return None
    model, others = read
    problem = SpaceProblem(name, params, restrictions, where)
    if others:
        places = {param: place for place, param in enumerate(params)}
        trials = Trials()
        for number in others:
            text = restrictions[number]
            rule = read_restriction(text, problem.variables, f"{where}restrictions[{number}]", trials)
            problem.rules_read[number] = rule
            if not core.require(model, encode(rule, places)):
                return None
    problem.core = model
    return problem


class SpaceProblem(Problem):
    """A problem that the compiled core has read; domains and constraints become objects when they are asked for."""

    _variables: dict[str, Domain]
    _constraints: list[Constraint]

    def __init__(self, name: str, params: Mapping[str, Sequence[int]], restrictions: Sequence[str], where: str) -> None:
        self.name = name
        self._constants = {}
        self._estimates = []
        self._params = {param: tuple(values) for param, values in params.items()}
        self._texts, self._where = tuple(restrictions), where
        self.rules_read: dict[int, Constraint] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in declared order."""
        return tuple(self._params)

    def __getattr__(self, name: str) -> Any:
        if name == "_variables":
            self._variables = {param: Domain.from_values(values) for param, values in self._params.items()}
            return self._variables
        if name == "_constraints":
            trials = Trials()
            self._constraints = [
                self.rules_read[number]
                if number in self.rules_read
                else read_restriction(text, self._variables, f"{self._where}restrictions[{number}]", trials)
                for number, text in enumerate(self._texts)
            ]
            return self._constraints
        raise AttributeError(name)

    def declare(self, name: str, domain: Domain) -> Var:
        """Declares a further variable."""
        var = super().declare(name, domain)
        self._params = {n: tuple(d) for n, d in self._variables.items()}
        return var


def load_space(path: str | Path) -> Problem:
    """Reads a space from a JSON file; keys other than `name`, `params` and `restrictions` are ignored.

    Raises:
        UsageError: When the file cannot be read or is not of this form (`ParseError` for a restriction).
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise UsageError(f"the file has more than {MAX_BYTES:,} bytes; at most that many are read.")
        data: Any = json.loads(text, object_pairs_hook=_unique)
    except OSError as error:
        raise UsageError(f"cannot read the space file {path}: {error.strerror}.") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise ParseError("not JSON of this form: it is nested too deep", source=str(path)) from None
    except ValueError as error:
        raise ParseError(f"not JSON: {error}", source=str(path)) from None
    _check_type(data, dict, str(path), 'an object {"name": ..., "params": {...}, "restrictions": [...]}')
    if "params" not in data:
        raise UsageError(f'{path}: the key "params" is missing; it maps each parameter to its values.')
    name = data.get("name", "")
    _check_type(name, str, f"{path}: name", "text")
    return problem_from_space(data["params"], data.get("restrictions", []), name, source=str(path))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise UsageError(f"the key {key!r} is given twice.")
        unique[key] = value
    return unique


def _check_type(value: Any, wanted_type: type, what: str, wanted: str) -> None:
    if not isinstance(value, wanted_type):
        raise UsageError(f"{what} must be {wanted}, got {_shown(value)}.")


def _check_list(value: Any, what: str, items: str) -> None:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise UsageError(f"{what} must be a list of {items}, got {_shown(value)}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
