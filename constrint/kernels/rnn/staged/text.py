"""Kernels of the stages of a step, as texts in Triton.

A program computes up to `tile` units of one head of one sequence. Buffers hold the K steps of a chunk (`graphs.py`):
(K, B, ..., N, D) as the layer has them, and (N, B, ..., D) for operands and results of products. A sequence stops after
`remaining` steps, counted from the start of the chunk, and starts anew where `reset` (K + 1, B) is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from constrint.kernels.rnn.generated.body import lines
from constrint.kernels.rnn.generated.modules import HEAD, module_of_text
from constrint.kernels.rnn.generated.triton import FORMULAS
from constrint.kernels.rnn.language.graph import LEAVES, CellDefinition, CellNode
from constrint.kernels.rnn.staged.stages import LateProduct, StagedStep

_FORMULAS = FORMULAS | {
    "head_sum": "tl.sum(tl.where(inside, {0}, 0.0), 0)",
    "head_mean": "(tl.sum(tl.where(inside, {0}, 0.0), 0) / head_dim)",
}
_PLACES = """\
    row, unit = tl.program_id(0), tl.program_id(1) * tile + tl.arange(0, tile)
    inside = unit < head_dim
    head, sequence = row // batch, row % batch
    column, place, width = head * head_dim + unit, row * head_dim + unit, heads * head_dim
    size = batch * width
    line = (step * batch + sequence).to(tl.int64)
    left = tl.load(remaining + sequence)
    running = left > step
    fresh = (tl.load(reset + line + batch) != 0) & (left > step + 1)
    zero = tl.zeros((tile,), tl.float32)
"""
_SIZES = "remaining, reset, step, batch, heads, head_dim: tl.constexpr, tile: tl.constexpr"
#: Flags of a direction, after `fast` and `dtype`, the dtype of stored states.
FLAGS = {False: ("has_bias", "saves"), True: ("has_clip", "upstream_mask", "needs_inputs")}


def load(pointer: str) -> str:
    """A value of each unit in fp32."""
    return f"tl.load({pointer}, mask=inside, other=0.0).to(tl.float32)"


def store(pointer: str, value: str, indent: str = "    ") -> str:
    """A statement that stores a value of each unit."""
    buffer = pointer.split(" ", maxsplit=1)[0]
    return f"{indent}tl.store({pointer}, (zero + {value}).to({buffer}.dtype.element_ty), mask=inside)\n"


def of_step(buffer: str, count: int, index: int) -> str:
    """The place of a unit in a buffer (K, B, count, N, D)."""
    return f"{buffer} + (line * {count} + {index}) * width + column"


def of_product(buffer: str, count: int, index: int) -> str:
    """The place of a unit in an operand or a result of products (N, B, count, D)."""
    return f"{buffer} + (row * {count} + {index}) * head_dim + unit"


def input_gates(cell: CellDefinition) -> tuple[str, ...]:
    """Names of the gates with an input's part, in the order of wx."""
    return tuple(gate.name for gate in cell.gates if gate.has_input)


def recurrent_gates(cell: CellDefinition) -> tuple[str, ...]:
    """Names of the gates with a recurrent part, in the order of R."""
    return tuple(gate.name for gate in cell.gates if gate.has_recurrent)


def early_gates(cell: CellDefinition) -> tuple[str, ...]:
    """Names of the gates whose product begins a step."""
    return tuple(gate.name for gate in cell.gates if gate.has_recurrent and not gate.is_late)


def slot_of(cell: CellDefinition, gate: str) -> str:
    """The slot that holds the product of a gate."""
    return next(f"{gate}.recurrent" if each.is_apart else gate for each in cell.gates if each.name == gate)


