"""A cell's step as a tape: operations on gate pre-activations, states, parameters and inputs of a step. No torch.

A tape is a list of nodes, each once, in an order in which every argument stands before its use. `Tape.outputs` names
places. Leaves of a forward tape, each by name:

    slot       a pre-activation: `i` is W x + R h + b of gate i; a gate whose parts stand apart has `n.input` (W x) and
               `n.recurrent` (R h + b)
    state      a state before the step
    parameter  an elementwise parameter, one number for a unit, a head or a layer (`Parameter.kind`)
    input      an input of the step besides x, such as a mask: one number for a sequence or a unit (`StepInput.kind`)
    constant   a number

Its outputs are the states after the step, by name. A backward tape has three leaves more, and outputs by `KIND:NAME`:

    new        a state after the step, as it is stored
    gradient   the gradient of a state after the step
    flag       a condition of the whole pass: `only_h`, h alone has gradients and values are stored in 16 bits
    slot:NAME, state:NAME, parameter:NAME, input:NAME    gradients; those of parameters and of inputs that are shared
               are summed over what shares them, and that of a state lacks what flows through R

Four operations need other units than their own and end a *stage* of the step: `product` is R_name times a value of a
head's units plus b_name (the recurrent part of a gate computed late in the step), `product_t` is its transpose in the
backward tape, `head_sum` and `head_mean` are the sum and the mean over a head's units, given to each. The slot
`NAME.recurrent` of such a gate is the result of the product: stored, not computed again, in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from constrint.errors import UsageError
from constrint.kernels.gemm.traced.expression import KINDS, OPERATIONS, TapeOperation

#: Nodes of a step's tape, at most.
MOST_NODES = 512
LEAVES = ("slot", "state", "parameter", "input", "new", "gradient", "flag", "constant")
#: Operations that need values of other units.
STAGES = ("product", "product_t", "head_sum", "head_mean")
_ADDED = {
    "log1p": TapeOperation("n", "n", 20, 0, "log1p({0})"),
    "softplus": TapeOperation("n", "n", 26, 1, "softplus({0})"),
    "logsigmoid": TapeOperation("n", "n", 26, 1, "logsigmoid({0})"),
    "rounded_down": TapeOperation("n", "n", 3, 0, "rounded_down({0})"),
    "surrogate": TapeOperation("nn", "n", 0, 0, "surrogate({0}, {1})"),
    "product": TapeOperation("n", "n", 0, 0, "product({0})"),
    "product_t": TapeOperation("n", "n", 0, 0, "product_t({0})"),
    "head_sum": TapeOperation("n", "n", 0, 0, "head_sum({0})"),
    "head_mean": TapeOperation("n", "n", 0, 0, "head_mean({0})"),
}
_NOT_HERE = ("relu2", "gelu", "gelu_tanh", "silu", "quick_gelu")
#: Operations of a step. `rounded_down` is a value that is representable in the dtype of stored states and not above its
#: argument; `surrogate` has the value of its first argument and the derivative of its second.
CELL_OPERATIONS = {name: op for name, op in OPERATIONS.items() if name not in _NOT_HERE} | _ADDED


class CellNode(NamedTuple):
    """One place of a tape.

    Args:
        op: A leaf of LEAVES or a key of CELL_OPERATIONS.
        args: Places of its arguments, all before it.
        name: The leaf's name, or the gate of a product.
        value: The constant.
    """

    op: str
    args: tuple[int, ...] = ()
    name: str = ""
    value: float = 0.0

    @property
    def kind(self) -> str:
        """ "n" for a number, "c" for a condition."""
        return CELL_OPERATIONS[self.op].gives if self.op in CELL_OPERATIONS else "c" if self.op == "flag" else "n"

    @property
    def text(self) -> str:
        """The node as a part of a tape's text."""
        if self.op == "constant":
            return f"constant {self.value.hex()}"
        return " ".join((self.op, *([self.name] if self.name else []), *map(str, self.args)))


