"""Constraints: statements about integer expressions that hold or do not, each with the reason why it stands.

Undefined values are relational: a comparison, `divides` or `in` with an undefined expression in it is false,
and the connectives above it (`not`, `or`, `->`) treat it as any false statement: `not (1 // x == 0)` holds for
x = 0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from constrint.errors import UndefinedValueError, UsageError
from constrint.model.domain import Domain
from constrint.model.expr import Expr, Node, Truth, as_expr, is_total

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}
C = TypeVar("C", bound="Constraint")


def _as_number(op: str) -> tuple[Callable[[Constraint, object], Expr], ...]:
    """The two methods of an arithmetic operator: a condition counts as 1 where it holds and as 0 elsewhere."""
    plain, reflected = getattr(Expr, f"__{op}__"), getattr(Expr, f"__r{op}__")
    return (lambda self, other: plain(Truth(self), other)), (lambda self, other: reflected(Truth(self), other))


def _compared(op: str) -> Callable[[Constraint, object], Comparison]:
    """The method of a comparison: `(x > 1) == (y > 1)` holds where both hold or neither does."""

    def compare(self: Constraint, other: Any) -> Any:
        if isinstance(other, bool):
            other = int(other)
        return Comparison(Truth(self), op, as_expr(other))

    return compare


def _joined_by(sign: str) -> tuple[Callable[[Constraint, object], Constraint], ...]:
    """The two methods of `& | ^` between conditions."""
    return (lambda self, other: Expr.junction(sign, self, other)), (
        lambda self, other: Expr.junction(sign, other, self)
    )


#: Kinds of rules. A configuration that breaks a certain rule cannot run as intended. One that breaks a redundant rule
#: runs, but does the same work as another configuration that is kept. An estimated rule may be wrong: it affects the
#: ranking, and prunes only under `Problem.strict`.
CERTAIN, REDUNDANT, ESTIMATED = "certain", "redundant", "estimated"
KINDS = ("", CERTAIN, REDUNDANT, ESTIMATED)


class Constraint(Node):
    """A statement that holds or does not hold for an assignment.

    Attributes:
        because: The reason for the rule; "" where none is stated.
        name: Short id of the rule; "" when it has none.
        kind: CERTAIN, REDUNDANT or ESTIMATED; "" where it is not stated.
    """

    __slots__ = ("_key", "_operands", "because", "kind", "name")
    #: Decides a constraint row by row; `constrint/model/__init__.py` enters `columns.constraint_column`.
    evaluator: ClassVar[Callable[[Constraint, Mapping[str, ArrayLike]], NDArray[np.bool_]]]
    because: str
    name: str
    kind: str

    def _setup(self, parts: tuple[Expr | Constraint, ...]) -> None:
        self.because, self.name, self.kind, self._operands = "", "", "", parts
        self._key: tuple[Any, ...] | None = None
        self.measure(parts)

    def operands(self) -> tuple[Expr | Constraint, ...]:
        """The expressions or constraints directly below."""
        return self._operands

    def key(self) -> tuple[Any, ...]:
        """Structure as nested tuples, without the reason and the name."""
        if self._key is None:
            self._key = (type(self).__name__, *(p.key() for p in self.operands()))
        return self._key

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Decides exactly, with Python integers, whether the constraint holds."""
        raise NotImplementedError

    def holds_columns(self, columns: Mapping[str, ArrayLike]) -> NDArray[np.bool_]:
        """Decides for every row of integer columns; exact."""
        return Constraint.evaluator(self, columns)

    def labelled(self: C, because: str = "", name: str = "", kind: str = "") -> C:
        """Returns the same constraint with a reason, a name and a kind."""
        twin = object.__new__(type(self))
        for cls in type(self).__mro__[:-1]:
            for slot in cls.__dict__["__slots__"]:
                object.__setattr__(twin, slot, getattr(self, slot))
        twin.because, twin.name, twin.kind = because, name, kind
        return twin

    def __bool__(self) -> bool:
        raise TypeError(
            f"the constraint {self} has no truth value by itself; use all_of, any_of, negate or implies "
            "(or & | ~ around conditions in brackets) instead of and, or, not, chained comparisons; use "
            ".holds({...}) to test an assignment, and a.same(b) to ask whether two constraints are the same text"
        )

    def same(self, other: object) -> bool:
        """Says whether both are the same constraint with the same reason and name (`==` builds a constraint)."""
        return (
            isinstance(other, Constraint)
            and (self.because, self.name) == (other.because, other.name)
            and self.key() == other.key()
        )

    # numpy integers on the left must leave the operator to us.
    __array_ufunc__ = None
    __and__, __rand__ = _joined_by("bitand")
    __or__, __ror__ = _joined_by("bitor")
    __xor__, __rxor__ = _joined_by("bitxor")
    __add__, __radd__ = _as_number("add")
    __sub__, __rsub__ = _as_number("sub")
    __mul__, __rmul__ = _as_number("mul")
    if TYPE_CHECKING:  # type checkers take comparisons that are assigned for those of `object`

        def __eq__(self, other: object) -> Comparison: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Comparison: ...  # type: ignore[override]
    else:
        __eq__, __ne__ = _compared("=="), _compared("!=")
    __le__, __lt__ = _compared("<="), _compared("<")
    __ge__, __gt__ = _compared(">="), _compared(">")

    def __invert__(self) -> Constraint:
        return negate(self)

    def __neg__(self) -> Expr:
        return -Truth(self)

    # A class that defines `==` loses the inherited hash.
    def __hash__(self) -> int:
        return hash(self.key())


