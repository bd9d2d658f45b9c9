"""An epilogue as an expression: a tape of operations on the sum and on named operands, each once. No torch.

A tape is written by tracing a Python function (`trace.py`) or by parsing a text (`parse.py`). `Expression.text` is the
tape as one line, `acc;r;mul 0 1;gelu 2`: a key for plans, and an argument of an operator, from which `of_text` reads
the expression again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from constrint.errors import UsageError

#: Name of the sum.
ACC = "acc"
#: Operations of a tape, operands and constants not counted, and operands, at most.
MOST_OPERATIONS, MOST_OPERANDS = 64, 8


class TapeOperation(NamedTuple):
    """An operation on numbers or conditions.

    Args:
        takes: Kinds of its arguments: "n" for a number, "c" for a condition.
        gives: Kind of its result.
        instructions: Instructions of an element of 16 bits, those of the unit for special functions among them.
        special: Instructions of that unit.
        meaning: It as a formula, `{0}` being the first argument.
    """

    takes: str
    gives: str
    instructions: int
    special: int
    meaning: str


#: All operations. Instructions of activations are those of `epilogue/activations.py`; those of others are estimates.
OPERATIONS: dict[str, TapeOperation] = {
    "add": TapeOperation("nn", "n", 1, 0, "({0} + {1})"),
    "sub": TapeOperation("nn", "n", 1, 0, "({0} - {1})"),
    "mul": TapeOperation("nn", "n", 1, 0, "({0} * {1})"),
    "div": TapeOperation("nn", "n", 10, 1, "({0} / {1})"),
    "neg": TapeOperation("n", "n", 1, 0, "(-{0})"),
    "min": TapeOperation("nn", "n", 1, 0, "min({0}, {1})"),
    "max": TapeOperation("nn", "n", 1, 0, "max({0}, {1})"),
    "abs": TapeOperation("n", "n", 1, 0, "abs({0})"),
    "exp": TapeOperation("n", "n", 2, 1, "exp({0})"),
    "log": TapeOperation("n", "n", 20, 0, "log({0})"),
    "sqrt": TapeOperation("n", "n", 8, 1, "sqrt({0})"),
    "rsqrt": TapeOperation("n", "n", 4, 1, "rsqrt({0})"),
    "erf": TapeOperation("n", "n", 24, 1, "erf({0})"),
    "tanh": TapeOperation("n", "n", 1, 1, "tanh({0})"),
    "sigmoid": TapeOperation("n", "n", 4, 2, "sigmoid({0})"),
    "relu": TapeOperation("n", "n", 1, 0, "relu({0})"),
    "relu2": TapeOperation("n", "n", 2, 0, "relu2({0})"),
    "gelu": TapeOperation("n", "n", 9, 1, "gelu({0})"),
    "gelu_tanh": TapeOperation("n", "n", 7, 2, "gelu_tanh({0})"),
    "silu": TapeOperation("n", "n", 5, 2, "silu({0})"),
    "quick_gelu": TapeOperation("n", "n", 5, 2, "quick_gelu({0})"),
    "where": TapeOperation("cnn", "n", 1, 0, "where({0}, {1}, {2})"),
    "lt": TapeOperation("nn", "c", 1, 0, "({0} < {1})"),
    "le": TapeOperation("nn", "c", 1, 0, "({0} <= {1})"),
    "eq": TapeOperation("nn", "c", 1, 0, "({0} == {1})"),
    "ne": TapeOperation("nn", "c", 1, 0, "({0} != {1})"),
    "and": TapeOperation("cc", "c", 1, 0, "({0} and {1})"),
    "or": TapeOperation("cc", "c", 1, 0, "({0} or {1})"),
    "not": TapeOperation("c", "c", 1, 0, "(not {0})"),
}
KINDS = {"n": "a number", "c": "a condition"}


class TapeStep(NamedTuple):
    """One place of a tape.

    Args:
        op: A key of OPERATIONS, "operand" or "constant".
        args: Places of its arguments.
        name: The operand's name.
        value: The constant.
    """

    op: str
    args: tuple[int, ...] = ()
    name: str = ""
    value: float = 0.0

    @property
    def kind(self) -> str:
        """ "n" for a number, "c" for a condition."""
        return OPERATIONS[self.op].gives if self.op in OPERATIONS else "n"


class Tape:
    """A tape that is being written; equal steps are written once."""

    def __init__(self) -> None:
        self.steps: list[TapeStep] = []
        self._places: dict[tuple[object, ...], int] = {}

    def operand(self, name: str) -> int:
        """The place of an operand, or of the sum.

        Raises:
            UsageError: For a name that is none, and for too many operands.
        """
        if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
            raise UsageError(f"matmul: an operand of an epilogue has an ASCII identifier as its name, got {name!r}.")
        place = self._place(TapeStep("operand", name=name))
        if sum(step.op == "operand" and step.name != ACC for step in self.steps) > MOST_OPERANDS:
            raise UsageError(f"matmul: an epilogue reads at most {MOST_OPERANDS} operands; compute some ahead of it.")
        return place

    def constant(self, value: float) -> int:
        """The place of a constant, rounded to 32 bits where it is used in 32 bits."""
        return self._place(TapeStep("constant", value=float(value)))

    def operation(self, op: str, *args: int) -> int:
        """The place of an operation on earlier places.

        Raises:
            UsageError: For an unknown operation, arguments of another kind or number, and for too many operations.
        """
        known = OPERATIONS.get(op)
        if known is None:
            raise UsageError(f"matmul: no operation {op!r} in an epilogue; there are {', '.join(OPERATIONS)}.")
        kinds = "".join(self.steps[place].kind for place in args)
        if kinds != known.takes:
            takes, got = (", ".join(KINDS[kind] for kind in each) for each in (known.takes, kinds))
            raise UsageError(f"matmul: {op!r} in an epilogue takes {takes}; got {got or 'nothing'}.")
        place = self._place(TapeStep(op, args))
        if sum(step.op in OPERATIONS for step in self.steps) > MOST_OPERATIONS:
            raise UsageError(f"matmul: an epilogue has at most {MOST_OPERATIONS} operations.")
        return place

    def ended(self, place: int) -> Expression:
        """The expression whose value is at a place.

        Raises:
            UsageError: When it is a condition.
        """
        if self.steps[place].kind != "n":
            raise UsageError("matmul: an epilogue gives a number, not a condition; where(condition, 1, 0) is one.")
        needed = {place}
        for at in range(place, -1, -1):
            if at in needed:
                needed.update(self.steps[at].args)
        order = {at: number for number, at in enumerate(sorted(needed))}
        steps = (self.steps[at] for at in sorted(needed))
        return Expression(tuple(step._replace(args=tuple(order[at] for at in step.args)) for step in steps))

    def _place(self, step: TapeStep) -> int:
        # -0.0 and 0.0 are equal, and NaN is not: constants are told apart by their digits.
        key = step.op, step.args, step.name, step.value.hex()
        if key not in self._places:
            self._places[key] = len(self.steps)
            self.steps.append(step)
        return self._places[key]


@dataclass(frozen=True)
class Expression:
    """A complete tape; its value is that of the last step."""

    steps: tuple[TapeStep, ...]

    @staticmethod
    @lru_cache(maxsize=1024)
    def of_text(text: str) -> Expression:
        """The expression whose tape is this text.

        Raises:
            UsageError: For anything else.
        """
        tape, place = Tape(), -1
        for part in text.split(";"):
            words = part.split()
            try:
                if len(words) == 2 and words[0] == "constant":
                    place = tape.constant(float.fromhex(words[1]))
                elif len(words) == 1:
                    place = tape.operand(words[0])
                else:
                    places = [int(word) for word in words[1:]]
                    if not words or not all(0 <= at < len(tape.steps) for at in places):
                        raise ValueError(part)
                    place = tape.operation(words[0], *places)
            except (ValueError, OverflowError) as error:
                raise UsageError(f"matmul: {part!r} is no step of an epilogue's tape.") from error
        return tape.ended(place)

    @cached_property
    def text(self) -> str:
        """The tape in one line."""
        return ";".join(
            step.name
            if step.op == "operand"
            else f"constant {step.value.hex()}"
            if step.op == "constant"
            else f"{step.op} {' '.join(map(str, step.args))}"
            for step in self.steps
        )

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of operands in the order of the tape; the sum is none."""
        return tuple(step.name for step in self.steps if step.op == "operand" and step.name != ACC)

    @property
    def instructions(self) -> int:
        """Instructions of an element of 16 bits."""
        return sum(OPERATIONS[step.op].instructions for step in self.steps if step.op in OPERATIONS)

    @property
    def special(self) -> int:
        """Instructions of an element of 16 bits on the unit for special functions."""
        return sum(OPERATIONS[step.op].special for step in self.steps if step.op in OPERATIONS)

    def formula(self, names: Mapping[str, str] | None = None) -> str:
        """The expression as a formula, for messages; what is used twice stands twice, up to some length."""
        shown: list[str] = []
        for step in self.steps:
            if step.op == "operand":
                text = (names or {}).get(step.name, step.name)
            elif step.op == "constant":
                text = f"{step.value:g}" if math.isfinite(step.value) else f"float('{step.value}')"
            else:
                text = OPERATIONS[step.op].meaning.format(*(shown[at] for at in step.args))
            shown.append(text if len(text) <= 400 else "(...)")
        return shown[-1].removeprefix("(").removesuffix(")") if _is_wrapped(shown[-1]) else shown[-1]

    def __str__(self) -> str:
        return self.formula()


def _is_wrapped(text: str) -> bool:
    """Whether one pair of brackets holds all of a text."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text.startswith("(") and at == len(text) - 1
    return False
