"""What every operation of the expression language means: one table, which evaluation, bounds, text and encoding read.

The compiled core has its own implementation of the same meanings (`core/src`); tests hold both equal.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeVar

import numpy as np

from constrint.model import intervals, intmath
from constrint.model.intervals import Interval

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unary:
    """An operation on one operand."""

    name: str  #: Its name in expressions.
    exact: Callable[[int], int]  #: On Python integers.
    bounds: Callable[[Interval], Interval]  #: Bounds of the result from those of the operand.
    array: Callable[[Any], Any]  #: On int64 arrays; the caller has made sure that nothing overflows.


@dataclass(frozen=True, slots=True)
class Binary:
    """An operation on two operands, or on any number of them, taken from the left."""

    name: str  #: Its name in expressions, and in the text language where it is written as a function.
    exact: Callable[[int, int], int]  #: On Python integers; raises where it has no value.
    #: Bounds of the result from those of the operands; None where none are known.
    bounds: Callable[[Interval, Interval], Interval | None]
    #: On int64 arrays; the caller has made sure that nothing overflows and every row has a value.
    array: Callable[[Any, Any], Any]
    sign: str = ""  #: The sign between its operands in the text language; "" where it is written as a function.
    partial: bool = False  #: Whether it has no value for some operands.
    many: bool = False  #: Whether it takes any number of operands.
    alone: str = ""  #: The operation that it is on a single operand; "" where that operand is the result.


#: In the order of the compiled core's encoding.
TABLE: Final[tuple[Unary | Binary, ...]] = (
    Binary("add", operator.add, intervals.add_bounds, np.add, "+", many=True),
    Binary("mul", intmath.multiply, intervals.mul_bounds, np.multiply, "*", many=True),
    Unary("neg", operator.neg, intervals.neg_bounds, np.negative),
    Unary("abs", abs, intervals.abs_bounds, np.absolute),
    Binary("floordiv", intmath.floor_div, intervals.floordiv_bounds, np.floor_divide, "//", partial=True),
    Binary("ceildiv", intmath.ceil_div, intervals.ceildiv_bounds, lambda a, b: -(np.negative(a) // b), partial=True),
    Binary("div", intmath.exact_div, intervals.floordiv_bounds, np.floor_divide, "/", partial=True),
    Binary("mod", intmath.modulo, intervals.mod_bounds, np.remainder, "%", partial=True),
    Binary("pow", intmath.power, intervals.pow_bounds, np.power, "^", partial=True),
    Binary("min", min, intervals.min_bounds, np.minimum, many=True),
    Binary("max", max, intervals.max_bounds, np.maximum, many=True),
    Binary("gcd", math.gcd, intervals.gcd_bounds, np.gcd, many=True, alone="abs"),
    Binary("lcm", intmath.least_multiple, intervals.lcm_bounds, np.lcm, many=True, alone="abs"),
    Binary("bitand", operator.and_, intervals.bitand_bounds, np.bitwise_and, many=True),
    Binary("bitor", operator.or_, intervals.bitor_bounds, np.bitwise_or, many=True),
    Binary("bitxor", operator.xor, intervals.bitxor_bounds, np.bitwise_xor, many=True),
)
UNARY: Final[dict[str, Unary]] = {rule.name: rule for rule in TABLE if isinstance(rule, Unary)}
BINARY: Final[dict[str, Binary]] = {rule.name: rule for rule in TABLE if isinstance(rule, Binary)}


def apply(op: str, args: tuple[int, ...]) -> int:
    """Applies the operation named `op` to integers, exactly.

    Raises:
        UndefinedValueError: Where the operation has no value.
        LimitReachedError: Where a number would be too long.
    """
    if op in UNARY:
        return UNARY[op].exact(args[0])
    rule = BINARY[op]
    if len(args) == 2:
        return rule.exact(args[0], args[1])
    if len(args) == 1 and rule.alone:
        return UNARY[rule.alone].exact(args[0])
    return reduce(rule.exact, args)


def fold(op: str, args: Sequence[T], unary: Callable[[str, T], T], binary: Callable[[str, T, T], T]) -> T:
    """Applies an operation to whatever stands for its operands (columns, bounds, terms of a model).

    Args:
        op: The operation's name.
        args: Its operands.
        unary: Applies an operation of one operand.
        binary: Applies an operation to two operands.
    """
    if op in UNARY:
        return unary(op, args[0])
    if len(args) == 1 and BINARY[op].alone:
        return unary(BINARY[op].alone, args[0])
    result = args[0]
    for arg in args[1:]:
        result = binary(op, result, arg)
    return result
