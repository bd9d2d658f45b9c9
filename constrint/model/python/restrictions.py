"""Problems from tunable parameters with restrictions, as Kernel Tuner and the T1 format state them."""

from __future__ import annotations

import itertools
import json
import keyword
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from constrint.core import compiled
from constrint.errors import ParseError, UsageError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.constraint import Constraint
from constrint.model.domain import Domain
from constrint.model.encode import encode
from constrint.model.expr import RESERVED, Var, check_name
from constrint.model.problem import Problem
from constrint.model.python.evaluate import Trials
from constrint.model.python.expression import read_restriction
from constrint.model.python.t1 import SPACE, space_of_t1
from constrint.model.ratio import code_variable
from constrint.model.table import MAX_ROWS, table_of

MAX_BYTES: Final = 16_000_000
MAX_PARAMS: Final = 1_000
MAX_RESTRICTIONS: Final = 10_000
# The core takes variables of at most this many values.
_MOST_VALUES: Final = 4096
# Words of the text language or of Python: restrictions on parameters of these names go to the reader in Python.
_NOT_FOR_CORE: Final = RESERVED | frozenset(keyword.kwlist)


Restriction = str | Callable[..., object]


def problem_from_space(
    params: Mapping[str, Iterable[object]],
    restrictions: Restriction | Sequence[Restriction] | None = (),
    name: str = "",
    *,
    source: str = "",
    trusted: bool = False,
) -> Problem:
    """Builds the problem of all configurations that satisfy every restriction.

    Args:
        params: The values of each parameter, in order of preference: integers, floats, bools, text, `None` or other
            hashable values; a list, a range or a numpy array of them.
        restrictions: Python expressions over the parameters, or a single one.
        name: Name of the problem.
        source: Name of the file, for messages.
        trusted: Whether restrictions may be functions, too. They are called, side effects included: never set this
            for functions of untrusted origin. `lambda x, y: ...` takes parameters by name, `lambda p: p["x"] ...` all.

    Raises:
        ParseError: Where a restriction is not of the supported kind, with line, column and a caret.
        UsageError: For parameters that are no lists of values, and for functions without `trusted`.
    """
    where = f"{source}: " if source else ""
    if type(params) is not dict:  # to ask an abstract class takes as long as to read a small space
        _check_type(params, Mapping, f"{where}params", "an object from parameter names to lists of values")
    for param in params:
        check_name(param, f"{where}params: the name of a parameter")
    rules: Sequence[Restriction]
    if restrictions is None:
        rules = ()
    elif isinstance(restrictions, str) or callable(restrictions):
        rules = (restrictions,)
    else:
        _check_list(restrictions, f"{where}restrictions", "Python expressions, or a single one")
        rules = restrictions
    for number, limit, what in (
        (len(params), MAX_PARAMS, "parameters"),
        (len(rules), MAX_RESTRICTIONS, "restrictions"),
    ):
        if number > limit:
            raise UsageError(f"{where}{number:,} {what}; at most {limit:,} are read.")
    origin = _Origin(name, where, trusted)
    problem = None if compiled is None else _read_by_core(compiled, params, rules, origin)
    return _read_by_python(_domains(params, where), rules, origin) if problem is None else problem


class _Origin(NamedTuple):
    """Origin of a space, for messages."""

    name: str
    where: str
    trusted: bool

    def rule(self, number: int, text: Restriction, domains: Mapping[str, Domain], trials: Trials) -> Constraint:
        """Reads one restriction."""
        place = f"{self.where}restrictions[{number}]"
        if isinstance(text, str):
            return read_restriction(text, domains, place, trials)
        if not callable(text):
            raise UsageError(f"{place} must be the text of a Python expression, got {_shown(text)}.")
        called = getattr(text, "__name__", "of no name")
        if not self.trusted:
            raise UsageError(
                f"{place} is a function ({called}), and functions are only called where "
                "problem_from_space(..., trusted=True) says so. Write it as the text of an expression, or trust it."
            )
        rule_read = constraint_of(text, domains, lambda name: code_variable(name, domains[name]), place)
        return rule_read.labelled(f"the function {called} says so")