@dataclass(frozen=True)
class CellTape:
    """A complete tape.

    Args:
        nodes: All nodes, in an order of evaluation.
        outputs: Places by name; several names may share one.
    """

    nodes: tuple[CellNode, ...]
    outputs: tuple[tuple[str, int], ...]

    @cached_property
    def text(self) -> str:
        """The tape in one line: equal for equal tapes."""
        outputs = ",".join(f"{name}={place}" for name, place in self.outputs)
        return f"{';'.join(node.text for node in self.nodes)}|{outputs}"

    @property
    def places(self) -> dict[str, int]:
        """The places of outputs by name."""
        return dict(self.outputs)

    def leaves(self, op: str) -> tuple[str, ...]:
        """Names of the leaves of one sort, in the order of the tape."""
        return tuple(node.name for node in self.nodes if node.op == op)

    @property
    def instructions(self) -> int:
        """Instructions of an element, by the table; an estimate."""
        return sum(CELL_OPERATIONS[node.op].instructions for node in self.nodes if node.op in CELL_OPERATIONS)

    @property
    def special(self) -> int:
        """Instructions of an element on the unit for special functions."""
        return sum(CELL_OPERATIONS[node.op].special for node in self.nodes if node.op in CELL_OPERATIONS)

    @cached_property
    def registers(self) -> int:
        """Values of one element that live at once, at most; leaves are loaded at their first use, outputs kept."""
        last = list(range(len(self.nodes)))
        first = list(range(len(self.nodes)))
        for at, node in enumerate(self.nodes):
            for place in node.args:
                last[place] = at
                if self.nodes[place].op in LEAVES and first[place] == place:
                    first[place] = at
        for _, place in self.outputs:
            last[place] = len(self.nodes)
        held = [at for at, node in enumerate(self.nodes) if node.op != "constant"]
        return max((sum(first[at] <= now <= last[at] for at in held) for now in range(len(self.nodes))), default=0)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """By place, the number of operations of STAGES that lie before a value is known, its own counted."""
        levels: list[int] = []
        for node in self.nodes:
            levels.append(max((levels[at] for at in node.args), default=0) + (node.op in STAGES))
        return tuple(levels)

    @property
    def is_pointwise(self) -> bool:
        """Whether every unit's step needs its own values only."""
        return all(node.op not in STAGES for node in self.nodes)

    def evaluated(
        self,
        leaf: Callable[[CellNode], Any],
        operation: Callable[[CellNode, Sequence[Any]], Any],
    ) -> dict[str, Any]:
        """The outputs by name, from functions that give a leaf's value and an operation's."""
        values: list[Any] = []
        for node in self.nodes:
            values.append(leaf(node) if node.op in LEAVES else operation(node, [values[at] for at in node.args]))
        return {name: values[place] for name, place in self.outputs}


