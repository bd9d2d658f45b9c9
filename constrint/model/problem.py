"""A problem: named integer variables, constraints, and objectives in order. It stores; it never solves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar

from constrint.errors import UnknownNameError, UsageError
from constrint.model.constraint import ESTIMATED, KINDS, Constraint, as_condition
from constrint.model.domain import Coded, Domain
from constrint.model.expr import Const, Expr, Var, as_expr, check_name
from constrint.model.operations import as_int
from constrint.model.ratio import expression_of


@dataclass(frozen=True)
class Objective:
    """An expression to minimise or maximise.

    Attributes:
        expr: The expression; of a fraction, its numerator.
        maximise: Whether the largest value is the best.
        scale: The denominator of a fraction, which is fixed and positive.
    """

    expr: Expr
    maximise: bool
    scale: int = 1

    #: Writes a fraction; entered in `constrint/model/__init__.py`.
    writer: ClassVar[Callable[[Expr, int], str]]

    def __str__(self) -> str:
        return f"{'maximise' if self.maximise else 'minimise'} {Objective.writer(self.expr, self.scale)}"

    def value(self, assignment: Mapping[str, int]) -> int | float | Fraction:
        """Its value for codes of the variables, as it was stated.

        Raises:
            UndefinedValueError: Where it has none.
        """
        return self.stated(self.expr.value(assignment))

    def stated(self, number: int) -> int | float | Fraction:
        """The number that a value of `expr` stands for: itself, or a fraction, as a float where that is equal."""
        exact = Fraction(number, self.scale)
        if exact.denominator == 1:
            return exact.numerator
        try:
            rounded = float(exact)
        except OverflowError:
            return exact
        return rounded if Fraction(rounded) == exact else exact

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objective) and self.maximise == other.maximise and self.expr.same(other.expr)

    def __hash__(self) -> int:
        return hash((self.expr.key(), self.maximise))


@dataclass(frozen=True, eq=False)
class SoftConstraint:
    """A rule that may be violated at a price."""

    constraint: Constraint
    weight: int

    def _content(self) -> tuple[Any, ...]:
        return self.weight, self.constraint.because, self.constraint.name, self.constraint.key()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftConstraint) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())


class Problem:
    """Variables with their domains, constraints between them, and objectives.

    Example:
        >>> p = Problem("gemm")
        >>> tile_m = p.int_var("tile_m", values=[16, 32, 64])
        >>> rule = p.add(tile_m * 8 <= 300, because="a tile has at most 300 bytes")
        >>> str(rule)
        'tile_m * 8 <= 300'
    """

    #: The compiled core's form of this problem once it was built, else None.
    core: object | None = None
    _objectives: tuple[Objective, ...] = ()
    _soft: tuple[SoftConstraint, ...] = ()
    #: Writes a problem in the text language: `text.render.render`, entered in `constrint/model/__init__.py`.
    writer: ClassVar[Callable[[Problem], str]]

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._variables: dict[str, Domain] = {}
        self._constraints: list[Constraint] = []
        self._estimates: list[Constraint] = []
        self._constants: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The variables in declared order."""
        return tuple(self._variables)

    @property
    def variables(self) -> Mapping[str, Domain]:
        """The domain of every variable, in declared order."""
        return MappingProxyType(self._variables)

    @property
    def num_combinations(self) -> int:
        """Number of combinations of the declared domains."""
        return math.prod(domain.size for domain in self._variables.values())

    @property
    def has_codes(self) -> bool:
        """Whether some variable has other values than plain integers."""
        return any(domain.labels is not None for domain in self._variables.values())

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The constraints in the order in which they were added."""
        return tuple(self._constraints)

    @property
    def estimates(self) -> tuple[Constraint, ...]:
        """The estimated rules, which remove no solutions; see `strict`."""
        return tuple(self._estimates)

    @property
    def constants(self) -> Mapping[str, int]:
        """The named numbers that constraints use."""
        return MappingProxyType(self._constants)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Objectives in lexicographic order: a later one decides between solutions that tie in all earlier ones."""
        return self._objectives

    @property
    def objective(self) -> Objective | None:
        """The most important objective, if there is one."""
        return self._objectives[0] if self._objectives else None

    @property
    def soft_constraints(self) -> tuple[SoftConstraint, ...]:
        """The rules that may be violated at a price, in the order in which they were added."""
        return self._soft

    def int_var(
        self,
        name: str,
        values: Iterable[object] | None = None,
        *,
        lower: object = None,
        upper: object = None,
        step: object = 1,
        because: str = "",
    ) -> Var:
        """Declares a variable.

        Args:
            name: Letters, digits and `_`.
            values: The values it may take; their order is the order of preference.
            lower: Smallest value, where no values are listed.
            upper: Largest value, where no values are listed.
            step: Distance between values of a range.
            because: The reason for these values.

        Returns:
            The variable, to build expressions with.
        """
        var = Var(name)
        if values is not None and (lower is not None or upper is not None):
            raise UsageError(f"variable {name!r}: give either values or lower and upper, not both.")
        if values is not None:
            domain = Domain.from_values(values, because, f"variable {name!r}")
        elif lower is None or upper is None:
            raise UsageError(f"variable {name!r} needs values=[...], or both lower= and upper=.")
        else:
            domain = Domain.from_range(lower, upper, step, because, f"variable {name!r}")
        self.declare(name, domain)
        return var

    def var(self, name: str, values: Iterable[object], *, because: str = "") -> Any:
        """Declare a variable of any hashable values: integers, floats, bools, text, `None` and others.

        Args:
            name: Its name.
            values: The values it may take, in order of preference; numpy scalars become Python values.
            because: Why it may take these values only.

        Returns:
            The expression: a `Var` for integers; a `Var` that is also a condition for True and False; an exact
            fraction for other numbers, with `+ - *`, division by a number, and comparisons; for all other values a
            `Symbol`, compared by `==`, `!=` and `one_of` only.

        Raises:
            UsageError: When a value cannot be hashed or equals nothing (not-a-number).
        """
        domain = Domain.of(values, because, f"variable {name!r}")
        self.declare(name, domain)
        return expression_of(name, domain)

    def bool_var(self, name: str, *, because: str = "") -> Any:
        """Declares a variable of False and True: a condition, and 0 or 1 in sums."""
        return self.var(name, (False, True), because=because)

    def int_vars(self, name: str, *sizes: int, **options: Any) -> list[Any]:
        """Declares an array of variables: `int_vars("x", 9, 9, lower=1, upper=9)[2][0]` is the variable `x_2_0`.

        Args:
            name: The beginning of their names.
            sizes: How many along each dimension.
            options: Arguments of `int_var`.
        """
        return self._array(name, sizes, lambda full: self.int_var(full, **options))

    def bool_vars(self, name: str, *sizes: int, because: str = "") -> list[Any]:
        """Declares an array of variables of False and True, as `int_vars` does."""
        return self._array(name, sizes, lambda full: self.bool_var(full, because=because))

    def _array(self, name: str, sizes: Sequence[int], declare: Callable[[str], Any]) -> list[Any]:
        if not sizes or any(as_int(size, "the size of an array of variables") < 0 for size in sizes):
            raise UsageError(f"an array of variables {name!r} needs its sizes, none below 0, got {tuple(sizes)}.")
        first, *rest = sizes
        parts = (f"{name}_{place}" for place in range(first))
        return [self._array(part, rest, declare) if rest else declare(part) for part in parts]

    def declare(self, name: str, domain: Domain) -> Var:
        """Declares a variable with a ready domain."""
        var = Var(name)
        if not isinstance(domain, Domain):
            raise UsageError(f"variable {name!r} is declared with a Domain, got {domain!r} ({type(domain).__name__}).")
        if name in self._variables:
            raise UsageError(f"variable {name!r} is declared twice; remove one declaration.")
        if name in self._constants:
            raise UsageError(f"{name!r} is already the name of a constant; rename one of them.")
        self._variables[name] = domain
        self.core = None
        return var

    def constant(self, name: str, value: object) -> Const:
        """Name a number for use in rules and messages."""
        number = Const(value, check_name(name, "a constant's name"))
        if name in self._variables or self._constants.get(name, number.number) != number.number:
            raise UsageError(f"the name {name!r} already stands for something else; rename one of them.")
        self._constants[name] = number.number
        return number

    def add(self, constraint: Any, because: str = "", name: str = "", kind: str = "") -> Constraint:
        """Adds a constraint.

        Args:
            constraint: For example `x * y <= 4096`.
            because: The reason; it appears in explanations.
            name: Short id of the rule.
            kind: Kind of the rule; estimated rules are stored apart and remove no solutions.

        Returns:
            The constraint as stored, with its reason and name.
        """
        if isinstance(constraint, Expr) and constraint.is_condition:
            constraint = as_condition(constraint, "add")
        if not isinstance(constraint, Constraint):
            hint = " A comparison of two Python numbers is a bool: is a variable missing?"
            raise UsageError(
                f"add takes a constraint such as x <= 4, got {constraint!r} ({type(constraint).__name__})."
                + (hint if isinstance(constraint, bool) else "")
            )
        for text in (because, name, kind):
            if not isinstance(text, str):
                raise UsageError(f"because, name and kind of a constraint must be text, got {text!r}.")
        if kind not in KINDS:
            raise UnknownNameError("kind of rule", kind, KINDS[1:], "Leave it out where nothing is known of it.")
        self._check_names(constraint)
        stored = constraint.labelled(because or constraint.because, name or constraint.name, kind or constraint.kind)
        if stored.kind == ESTIMATED:
            self._estimates.append(stored)
        else:
            self._constraints.append(stored)
            self.core = None
        return stored

    def strict(self) -> Problem:
        """Return a copy in which estimated rules are constraints."""
        twin = self.copy()
        twin._constraints += twin._estimates
        twin._estimates = []
        return twin

    def add_soft(self, constraint: Any, weight: object = 1, because: str = "", name: str = "") -> SoftConstraint:
        """Adds a constraint that a solution may violate: the total weight of the violated ones is minimised.

        That total counts before every objective; the set of solutions does not depend on it.

        Args:
            constraint: For example `x * y <= 4096`; a constraint with an undefined value is violated.
            weight: The price of violating it, at least 1.
            because: The reason; it appears in explanations.
            name: Short id of the rule.
        """
        price = as_int(weight, "the weight of a soft constraint")
        if price < 1:
            raise UsageError(f"the weight of a soft constraint must be at least 1, got {price}.")
        trial = self.copy()
        stored = SoftConstraint(trial.add(constraint, because, name), price)
        self._check_names(stored.constraint)
        self._soft = (*self._soft, stored)
        return stored

    def minimise(self, expr: object) -> None:
        """Add an objective: minimise `expr`, an integer or a fraction, among the optima of earlier objectives."""
        self._add_objective(expr, maximise=False)

    def maximise(self, expr: object) -> None:
        """Add an objective: maximise `expr`, among the optima of earlier objectives; see `minimise`."""
        self._add_objective(expr, maximise=True)

    def _add_objective(self, value: Any, maximise: bool) -> None:
        is_fraction = getattr(type(value), "exact_fraction", False)
        expr = as_expr(value.num if is_fraction else value)
        self._check_names(expr)
        self._objectives = (*self._objectives, Objective(expr, maximise, value.den if is_fraction else 1))

    def _check_names(self, item: Constraint | Expr) -> None:
        for missing in sorted(item.variables - self._variables.keys()):
            raise UnknownNameError(
                "variable", missing, self._variables, f"Declare it with int_var before using it in: {item}"
            )
        for name, number in named_constants(item).items():
            self.constant(name, number)
        for var in _variables_in(item) if any(d.labels is not None for d in self._variables.values()) else ():
            self._check_coding(var, item)

    def _check_coding(self, var: Var, item: Constraint | Expr) -> None:
        """Refuse a rule with a variable that codes its values differently from the declared domain."""
        domain = self._variables[var.name]
        scale, labels = (var.scale, var.labels) if isinstance(var, Coded) else (1, ())
        renumbered = scale == 0 and domain.labels is not None and labels != domain.labels
        if scale != domain.scale or renumbered:
            raise UsageError(
                f"variable {var.name!r} has the values {domain}, which are no integers; build rules with what "
                f"`var` returned for it, not with Var({var.name!r}): {item}"
            )

    def copy(self) -> Problem:
        """Returns an independent problem with the same content."""
        twin = Problem(self.name)
        twin._variables = dict(self._variables)
        twin._constraints = list(self._constraints)
        twin._estimates = list(self._estimates)
        twin._constants = dict(self._constants)
        twin._objectives, twin._soft = self._objectives, self._soft
        return twin

    def without_objective(self) -> Problem:
        """Return a copy without objectives and soft constraints."""
        return self.with_objectives()

    def with_objectives(self, *objectives: Objective) -> Problem:
        """Return a copy with only these objectives and no soft constraints."""
        twin = self.copy()
        twin._objectives, twin._soft = objectives, ()
        return twin

    def without(self, *constraints: Constraint | str) -> Problem:
        """Return a copy without these constraints (the stored objects, or their names)."""
        removed = {id(c) for c in constraints if isinstance(c, Constraint)}
        names = {c for c in constraints if isinstance(c, str)}
        twin = self.copy()
        twin._constraints = [c for c in self._constraints if id(c) not in removed and (c.name or None) not in names]
        if len(self._constraints) - len(twin._constraints) < len(removed) + len(names):
            raise UsageError(
                "without() takes constraints that this problem stores (what add() returned) or their names."
            )
        return twin

    def with_domain(self, name: str, domain: Domain) -> Problem:
        """Returns a copy in which variable `name` has another domain."""
        if name not in self._variables:
            raise UnknownNameError("variable", name, self._variables)
        twin = self.copy()
        twin._variables[name] = domain
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # The core's form cannot be copied or pickled: the copy is encoded at its first use.
        return {name: value for name, value in self.__dict__.items() if name != "core"}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return (
            self.name == other.name
            and list(self._variables.items()) == list(other._variables.items())
            and self._constants == other._constants
            and _same(self._constraints, other._constraints)
            and _same(self._estimates, other._estimates)
            and self._objectives == other._objectives
            and self._soft == other._soft
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return Problem.writer(self)

    def __repr__(self) -> str:
        return f"<Problem {self.name!r}: {len(self._variables)} variables, {len(self._constraints)} constraints>"


def _same(rules: Sequence[Constraint], others: Sequence[Constraint]) -> bool:
    return len(rules) == len(others) and all(a.same(b) for a, b in zip(rules, others, strict=True))


def _variables_in(item: Constraint | Expr) -> list[Var]:
    """The nodes of variables in a constraint or an expression, each once."""
    variables: dict[int, Var] = {}
    stack: list[Any] = [item]
    visited: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, Var):
            variables[id(node)] = node
        else:
            stack.extend(node.operands())
    return list(variables.values())


def named_constants(item: Constraint | Expr) -> dict[str, int]:
    """Named numbers that occur in a constraint or an expression."""
    constants: dict[str, int] = {}
    stack: list[Constraint | Expr] = [item]
    while stack:
        node = stack.pop()
        if isinstance(node, Const):
            if node.name and constants.setdefault(node.name, node.number) != node.number:
                raise UsageError(f"the constant {node.name!r} has two values in: {item}. Rename one of them.")
        elif isinstance(node, Constraint) or node.named:
            stack.extend(node.operands())
    return constants