def _domains(params: Mapping[str, Iterable[object]], where: str) -> dict[str, Domain]:
    domains: dict[str, Domain] = {}
    for param, values in params.items():
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise UsageError(f"{where}params: {param!r} must be a list of values, got {_shown(values)}.")
        try:
            domains[param] = Domain.of(values, what=repr(param))
        except UsageError as error:
            raise UsageError(f"{where}params: {error}") from None
    return domains


def _read_by_python(domains: Mapping[str, Domain], restrictions: Sequence[Restriction], origin: _Origin) -> Problem:
    problem = Problem(origin.name)
    for param, domain in domains.items():
        problem.declare(param, domain)
    trials = Trials()
    for number, text in enumerate(restrictions):
        problem.add(origin.rule(number, text, domains, trials))
    return problem


def _read_by_core(
    core: ModuleType, params: Mapping[str, Iterable[object]], restrictions: Sequence[Restriction], origin: _Origin
) -> Problem | None:
    """Read the restrictions in the compiled core; None where it declines, as for every error."""
    texts = [text if isinstance(text, str) else "" for text in restrictions]
    domains: dict[str, Domain] | None = None
    read = core.read(params, texts, _NOT_FOR_CORE)
    if read is None:
        # The core reads lists of integers only: bools are passed as 0 and 1, other values as their codes.
        domains = _domains(params, origin.where)
        if all(type(v) in (list, tuple) and domains[n].labels is None for n, v in params.items()):
            return None
        if any(domain.size > _MOST_VALUES for domain in domains.values()):
            return None
        others = {n for n, d in domains.items() if any(type(label) not in (int, bool) for label in d.labels or ())}
        read = core.read({name: list(d) for name, d in domains.items()}, texts, _NOT_FOR_CORE | others)
    if read is None:
        return None
    model, left = read
    problem = SpaceProblem(params, restrictions, origin, domains)
    places = {param: place for place, param in enumerate(params)}
    trials = Trials()
    for number in left:
        rule = origin.rule(number, restrictions[number], problem.variables, trials)
        problem.rules_read[number] = rule
        if not core.require(model, encode(rule, places)):
            # Codes beyond the core's numbers: the numpy path takes the problem as it is.
            return _read_by_python(problem.variables, restrictions, origin)
    problem.core = model
    return problem