class Comparison(Constraint):
    """left op right, with op one of == != <= < >= >."""

    __slots__ = ("left", "op", "right")

    def __init__(self, left: Expr, op: str, right: Expr) -> None:
        self.left, self.op, self.right = left, op, right
        self._setup((left, right))

    def key(self) -> tuple[Any, ...]:
        """Structure, with the operator."""
        if self._key is None:
            self._key = (self.op, self.left.key(), self.right.key())
        return self._key

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Compares the two values; false where one is undefined."""
        try:
            return bool(OPERATORS[self.op](self.left.value(assignment), self.right.value(assignment)))
        except UndefinedValueError:
            return False

    def __bool__(self) -> bool:
        # A condition equals itself: lists and dictionaries of constraints ask for that.
        if self.op in ("==", "!=") and isinstance(self.left, Truth) and self.left.same(self.right):
            return self.op == "=="
        return super().__bool__()


class Divides(Constraint):
    """divisor divides number; false for a divisor of 0."""

    __slots__ = ("divisor", "number")

    def __init__(self, divisor: Expr, number: Expr) -> None:
        self.divisor, self.number = divisor, number
        self._setup((divisor, number))

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Tests that nothing remains."""
        try:
            number, divisor = self.number.value(assignment), self.divisor.value(assignment)
        except UndefinedValueError:
            return False
        return divisor != 0 and number % divisor == 0


class IsIn(Constraint):
    """expr in domain."""

    __slots__ = ("domain", "expr")

    def __init__(self, expr: Expr, domain: Domain) -> None:
        self.expr, self.domain = expr, domain
        self._setup((expr,))

    def key(self) -> tuple[Any, ...]:
        """Structure, with the domain."""
        if self._key is None:
            d = self.domain
            self._key = ("in", self.expr.key(), d.lower, d.upper, d.step, d.listed)
        return self._key

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Looks the value up in the set."""
        try:
            return self.expr.value(assignment) in self.domain
        except UndefinedValueError:
            return False


class _Many(Constraint):
    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Constraint, ...]) -> None:
        self.parts = parts
        self._setup(parts)


class AllOf(_Many):
    """Every part holds; without parts it is true."""

    __slots__ = ()

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Conjunction."""
        verdicts = [p.holds(assignment) for p in self.parts]
        return all(verdicts)