class StageText:
    """The kernel of one stage.

    Args:
        step: The direction of the step.
        stage: The stage's number.
    """

    def __init__(self, step: StagedStep, stage: int) -> None:
        self.step, self.cell, self.stage = step, step.cell, stage
        self.in_x, self.in_r, self.early = input_gates(self.cell), recurrent_gates(self.cell), early_gates(self.cell)
        self.late = tuple(gate.name for gate in self.cell.late_gates)
        #: Texts of places, and of gates' products where they are read.
        self.written: dict[int, str] = {}

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the buffers in the order of the kernel's arguments, the same for all stages of a direction."""
        return arguments_of(self.step)

    def text(self) -> str:
        """The kernel, `stageN`."""
        step, nodes = self.step, self.step.tape.nodes
        flags = ", ".join(f"{flag}: tl.constexpr" for flag in ("fast", "dtype", *FLAGS[step.is_backward]))
        statements = list(self._gradients()) if step.is_backward else []
        results = {at: self._result(product, at) for product in step.products for at in product.places}
        needed = step.needed(self.stage)
        for at in needed:
            node = nodes[at]
            if at in results or (node.op in LEAVES and node.op != "constant"):
                self.written[at] = f"v{at}"
                statements.append(f"    v{at} = {results[at] if at in results else self._leaf(node)}\n")
        statements += lines(
            *(nodes, needed, _FORMULAS, self._leaf, self.written),
            lambda name, node, formula: f"    {name} = {formula}\n",
            needed,
        )
        for product in step.operands(self.stage):
            value = f"tl.where(running, zero + {self.written[product.operand]}, 0.0)"
            statements.append(store(f"factor{product.number} + place", value))
        if self.stage == step.num_stages - 1:
            statements += self._backward_end() if step.is_backward else self._forward_end()
        head = f"def stage{self.stage}({', '.join(self.arguments)}, {_SIZES}, {flags}):\n"
        return f'@triton.jit(do_not_specialize=["step"])\n{head}{_PLACES}{"".join(statements)}'

    def _bias(self, gate: str) -> str:
        return f"({load(f'bias + {self.in_r.index(gate)} * width + column')} if has_bias else zero)"

    def _leaf(self, node: CellNode) -> str:
        """The text that reads a leaf."""
        cell, name = self.cell, node.name
        if node.op == "parameter":
            return load(f"elementwise + {[each.name for each in cell.parameters].index(name)} * width + column")
        if node.op == "input":
            number = [each.name for each in cell.inputs].index(name)
            if cell.inputs[number].kind == "sequence":
                return f"tl.load(given{number} + line).to(tl.float32)"
            return load(f"given{number} + line * width + column")
        if node.op == "gradient":
            return f"d{cell.states.index(name)}"
        if node.op in ("state", "new"):
            number = cell.states.index(name)
            if not self.step.is_backward:
                return load(f"carry + {number} * size + place")
            return load(of_step("before" if node.op == "state" else "after", len(cell.states), number))
        return self._slot(name)

    def _slot(self, name: str) -> str:
        gate, _, part = name.partition(".")
        if part == "input":
            return load(of_step("wx", len(self.in_x), self.in_x.index(gate)))
        if self.step.is_backward:
            return load(of_step("saved", len(self.in_r), self.in_r.index(gate)))
        if gate in self.late:
            product, at = next(
                (p, at) for p in self.step.products for g, at in zip(p.gates, p.places, strict=True) if g == gate
            )
            return self._result(product, at)
        own = f"{load(of_product('product', len(self.early), self.early.index(gate)))} + {self._bias(gate)}"
        return own if part else f"{load(of_step('wx', len(self.in_x), self.in_x.index(gate)))} + {own}"

    def _result(self, product: LateProduct, at: int) -> str:
        """The text that reads a result of a product within the step."""
        if self.step.is_backward:
            return load(f"result{product.number} + place")
        number = product.places.index(at)
        value = load(of_product(f"result{product.number}", len(product.gates), number))
        return f"{value} + {self._bias(product.gates[number])}"

    def _forward_end(self) -> list[str]:
        """Statements that store states, and what the backward pass reads."""
        states, places = self.cell.states, self.step.tape.places
        statements = [f"    old{s} = {load(f'carry + {s} * size + place')}\n" for s in range(len(states))]
        for s, name in enumerate(states):
            value = f"zero + {self.written[places[name]]}"
            statements += [
                store(of_step("states", len(states), s), f"tl.where(running, {value}, 0.0)"),
                f"    kept{s} = tl.where(fresh, {self.cell.initial[s]!r}, tl.where(running, {value}, old{s}))\n",
                store(f"carry + {s} * size + place", f"kept{s}"),
            ]
        statements += [store("operand + place", "kept0"), "    if saves:\n        kept = zero\n"]
        for number, gate in enumerate(self.in_r):
            value = self._slot(slot_of(self.cell, gate))
            statements.append(store(of_step("saved", len(self.in_r), number), f"({value})", "        "))
        return statements

    def _gradients(self) -> Iterator[str]:
        """Statements that add up the gradients of the states after the step."""
        for s in range(len(self.cell.states)):
            yield f"    old{s} = {load(f'carry + {s} * size + place')}\n"
            if s == 0 and self.early:
                yield (
                    f"    through = {load('product + place')}\n"
                    "    if has_clip:\n"
                    "        clip = tl.load(limit)\n"
                    "        through = tl.minimum(tl.maximum(through, -clip), clip)\n"
                    "    old0 = old0 + through\n"
                )
            yield f"    old{s} = tl.where(fresh, 0.0, old{s})\n    d{s} = old{s}\n"
            upstream = load(of_step("upstream", len(self.cell.states), s))
            yield f"    if upstream_mask & {1 << s}:\n        d{s} = d{s} + {upstream}\n"
            yield f"    d{s} = tl.where(running, d{s}, 0.0)\n"

    def _backward_end(self) -> list[str]:
        """Statements that store the gradients of a step."""
        cell, places = self.cell, self.step.tape.places

        def value(name: str) -> str:
            return f"tl.where(running, zero + {self.written[places[name]]}, 0.0)"

        statements = []
        for number, slot in enumerate(cell.slots):
            statements.append(store(of_step("slots", len(cell.slots), number), value(f"slot:{slot}")))
        for number, gate in enumerate(self.early):
            slot = slot_of(cell, gate)
            statements.append(store(of_product("operand", len(self.early), number), value(f"slot:{slot}")))
        for number, gate in enumerate(self.late):
            statements.append(store(of_step("operands", len(self.late), number), value(f"operand:{gate}")))
        for number, parameter in enumerate(cell.parameters):
            at = f"of_elementwise + {number} * size + place"
            statements.append(store(at, f"{load(at)} + {value(f'parameter:{parameter.name}')}"))
        if cell.inputs:
            statements.append("    if needs_inputs:\n")
            for number, given in enumerate(cell.inputs):
                at = f"of_given{number} + line * width + column"
                statements.append(store(at, value(f"input:{given.name}"), "        "))
        for number, state in enumerate(cell.states):
            kept = f"tl.where(running, zero + {self.written[places[f'state:{state}']]}, old{number})"
            statements.append(store(f"carry + {number} * size + place", kept))
        return statements


def arguments_of(step: StagedStep) -> tuple[str, ...]:
    """Names of the buffers in the order of a kernel's arguments, the same for all stages of a direction."""
    inputs = range(len(step.cell.inputs))
    late = (f"{sort}{product.number}" for product in step.products for sort in ("factor", "result"))
    given = tuple(f"given{number}" for number in inputs)
    if not step.is_backward:
        return "wx", "product", "bias", "carry", "operand", "states", "saved", "elementwise", *given, *late
    of_given = (f"of_given{number}" for number in inputs)
    own = "wx", "saved", "before", "after", "upstream", "carry", "product", "operand", "limit", "elementwise", "slots"
    return *own, "of_elementwise", "operands", *given, *of_given, *late


@lru_cache(maxsize=256)
def stage_kernels(step: StagedStep) -> tuple[Any, ...]:
    """The kernels of a direction of a step, one for each stage."""
    text = HEAD + "\n\n".join(StageText(step, stage).text() for stage in range(step.num_stages))
    module = module_of_text("stages", text)
    return tuple(vars(module)[f"stage{stage}"] for stage in range(step.num_stages))