class CellTapeWriter:
    """A tape that is being written: equal nodes once, constants folded, x + 0 and x * 1 left out.

    Args:
        most: Nodes at most.
    """

    def __init__(self, most: int = MOST_NODES) -> None:
        self.most = most
        self.nodes: list[CellNode] = []
        self._places: dict[tuple[object, ...], int] = {}

    def leaf(self, op: str, name: str) -> int:
        """The place of a leaf."""
        assert op in LEAVES, op
        return self._place(CellNode(op, name=name))

    def constant(self, value: float) -> int:
        """The place of a constant.

        Raises:
            UsageError: For one that is not finite.
        """
        value = float(value)
        if not math.isfinite(value):
            raise UsageError(f"a constant of a cell is finite, got {value}.")
        return self._place(CellNode("constant", value=value + 0.0))  # -0.0 + 0.0 is 0.0

    def operation(self, op: str, *args: int, name: str = "") -> int:
        """The place of an operation on earlier places, or of what it comes to.

        Raises:
            UsageError: For an unknown operation, arguments of another kind or number, and for too many nodes.
        """
        known = CELL_OPERATIONS.get(op)
        if known is None:
            raise UsageError(f"a cell has no operation {op!r}; there are {', '.join(CELL_OPERATIONS)}.")
        kinds = "".join(self.nodes[place].kind for place in args)
        if kinds != known.takes:
            takes, got = (", ".join(KINDS[kind] for kind in each) for each in (known.takes, kinds))
            raise UsageError(f"{op} takes {takes}; got {got or 'nothing'}.")
        simple = self._simplified(op, args)
        if simple is not None:
            return simple
        if op in ("add", "mul", "min", "max", "and", "or", "eq", "ne"):
            args = tuple(sorted(args))
        return self._place(CellNode(op, args, name))

    def ended(self, outputs: Mapping[str, int]) -> CellTape:
        """The tape of these outputs; what none of them needs is left out."""
        needed = set(outputs.values())
        for at in range(len(self.nodes) - 1, -1, -1):
            if at in needed:
                needed.update(self.nodes[at].args)
        order = {at: number for number, at in enumerate(sorted(needed))}
        nodes = (self.nodes[at] for at in sorted(needed))
        return CellTape(
            tuple(node._replace(args=tuple(order[at] for at in node.args)) for node in nodes),
            tuple((name, order[place]) for name, place in outputs.items()),
        )

    def value(self, place: int) -> float | None:
        """The number at a place, if it is a constant."""
        node = self.nodes[place]
        return node.value if node.op == "constant" else None

    def _place(self, node: CellNode) -> int:
        key = node.op, node.args, node.name, node.value
        if key not in self._places:
            if len(self.nodes) >= self.most:
                raise UsageError(f"a cell's step, or its derivative, has at most {self.most} operations and operands.")
            self._places[key] = len(self.nodes)
            self.nodes.append(node)
        return self._places[key]

    def _simplified(self, op: str, args: tuple[int, ...]) -> int | None:
        """A place that an operation comes to without a node of its own, if there is one."""
        numbers = [self.value(place) for place in args]
        if args and op in FOLDED and all(number is not None for number in numbers):
            try:
                folded = FOLDED[op](*numbers)
            except (ValueError, ZeroDivisionError, OverflowError):
                return None
            return self.constant(folded) if math.isfinite(folded) else None
        match op, numbers:
            case ("add", [0.0, None]) | ("mul", [1.0, None]):
                return args[1]
            case ("add" | "sub", [None, 0.0]) | ("mul" | "div", [None, 1.0]):
                return args[0]
            case ("sub", [0.0, None]) | ("mul", [-1.0, None]):
                return self.operation("neg", args[1])
            case "mul", [None, -1.0]:
                return self.operation("neg", args[0])
            case "div", [None, float(number)] if math.frexp(number)[0] in (0.5, -0.5):  # a power of 2: exact
                return self.operation("mul", args[0], self.constant(1.0 / number))
        if op in ("neg", "not") and self.nodes[args[0]].op == op:
            return self.nodes[args[0]].args[0]
        if op in ("add", "sub") and self.nodes[args[1]].op == "neg":
            return self.operation("sub" if op == "add" else "add", args[0], self.nodes[args[1]].args[0])
        if op == "add" and self.nodes[args[0]].op == "neg":
            return self.operation("sub", args[1], self.nodes[args[0]].args[0])
        if op == "mul" and self.nodes[args[0]].op == self.nodes[args[1]].op == "neg":
            return self.operation("mul", self.nodes[args[0]].args[0], self.nodes[args[1]].args[0])
        if (op == "where" and args[1] == args[2]) or (op in ("min", "max", "and", "or") and args[0] == args[1]):
            return args[1]
        return None


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sigmoid(x: float) -> float:
    return 0.5 * math.tanh(0.5 * x) + 0.5


#: Operations on constants.
FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "min": min,
    "max": max,
    "abs": abs,
    "exp": math.exp,
    "log": math.log,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "erf": math.erf,
    "tanh": math.tanh,
    "sigmoid": _sigmoid,
    "relu": lambda x: max(x, 0.0),
    "softplus": _softplus,
    "logsigmoid": lambda x: -_softplus(-x),
}