class AnyOf(_Many):
    """At least one part holds; without parts it is false."""

    __slots__ = ()

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Disjunction."""
        verdicts = [p.holds(assignment) for p in self.parts]
        return any(verdicts)


class Not(Constraint):
    """The part does not hold."""

    __slots__ = ("part",)

    def __init__(self, part: Constraint) -> None:
        self.part = part
        self._setup((part,))

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Negation."""
        return not self.part.holds(assignment)


class Implies(Constraint):
    """Where the condition holds, the consequence holds."""

    __slots__ = ("condition", "consequence")

    def __init__(self, condition: Constraint, consequence: Constraint) -> None:
        self.condition, self.consequence = condition, consequence
        self._setup((condition, consequence))

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Implication."""
        condition, consequence = self.condition.holds(assignment), self.consequence.holds(assignment)
        return consequence or not condition


def as_condition(value: object, where: str) -> Constraint:
    """Return `value` as a constraint: itself, or that a variable with the values True and False is true.

    Raises:
        UsageError: For anything else; `where` names the caller in the message.
    """
    if isinstance(value, Constraint):
        return value
    if isinstance(value, Expr) and value.is_condition:
        return Comparison(value, "==", as_expr(1))
    raise UsageError(f"{where} takes constraints such as x <= 4, got {value!r} ({type(value).__name__}).")


def _checked(parts: Iterable[object], where: str) -> tuple[Constraint, ...]:
    return tuple(as_condition(part, where) for part in parts)


def _joined(junction: type[_Many], parts: tuple[Constraint, ...]) -> Constraint:
    flat: list[Constraint] = []
    for part in parts:
        flat.extend(part.parts if type(part) is junction else (part,))
    return flat[0] if len(flat) == 1 else junction(tuple(flat))


def all_of(*parts: Constraint) -> Constraint:
    """Build the constraint that all `parts` hold."""
    return _joined(AllOf, _checked(parts, "all_of"))


def any_of(*parts: Constraint) -> Constraint:
    """Build the constraint that at least one of `parts` holds."""
    return _joined(AnyOf, _checked(parts, "any_of"))


def negate(part: Constraint) -> Constraint:
    """Build the constraint that `part` does not hold."""
    (checked,) = _checked((part,), "negate")
    return checked.part if isinstance(checked, Not) else Not(checked)


def implies(condition: Constraint, consequence: Constraint) -> Constraint:
    """Build the constraint that `consequence` holds wherever `condition` does."""
    return Implies(*_checked((condition, consequence), "implies"))


def divides(divisor: object, number: object) -> Constraint:
    """`divisor` divides `number` without remainder; false for a divisor of 0."""
    return Divides(as_expr(divisor), as_expr(number))


def is_in(expr: object, values: Iterable[Any] | Domain) -> Constraint:
    """Build the constraint `expr` in `values`: integers, a range, a `Domain`, or values of a coded variable."""
    if hasattr(type(expr), "one_of"):
        rule: Constraint = expr.one_of(values)  # type: ignore[attr-defined]
        return rule
    if isinstance(values, Domain):
        return IsIn(as_expr(expr), Domain(values.lower, values.upper, values.step, values.listed))
    if isinstance(values, range):
        listed: Iterable[int] = values if values.step > 0 else values[::-1]
    else:
        listed = tuple(values)
    if not listed:
        return AnyOf(())
    return IsIn(as_expr(expr), Domain.from_values(listed))


def not_in(expr: object, values: Iterable[Any] | Domain) -> Constraint:
    """Build the constraint that `expr` has a value outside `values`; `negate(is_in(...))` needs no value."""
    member = is_in(expr, values)
    return negate(member) if hasattr(type(expr), "one_of") else with_values((as_expr(expr),), negate(member))


def with_values(exprs: Iterable[Expr], condition: Constraint) -> Constraint:
    """Build the constraint that all `exprs` have values and `condition` holds."""
    return all_of(*(Comparison(e, "==", e) for e in exprs if not is_total(e)), condition)
