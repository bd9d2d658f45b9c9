"""A Python function traced on symbols: called once with symbols, and what it does with them is the tape. No torch.

Symbols know Python's operators, methods named as the operations are, and the functions of torch that compute the same
(`torch.exp`, `torch.nn.functional.gelu`, `torch.where`), through `__torch_function__`. Whatever else a function does
runs when it is traced: once where nothing that it reads can change unseen (`reads.py`), else at every call. Branches on
a symbol are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from constrint.errors import UsageError
from constrint.kernels.gemm.traced.expression import ACC, OPERATIONS, Expression, Tape, TapeOperation
from constrint.kernels.gemm.traced.reads import FunctionMemo

#: Names by which torch and Python call operations.
NAMES = {
    "add": "add", "__add__": "add", "sub": "sub", "subtract": "sub", "mul": "mul", "multiply": "mul", "div": "div",
    "divide": "div", "true_divide": "div", "neg": "neg", "negative": "neg", "abs": "abs", "absolute": "abs",
    "minimum": "min", "maximum": "max", "where": "where", "lt": "lt", "le": "le", "eq": "eq", "ne": "ne",
    "less": "lt", "less_equal": "le", "not_equal": "ne", "logical_and": "and", "logical_or": "or",
    "logical_not": "not", "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "erf": "erf", "tanh": "tanh",
    "sigmoid": "sigmoid", "relu": "relu", "silu": "silu", "gelu": "gelu",
}  # fmt: skip
#: Powers that are other operations.
POWERS = {0.5: "sqrt", -0.5: "rsqrt"}
NUMBERS = (int, float)


class WritableTape(Protocol):
    """A tape that a function is traced to."""

    def constant(self, value: float, /) -> int:
        """The place of a constant."""

    def operation(self, op: str, /, *args: int) -> int:
        """The place of an operation on earlier places."""


class TracedValue:
    """A place of a tape, as a function sees it. A language of other operations is a subclass."""

    __slots__ = ("_place", "_tape")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy's numbers leave operators to this class
    #: For messages: who refuses, what is traced, and how its functions are called.
    _owner, _traced, _function = "matmul: ", "an epilogue", "torch."
    _advice = "a tensor is an operand: name a parameter after it, and give it in operands={...}."
    #: Its operations, and names by which torch calls them.
    _operations: ClassVar[Mapping[str, TapeOperation]] = OPERATIONS
    _names: ClassVar[Mapping[str, str]] = NAMES

    def __init__(self, tape: WritableTape, place: int) -> None:
        self._tape, self._place = tape, place

    def _apply(self, op: str, *others: Any, is_reversed: bool = False) -> TracedValue:
        values = (self, *others)
        return apply(op, *(values[::-1] if is_reversed else values))

    def __add__(self, other: Any) -> TracedValue:
        return self._apply("add", other)

    def __radd__(self, other: Any) -> TracedValue:
        return self._apply("add", other, is_reversed=True)

    def __sub__(self, other: Any) -> TracedValue:
        return self._apply("sub", other)

    def __rsub__(self, other: Any) -> TracedValue:
        return self._apply("sub", other, is_reversed=True)

    def __mul__(self, other: Any) -> TracedValue:
        return self._apply("mul", other)

    def __rmul__(self, other: Any) -> TracedValue:
        return self._apply("mul", other, is_reversed=True)

    def __truediv__(self, other: Any) -> TracedValue:
        return self._apply("div", other)

    def __rtruediv__(self, other: Any) -> TracedValue:
        return self._apply("div", other, is_reversed=True)

    def __neg__(self) -> TracedValue:
        return self._apply("neg")

    def __pos__(self) -> TracedValue:
        return self

    def __abs__(self) -> TracedValue:
        return self._apply("abs")

    def __pow__(self, power: Any) -> TracedValue:
        power = power if isinstance(power, NUMBERS) else None
        if power in POWERS:
            return self._apply(POWERS[power])
        if power in (2, 3, 4):
            square = self * self
            return square if power == 2 else square * (self if power == 3 else square)
        raise UsageError(f"{self._owner}powers in {self._traced} are 2, 3, 4, 0.5 and -0.5, got {power!r}.")

    def __lt__(self, other: Any) -> TracedValue:
        return self._apply("lt", other)

    def __le__(self, other: Any) -> TracedValue:
        return self._apply("le", other)

    def __gt__(self, other: Any) -> TracedValue:
        return self._apply("lt", other, is_reversed=True)

    def __ge__(self, other: Any) -> TracedValue:
        return self._apply("le", other, is_reversed=True)

    def __eq__(self, other: Any) -> TracedValue:  # type: ignore[override]
        return self._apply("eq", other)

    def __ne__(self, other: Any) -> TracedValue:  # type: ignore[override]
        return self._apply("ne", other)

    def __and__(self, other: Any) -> TracedValue:
        return self._apply("and", other)

    def __or__(self, other: Any) -> TracedValue:
        return self._apply("or", other)

    def __invert__(self) -> TracedValue:
        return self._apply("not")

    def __bool__(self) -> NoReturn:
        raise UsageError(
            f"{self._owner}{self._traced} is traced once, so it cannot branch on a value (if, and, or, min, max): use "
            f"{self._function}where(condition, x, y), &, |, {self._function}minimum and {self._function}maximum."
        )

    def __getattr__(self, name: str) -> Callable[..., TracedValue]:
        known = [name for name in self._operations if name not in ("and", "or", "not")]
        op = name if name in known else self._names.get(name)
        if op is None:
            raise UsageError(f"{self._owner}a value of {self._traced} has no {name!r}; there are {', '.join(known)}.")
        return lambda *others: apply(op, self, *others)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> TracedValue:
        name, options = getattr(function, "__name__", str(function)), dict(kwargs or {})
        if name == "gelu" and options.get("approximate", "none") in ("none", "tanh"):
            name = "gelu_tanh" if options.pop("approximate", "none") == "tanh" else name
        if options.pop("inplace", False):
            raise UsageError(f"{cls._owner}{name} changes nothing in place in {cls._traced}.")
        if name in ("clamp", "clip"):
            return _clamped(*args, **options)
        if name in ("gt", "greater", "ge", "greater_equal") and len(args) == 2 and not options:
            return apply("lt" if name in ("gt", "greater") else "le", *args[::-1])
        if name == "square" and len(args) == 1 and not options:
            return apply("mul", args[0], args[0])
        op = name if name == "gelu_tanh" else cls._names.get(name)
        if op is None or options:
            what = f"the option {next(iter(options))!r} of {name}" if op is not None else f"torch's function {name!r}"
            raise UsageError(f"{cls._owner}{cls._traced} has no {what}; there are {', '.join(cls._operations)}.")
        return apply(op, *args)


def _clamped(value: Any, min: Any = None, max: Any = None) -> TracedValue:
    if min is not None:
        value = apply("max", value, min)
    if max is not None:
        value = apply("min", value, max)
    if not isinstance(value, TracedValue):
        raise UsageError("clamp takes a least or a largest value.")
    return value


def apply(op: str, *values: Any) -> TracedValue:
    """The symbol of an operation on symbols and numbers.

    Raises:
        UsageError: For anything else, tensors among them: these are operands, by name.
    """
    first = next(value for value in values if isinstance(value, TracedValue))
    tape, owner, traced = first._tape, first._owner, first._traced
    places = []
    for value in values:
        if isinstance(value, TracedValue):
            if value._tape is not tape:
                raise UsageError(f"{owner}{traced} mixes values of two tracings.")
            places.append(value._place)
        elif isinstance(value, NUMBERS) and not isinstance(value, bool):
            try:
                places.append(tape.constant(float(value)))
            except OverflowError as error:
                raise UsageError(f"{owner}an integer is too large for a constant of {traced}.") from error
        else:
            raise UsageError(
                f"{owner}{traced} computes with its parameters and numbers, got {type(value).__name__}; {first._advice}"
            )
    return type(first)(tape, tape.operation(op, *places))


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters of an epilogue, the sum's first.

    Raises:
        UsageError: For a function without plain parameters.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(f"matmul: epilogue is a function or a text, got {type(function).__name__}.") from error
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(p.name for p in parameters if p.kind in plain and p.default is inspect.Parameter.empty)
    starred = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not names or starred:
        raise UsageError("matmul: an epilogue's parameters are the sum, then operands by name, without * and **.")
    return names


class TracedEpilogue(NamedTuple):
    """An epilogue as it is called.

    Args:
        text: Its tape.
        names: Names of its operands, in the order of the function's parameters.
        order: Those that the tape reads, in its order.
    """

    text: str
    names: tuple[str, ...]
    order: tuple[str, ...]

    @staticmethod
    def of(expression: Expression, names: tuple[str, ...] | None = None) -> TracedEpilogue:
        """An expression whose operands are these, or those that it reads."""
        return TracedEpilogue(expression.text, expression.operands if names is None else names, expression.operands)


def trace(function: Callable[..., Any]) -> TracedEpilogue:
    """A function's epilogue: the function is called once, with symbols.

    Raises:
        UsageError: When the function does what an epilogue cannot; says what.
    """
    names, tape = parameters_of(function), Tape()
    if ACC in names[1:]:
        raise UsageError(f"matmul: {ACC!r} is the name of the sum, which comes first.")
    symbols = [TracedValue(tape, tape.operand(name)) for name in (ACC, *names[1:])]
    result = function(*symbols)
    if isinstance(result, NUMBERS) and not isinstance(result, bool):
        return TracedEpilogue.of(tape.ended(tape.constant(float(result))), names[1:])
    if not isinstance(result, TracedValue) or result._tape is not tape:
        raise UsageError(f"matmul: an epilogue returns a value computed from its parameters, got {result!r:.80}.")
    return TracedEpilogue.of(tape.ended(result._place), names[1:])


#: `trace` of a function, from memory while all that the function reads is as it was.
traced = FunctionMemo(trace)
