"""Integer expressions: variables, numbers and exact operations, built with Python's operators.

An expression is a tree that is stored, evaluated and rendered; it never computes with floats. Sums and products are
n-ary and flat. Comparisons build constraints, so `bool(x == 1)` is refused. `Node` is the base of expressions and
constraints. Some methods need files that import this one (comparison, evaluation, text): `constrint/model/__init__.py`
enters these functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakValueDictionary

from constrint.errors import UnknownNameError, UsageError
from constrint.model import operations

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from constrint.model.constraint import Comparison

MAX_DEPTH: Final = 150
MAX_NODES: Final = 100_000


def check_shape(depth: int, size: int) -> None:
    """Refuses a tree that is too deep or too large to handle within bounds."""
    if depth > MAX_DEPTH:
        raise UsageError(f"an expression is nested {depth} levels deep; the limit is {MAX_DEPTH}. Split it up.")
    if size > MAX_NODES:
        raise UsageError(f"an expression has {size} parts; the limit is {MAX_NODES}. Split it up.")


class Node:
    """An expression or a constraint; immutable."""

    __slots__ = ("_variables", "depth", "size")

    #: Writes a node in the text language; entered for `Expr` and for `Constraint` in `constrint/model/__init__.py`.
    writer: ClassVar[Callable[[Any], str]]

    depth: int
    size: int
    _variables: frozenset[str] | None

    def measure(self, parts: Sequence[Node]) -> None:
        """Sets depth and size from the parts; refuses a tree beyond the limits."""
        self._variables = None
        depth, size = 0, 1
        for part in parts:  # quicker than `max` and `sum`: every node of every rule comes here
            depth = part.depth if part.depth > depth else depth
            size += part.size
        self.depth, self.size = depth + 1, size
        check_shape(depth + 1, size)

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


#: A name that stands in text as it is; any other one stands between backquotes.
NAME_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: A name with dots, which a constant may have: `gpu.sm_count`.
DOTTED_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+\Z")
MAX_NAME: Final = 1_000
RESERVED: Final[frozenset[str]] = frozenset(
    word
    for words in (
        ("and", "or", "not", "in", "divides", "step", "because", "true", "false"),
        ("none", "var", "const", "problem", "maximise", "minimise", "maximize", "minimize"),
    )
    for word in words
)


def check_name(name: object, what: str) -> str:
    """Returns `name` if it may name a variable or a constant: any text that can be written."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"{what} must be text of at least one character, got {name!r}.")
    if len(name) > MAX_NAME:
        raise UsageError(f"{what} has {len(name):,} characters; at most {MAX_NAME:,} are allowed.")
    if not name.isascii() and any("\ud800" <= ch <= "\udfff" for ch in name):
        raise UsageError(f"{what} {name!r} holds half of a surrogate pair, which is no character.")
    return name