class SpaceProblem(Problem):
    """A problem read by the compiled core; domains and constraints become objects at their first use."""

    _variables: dict[str, Domain]
    _constraints: list[Constraint]

    def __init__(
        self,
        params: Mapping[str, Iterable[object]],
        restrictions: Sequence[Restriction],
        origin: _Origin,
        domains: dict[str, Domain] | None,
    ) -> None:
        self.name = origin.name
        self._constants = {}
        self._estimates = []
        self._names = tuple(params)
        if domains is None:
            self._params = {param: tuple(values) for param, values in params.items()}
        else:
            self._variables = domains
        # Functions became tables already, and need not be kept: they could not be pickled.
        self._restrictions = tuple(text if isinstance(text, str) else "" for text in restrictions)
        self._origin = origin
        self.rules_read: dict[int, Constraint] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in declared order."""
        return self._names

    @property
    def num_combinations(self) -> int:
        """Number of combinations; a value listed twice may count twice."""
        if "_variables" in self.__dict__:
            return super().num_combinations
        return math.prod(map(len, self._params.values()))

    @property
    def has_codes(self) -> bool:
        """Whether some parameter has other values than plain integers: what the core read as it is has none."""
        return "_variables" in self.__dict__ and super().has_codes

    def __getattr__(self, name: str) -> Any:
        if name == "_variables":
            self._variables = {param: Domain.from_values(values) for param, values in self._params.items()}
            return self._variables
        if name == "_constraints":
            trials = Trials()
            self._constraints = [
                self.rules_read[number]
                if number in self.rules_read
                else self._origin.rule(number, text, self._variables, trials)
                for number, text in enumerate(self._restrictions)
            ]
            return self._constraints
        raise AttributeError(name)

    def declare(self, name: str, domain: Domain) -> Var:
        """Declares a further variable."""
        var = super().declare(name, domain)
        self._names = tuple(self._variables)
        return var


def load_space(path: str | Path) -> Problem:
    """Reads a space from a JSON file: ours, or a T1 file. Other keys than those of the space are ignored.

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
    if SPACE in data:
        data = space_of_t1(data, str(path))
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
    if type(value) is not list and (isinstance(value, (str, bytes)) or not isinstance(value, Sequence)):
        raise UsageError(f"{what} must be a list of {items}, got {_shown(value)}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


MAX_CALLS: Final = 1_000_000


class _UnknownParameter(Exception):
    """Raised where a function reads a parameter that has no value yet."""


class _Values(Mapping[str, Any]):
    """Mapping that a restriction function reads, `p["x"]`; the first read of a parameter ends the call."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        self.domains = domains
        self.known: dict[str, Any] = {}
        self.wanted = ""

    def __getitem__(self, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        if name not in self.domains:
            raise KeyError(name)
        self.wanted = name
        raise _UnknownParameter

    def __iter__(self) -> Iterator[str]:
        return iter(self.domains)

    def __len__(self) -> int:
        return len(self.domains)


def constraint_of(
    function: Callable[..., Any], domains: Mapping[str, Domain], variable: Callable[[str], e.Expr], place: str
) -> c.Constraint:
    """Tabulate a restriction function over the parameters that it reads.

    Args:
        function: It takes parameters by name (`lambda x, y: x < y`), or one mapping from names to values
            (`lambda p: p["x"] < p["y"]`).
        domains: The parameters with their values.
        variable: Expression that represents a parameter in a constraint.
        place: Position of the function, for messages.

    Raises:
        UsageError: When it raises anything but ZeroDivisionError, which makes it false, or depends on too many values.
    """
    values = _Values(domains)
    call = _caller(function, domains, values, place)
    decided: list[tuple[dict[str, int], bool]] = []
    waiting: list[dict[str, int]] = [{}]
    calls = 0
    while waiting:
        codes = waiting.pop()
        calls += 1
        if calls > MAX_CALLS:
            raise UsageError(
                f"{place} depends on too many combinations of values to try (more than {MAX_CALLS:,}); "
                "write it as the text of an expression."
            )
        values.known = {name: domains[name].value_of(code) for name, code in codes.items()}
        try:
            decided.append((codes, bool(call())))
        except _UnknownParameter:
            waiting += [{**codes, values.wanted: code} for code in domains[values.wanted]]
        except ZeroDivisionError:
            decided.append((codes, False))
        except Exception as error:
            shown = ", ".join(f"{name} = {value!r}" for name, value in values.known.items())
            raise UsageError(f"{place} raised {type(error).__name__}: {error} for {shown or 'no values'}.") from error
    return _table(decided, domains, variable, place)


def _caller(
    function: Callable[..., Any], domains: Mapping[str, Domain], values: _Values, place: str
) -> Callable[[], Any]:
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(f"{place}: Python does not tell the arguments of {function!r}; wrap it in a lambda.") from None
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed and all(p.name in domains for p in needed):
        return lambda: function(**{p.name: values[p.name] for p in needed})
    if len(needed) == 1:
        return lambda: function(values)
    unknown = ", ".join(p.name for p in needed if p.name not in domains) or "none"
    raise UsageError(
        f"{place} must take one mapping of all parameters, or parameters by name; its arguments are unknown: {unknown}."
    )


def _table(
    decided: list[tuple[dict[str, int], bool]],
    domains: Mapping[str, Domain],
    variable: Callable[[str], e.Expr],
    place: str,
) -> c.Constraint:
    names = [name for name in domains if any(name in codes for codes, _ in decided)]
    if all(holds for _, holds in decided):
        return c.AllOf(())
    counts = {True: 0, False: 0}
    for codes, holds in decided:
        free = 1
        for name in names:
            free *= 1 if name in codes else domains[name].size
        counts[holds] += free
    listing = counts[True] <= counts[False]
    if counts[listing] > MAX_ROWS:
        raise UsageError(
            f"{place} becomes a table of {counts[listing]:,} rows; at most {MAX_ROWS:,} are taken. "
            "Write it as the text of an expression."
        )
    rows: list[tuple[int, ...]] = []
    for codes, holds in decided:
        if holds is listing:
            rows += itertools.product(*((codes[name],) if name in codes else tuple(domains[name]) for name in names))
    rule = table_of(tuple(variable(name) for name in names), rows)
    return rule if listing else c.negate(rule)
