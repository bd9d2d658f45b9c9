"""The derivative of a cell's step, by reverse mode over its tape. No torch.

The backward tape computes a step's values again from pre-activations, states before the step and parameters, and reads
the states after it but the first, as they are stored: a rounded state then is the one that later steps saw. Results of
late products are read too. Which of this a step really needs, its leaves say (`CellTape.leaves`).

A gradient that a `where` does not select is zero even where the branch's value is infinite or NaN: the product of
where(c, d, 0) and a slope is written as where(c, d * slope, 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from constrint.kernels.rnn.language.tape import LEAVES, MOST_NODES, CellTape, CellTapeWriter

_SLOPE_OF_ERF = 2.0 / math.sqrt(math.pi)


class DerivativeWriter(CellTapeWriter):
    """A tape writer with shorthands for numbers."""

    def add(self, x: int | None, y: int) -> int:
        """x + y; y where x is None, and d (1 - z) for d - d z: one product, and nothing cancels."""
        if x is None:
            return y
        for slope, other in ((x, y), (y, x)):
            negated = self.nodes[other]
            product = self.nodes[negated.args[0]] if negated.op == "neg" else negated
            if negated.op == "neg" and product.op == "mul" and slope in product.args:
                by = product.args[product.args[0] == slope]
                return self.mul(slope, self.one_minus(by))
        return self.operation("add", x, y)

    def mul(self, slope: int, by: int) -> int:
        """slope * by; a `where` with a zero in the slope stays outside."""
        node = self.nodes[slope]
        if node.op == "where" and self.value(node.args[2]) == 0.0:
            return self.operation("where", node.args[0], self.mul(node.args[1], by), node.args[2])
        if node.op == "where" and self.value(node.args[1]) == 0.0:
            return self.operation("where", node.args[0], node.args[1], self.mul(node.args[2], by))
        return self.operation("mul", slope, by)

    def div(self, slope: int, by: int) -> int:
        """slope / by, likewise."""
        node = self.nodes[slope]
        if node.op == "where" and self.value(node.args[2]) == 0.0:
            return self.operation("where", node.args[0], self.div(node.args[1], by), node.args[2])
        if node.op == "where" and self.value(node.args[1]) == 0.0:
            return self.operation("where", node.args[0], node.args[1], self.div(node.args[2], by))
        return self.operation("div", slope, by)

    def one_minus(self, x: int) -> int:
        """1 - x."""
        return self.operation("sub", self.constant(1.0), x)

    def chosen(self, condition: int, slope: int) -> int:
        """The slope where the condition holds, else 0."""
        return self.operation("where", condition, slope, self.constant(0.0))

    def otherwise(self, condition: int, slope: int) -> int:
        """The slope where the condition does not hold, else 0."""
        return self.operation("where", condition, self.constant(0.0), slope)


#: By operation, from the writer, the places of the arguments, that of the value and the gradient of the value: the
#: gradients of the arguments; None for none.
_Rule = Callable[[DerivativeWriter, tuple[int, ...], int, int], tuple[int | None, ...]]


def _div(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    over = w.div(d, a[1])
    return over, w.operation("neg", w.mul(over, y))


def _max(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    is_second = w.operation("lt", a[0], a[1])
    return w.otherwise(is_second, d), w.chosen(is_second, d)


def _min(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    is_second = w.operation("lt", a[1], a[0])
    return w.otherwise(is_second, d), w.chosen(is_second, d)


def _abs(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    is_negative = w.operation("lt", a[0], w.constant(0.0))
    return (w.operation("where", is_negative, w.operation("neg", d), d),)


def _tanh(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    return (w.mul(d, w.one_minus(w.operation("mul", y, y))),)


def _sigmoid(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    return (w.mul(w.mul(d, y), w.one_minus(y)),)


def _erf(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    density = w.operation("exp", w.operation("neg", w.operation("mul", a[0], a[0])))
    return (w.mul(d, w.operation("mul", density, w.constant(_SLOPE_OF_ERF))),)


def _rsqrt(w: DerivativeWriter, a: tuple[int, ...], y: int, d: int) -> tuple[int | None, ...]:
    cube = w.operation("mul", w.operation("mul", y, y), y)
    return (w.mul(d, w.operation("mul", cube, w.constant(-0.5))),)


RULES: dict[str, _Rule] = {
    "add": lambda w, a, y, d: (d, d),
    "sub": lambda w, a, y, d: (d, w.operation("neg", d)),
    "mul": lambda w, a, y, d: (w.mul(d, a[1]), w.mul(d, a[0])),
    "div": _div,
    "neg": lambda w, a, y, d: (w.operation("neg", d),),
    "min": _min,
    "max": _max,
    "abs": _abs,
    "exp": lambda w, a, y, d: (w.mul(d, y),),
    "log": lambda w, a, y, d: (w.div(d, a[0]),),
    "log1p": lambda w, a, y, d: (w.div(d, w.operation("add", a[0], w.constant(1.0))),),
    "sqrt": lambda w, a, y, d: (w.div(w.mul(d, w.constant(0.5)), y),),
    "rsqrt": _rsqrt,
    "erf": _erf,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "relu": lambda w, a, y, d: (w.chosen(w.operation("lt", w.constant(0.0), a[0]), d),),
    "softplus": lambda w, a, y, d: (w.mul(d, w.operation("sigmoid", a[0])),),
    "logsigmoid": lambda w, a, y, d: (w.mul(d, w.operation("sigmoid", w.operation("neg", a[0]))),),
    "rounded_down": lambda w, a, y, d: (d,),
    "surrogate": lambda w, a, y, d: (None, d),
    "where": lambda w, a, y, d: (None, w.chosen(a[0], d), w.otherwise(a[0], d)),
    "head_sum": lambda w, a, y, d: (w.operation("head_sum", d),),
    "head_mean": lambda w, a, y, d: (w.operation("head_mean", d),),
}
#: Operations whose result is a condition: no gradient passes.
FLAT = ("lt", "le", "eq", "ne", "and", "or", "not")


def backward_tape(
    traced: CellTape,
    states: tuple[str, ...],
    slots: tuple[str, ...],
    parameters: tuple[str, ...],
    inputs: tuple[str, ...],
) -> CellTape:
    """The backward tape of a step, from its tape and the names of the cell's states, slots, parameters and inputs.

    Outputs are `slot:NAME` for every slot, `operand:NAME` for what a late product of gate NAME multiplies, then
    `state:NAME`, `parameter:NAME` and `input:NAME` for all that the cell has; 0 where nothing depends on it.
    """
    writer = DerivativeWriter(8 * MOST_NODES)
    nodes = traced.nodes
    values = _values(writer, traced, states[0])
    slopes: list[int | None] = [None] * len(nodes)
    for name, place in traced.outputs:
        slopes[place] = writer.add(slopes[place], writer.leaf("gradient", name))
    gradients: dict[str, int] = {}
    for at in range(len(nodes) - 1, -1, -1):
        node, slope = nodes[at], slopes[at]
        if slope is None or node.op in FLAT or node.op == "constant":
            continue
        if node.op in LEAVES:
            gradients[f"{node.op}:{node.name}"] = slope
            continue
        if node.op == "product":
            gradients[f"slot:{node.name}.recurrent"] = slope
            parts: tuple[int | None, ...] = (writer.operation("product_t", slope, name=node.name),)
        else:
            parts = RULES[node.op](writer, tuple(values[place] for place in node.args), values[at], slope)
        for place, part in zip(node.args, parts, strict=True):
            if part is not None:
                slopes[place] = writer.add(slopes[place], part)
    names = (
        *(f"slot:{name}" for name in slots),
        *(f"state:{name}" for name in states),
        *(f"parameter:{name}" for name in parameters),
        *(f"input:{name}" for name in inputs),
    )
    outputs = {name: gradients[name] if name in gradients else writer.constant(0.0) for name in names}
    outputs |= {f"operand:{node.name}": values[node.args[0]] for node in nodes if node.op == "product"}
    return writer.ended(outputs)


def _values(writer: DerivativeWriter, traced: CellTape, first_state: str) -> list[int]:
    """The places of a step's values: computed again, or read where they are stored."""
    stored = {place: name for name, place in traced.outputs if name != first_state}
    values: list[int] = []
    for at, node in enumerate(traced.nodes):
        args = tuple(values[place] for place in node.args)
        if node.op == "constant":
            values.append(writer.constant(node.value))
        elif node.op in LEAVES:
            values.append(writer.leaf(node.op, node.name))
        elif at in stored:
            values.append(writer.leaf("new", stored[at]))
        elif node.op == "product":
            values.append(writer.leaf("slot", f"{node.name}.recurrent"))
        elif node.op == "surrogate":
            values.append(args[0])
        else:
            values.append(writer.operation(node.op, *args, name=node.name))
    return values