def as_expr(value: object) -> Expr:
    """Returns an expression: the value itself, an integer as a `Const`, or 1 where a constraint holds and else 0."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Node):
        return Truth(value)
    if getattr(type(value), "exact_fraction", False):
        raise UsageError(f"{value} is a fraction, and an integer is needed here; multiply it by its denominator.")
    if hasattr(type(value), "one_of"):
        raise UsageError(f"the values of {value} are no numbers; compare it by ==, != or one_of.")
    if callable(value):
        name = getattr(value, "__name__", repr(value))
        raise UsageError(f"{name} is a function, and a number is needed here; call it, as in {name}([a, b]).")
    return Const(operations.as_int(value, "an operand"))


def _flat(op: str, parts: tuple[Expr, ...]) -> Expr:
    flat: list[Expr] = []
    for part in parts:
        flat.extend(part.args if isinstance(part, Calculation) and part.op == op else (part,))
        check_shape(1, len(flat))
    return Calculation(op, tuple(flat)) if len(flat) > 1 else flat[0]


def add(*terms: Expr) -> Expr:
    """Adds; a sum of sums is one flat sum."""
    return _flat("add", terms)


def mul(*factors: Expr) -> Expr:
    """Multiplies; a product of products is one flat product."""
    return _flat("mul", factors)


def neg(expr: Expr) -> Expr:
    """Negates; an unnamed number becomes the negative number."""
    if isinstance(expr, Const) and not expr.name:
        return Const(-expr.number)
    if isinstance(expr, Calculation) and expr.op == "neg":
        return expr.args[0]
    return Calculation("neg", (expr,))


def _both_ways(build: Callable[[Expr, Expr], Expr], sign: str = "") -> tuple[Callable[[Expr, object], Expr], ...]:
    """Make the two methods of an operator, for an expression on its left and for one on its right."""

    def from_left(self: Expr, other: Any) -> Any:
        if sign and is_fractional(other):
            return Expr.fractions(sign, self, other)
        return build(self, as_expr(other))

    def from_right(self: Expr, other: Any) -> Any:
        if sign and is_fractional(other):
            return Expr.fractions(sign, other, self)
        return build(as_expr(other), self)

    return from_left, from_right


def _compared(op: str) -> Callable[[Expr, object], Comparison]:
    """The method of a comparison."""

    def compare(self: Expr, other: Any) -> Any:
        if is_fractional(other):
            return Expr.fractions(op, self, other)
        return Expr.comparison(self, op, as_expr(other))

    return compare


def is_fractional(value: object) -> bool:
    """Whether an operand requires exact fractions: a float, a `Fraction` or a `Ratio`."""
    return isinstance(value, (float, Fraction)) or getattr(type(value), "exact_fraction", False)


def _junction(sign: str) -> tuple[Callable[[Expr, Any], Any], ...]:
    """The two methods of `& | ^`: bitwise on integers, logical beside a condition."""

    def from_left(self: Expr, other: Any) -> Any:
        if self.is_condition or (isinstance(other, Node) and not isinstance(other, Expr)):
            return Expr.junction(sign, self, other)
        return Calculation(sign, (self, as_expr(other)))

    def from_right(self: Expr, other: Any) -> Any:
        return Calculation(sign, (as_expr(other), self))

    return from_left, from_right


class Expr(Node):
    """An integer expression; `+ - * // % **` build larger ones, comparisons build constraints."""

    __slots__ = ("__weakref__", "named")
    #: Whether the expression is a variable with the values True and False.
    is_condition: bool = False
    # numpy integers on the left must leave the operator to us.
    __array_ufunc__ = None

    # Functions of files that import this one; `constrint/model/__init__.py` enters all of them.
    #: Builds a comparison of two expressions: `constraint.Comparison`.
    comparison: ClassVar[Callable[[Expr, str, Expr], Comparison]]
    #: Arithmetic and comparisons with fractions: `ratio.fractions`.
    fractions: ClassVar[Callable[[str, Any, Any], Any]]
    #: Joins conditions by `& | ^`: `logic.junction`.
    junction: ClassVar[Callable[[str, Any, Any], Any]]
    #: Evaluates an expression row by row: `columns.expression_column`.
    evaluator: ClassVar[Callable[[Expr, Mapping[str, ArrayLike]], NDArray[np.int64]]]
    #: Whether a named number stands somewhere in the expression.
    named: bool

    @property
    def args(self) -> tuple[Expr, ...]:
        """The operands; empty for a variable or a number."""
        return ()

    def operands(self) -> tuple[Expr, ...]:
        """The operands; empty for a variable or a number."""
        return self.args

    def same(self, other: Expr) -> bool:
        """Says whether both are the same expression (`==` builds a constraint instead)."""
        return self.key() == other.key()

    def value(self, assignment: Mapping[str, int]) -> int:
        """Evaluates exactly.

        Args:
            assignment: An integer for each variable of the expression.

        Raises:
            UndefinedValueError: On a division by zero, an inexact `/` or a negative exponent.
        """
        raise NotImplementedError

    def columns(self, columns: Mapping[str, ArrayLike]) -> NDArray[np.int64]:
        """Evaluates row by row over integer columns; exact or an error, never a wrapped number.

        Raises:
            IntegerOverflowError: When a row's value leaves 64 bits.
            UndefinedValueError: When a row has no value.
        """
        return Expr.evaluator(self, columns)

    def __bool__(self) -> bool:
        raise TypeError(
            f"the expression {self} has no truth value; compare it (x == 1) and combine comparisons with "
            "all_of, any_of, negate, implies"
        )

    # A class that defines `==` loses the inherited hash.
    def __hash__(self) -> int:
        return hash(self.key())

    __add__, __radd__ = _both_ways(add, "+")
    __sub__, __rsub__ = _both_ways(lambda a, b: add(a, neg(b)), "-")
    __mul__, __rmul__ = _both_ways(mul, "*")
    __floordiv__, __rfloordiv__ = _both_ways(lambda a, b: Calculation("floordiv", (a, b)))
    __truediv__, __rtruediv__ = _both_ways(lambda a, b: Calculation("div", (a, b)), "/")
    __mod__, __rmod__ = _both_ways(lambda a, b: Calculation("mod", (a, b)))
    __pow__, __rpow__ = _both_ways(lambda a, b: Calculation("pow", (a, b)))

    __and__, __rand__ = _junction("bitand")
    __or__, __ror__ = _junction("bitor")
    __xor__, __rxor__ = _junction("bitxor")
    __lshift__, __rlshift__ = _both_ways(lambda a, b: mul(a, Calculation("pow", (Const(2), b))))
    __rshift__, __rrshift__ = _both_ways(lambda a, b: Calculation("floordiv", (a, Calculation("pow", (Const(2), b)))))

    def __neg__(self) -> Expr:
        return neg(self)

    def __invert__(self) -> Any:
        return Expr.junction("not", self, None) if self.is_condition else add(neg(self), Const(-1))

    def __abs__(self) -> Expr:
        return absolute(self)

    if TYPE_CHECKING:  # type checkers take comparisons that are assigned for those of `object`

        def __eq__(self, other: object) -> Comparison: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Comparison: ...  # type: ignore[override]
    else:
        __eq__, __ne__ = _compared("=="), _compared("!=")
    __le__, __lt__ = _compared("<="), _compared("<")
    __ge__, __gt__ = _compared(">="), _compared(">")


class Var(Expr):
    """A variable, known by its name alone: `Var("x") is Var("x")`, so it works as a dictionary key."""

    __slots__ = ("name",)
    name: str
    _interned: ClassVar[WeakValueDictionary[str, Var]] = WeakValueDictionary()

    def __new__(cls, name: str) -> Var:
        """Returns the one variable of that name."""
        existing = cls._interned.get(name) if isinstance(name, str) else None
        if existing is not None:
            return existing
        check_name(name, "a variable's name")
        self = super().__new__(cls)
        self.name, self.depth, self.size, self.named, self._variables = name, 1, 1, False, frozenset((name,))
        return cls._interned.setdefault(name, self)

    def __reduce__(self) -> tuple[type[Var], tuple[str]]:
        return Var, (self.name,)

    def key(self) -> tuple[Any, ...]:
        """Returns ("var", name)."""
        return ("var", self.name)

    def value(self, assignment: Mapping[str, int]) -> int:
        """Looks the variable up."""
        try:
            return operations.as_int(assignment[self.name], f"the value of {self.name!r}")
        except KeyError:
            raise UnknownNameError("variable", self.name, assignment, "The assignment gives it no value.") from None

    def __hash__(self) -> int:
        return hash(("var", self.name))


class Truth(Expr):
    """A condition as a number: 1 where it holds, 0 elsewhere."""

    __slots__ = ("condition",)

    def __init__(self, condition: Any) -> None:
        self.condition = condition
        self.measure((condition,))
        self.named = True

    def operands(self) -> tuple[Any, ...]:
        """The condition."""
        return (self.condition,)

    def key(self) -> tuple[Any, ...]:
        """Returns ("truth", key of the condition)."""
        return ("truth", self.condition.key())

    def value(self, assignment: Mapping[str, int]) -> int:
        """Decides the condition."""
        return int(self.condition.holds(assignment))

    def __hash__(self) -> int:
        return hash(self.key())


class Const(Expr):
    """A number, with a name where the text gives it one (`const smem_bytes = 101376`)."""

    __slots__ = ("name", "number")

    def __init__(self, number: object, name: str = "") -> None:
        self.number = operations.as_int(number, "a constant")
        self.name = check_name(name, "a constant's name") if name else ""
        self.depth, self.size, self.named, self._variables = 1, 1, bool(self.name), frozenset()

    def key(self) -> tuple[Any, ...]:
        """Returns ("const", number, name)."""
        return ("const", self.number, self.name)

    def value(self, assignment: Mapping[str, int]) -> int:
        """Returns the number."""
        return self.number


class Calculation(Expr):
    """An operation on expressions; `op` is the name of one in `operations.TABLE`."""

    __slots__ = ("_args", "op")

    def __init__(self, op: str, args: tuple[Expr, ...]) -> None:
        self.op, self._args = op, args
        self.measure(args)
        self.named = any(a.named for a in args)

    @property
    def args(self) -> tuple[Expr, ...]:
        """The operands in order."""
        return self._args

    def key(self) -> tuple[Any, ...]:
        """Returns (op, key of each operand...)."""
        return (self.op, *(a.key() for a in self._args))

    def value(self, assignment: Mapping[str, int]) -> int:
        """Applies the operation to the operands' values."""
        return operations.apply(self.op, tuple(a.value(assignment) for a in self._args))


def is_total(expr: Expr) -> bool:
    """Whether an expression has a value for all integer assignments."""
    if isinstance(expr, Calculation) and expr.op == "element":
        return False
    if isinstance(expr, Calculation) and expr.op in operations.BINARY and operations.BINARY[expr.op].partial:
        right = expr.args[1]
        usable = isinstance(right, Const) and (right.number >= 0 if expr.op == "pow" else right.number != 0)
        if not usable or expr.op == "div":
            return False
    return all(is_total(a) for a in expr.args)


def const(value: object, name: str = "") -> Const:
    """Makes a number that keeps its name in messages: `const(101376, "smem_bytes")`."""
    return Const(value, name)


def ceildiv(a: object, b: object) -> Expr:
    """Quotient a / b rounded up; no value where b is 0."""
    return Calculation("ceildiv", (as_expr(a), as_expr(b)))


def _nary(op: str, args: tuple[object, ...]) -> Expr:
    if not args:
        raise UsageError(f"{op} needs at least one argument.")
    return Calculation(op, tuple(as_expr(a) for a in args))


def minimum(*args: object) -> Expr:
    """Smallest of its arguments."""
    return _nary("min", args)


def maximum(*args: object) -> Expr:
    """Largest of its arguments."""
    return _nary("max", args)


def gcd(*args: object) -> Expr:
    """Greatest common divisor, never negative; gcd(0, 0) is 0."""
    return _nary("gcd", args)


def lcm(*args: object) -> Expr:
    """Least common multiple, never negative; 0 if an argument is 0."""
    return _nary("lcm", args)


def absolute(arg: object) -> Expr:
    """Absolute value."""
    return Calculation("abs", (as_expr(arg),))
