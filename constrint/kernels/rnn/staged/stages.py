"""The stages of a cell's step: what is computed between its products, forward and backward. No torch.

A product within a step (`product`, backwards `product_t`) ends a stage: its operand is a result of the stage before it,
its result an operand of the stages after it. A stage computes again what it needs of the stages before it: that is
cheaper than memory. Reductions over a head end no stage, because a program of a stage holds all of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from constrint.kernels.rnn.language.graph import CellDefinition, CellTape

PRODUCTS, REDUCTIONS = ("product", "product_t"), ("head_sum", "head_mean")


def levels(tape: CellTape) -> tuple[int, ...]:
    """By place, the number of products one after another that a value waits for, its own counted."""
    found: list[int] = []
    for node in tape.nodes:
        found.append(max((found[at] for at in node.args), default=0) + (node.op in PRODUCTS))
    return tuple(found)


@dataclass(frozen=True)
class LateProduct:
    """A product within a step.

    Args:
        number: Its number among the products of a direction.
        level: The stage that reads its result.
        operand: The place of what it multiplies.
        places: Places of its results: one for each gate.
        gates: The gates whose R it multiplies by, beside each other.
    """

    number: int
    level: int
    operand: int
    places: tuple[int, ...]
    gates: tuple[str, ...]


@dataclass(frozen=True)
class StagedStep:
    """One direction of a cell's step.

    Args:
        cell: The definition.
        is_backward: Whether it is the backward step.
    """

    cell: CellDefinition
    is_backward: bool

    @property
    def tape(self) -> CellTape:
        """The tape."""
        return self.cell.backward if self.is_backward else self.cell.forward

    @cached_property
    def products(self) -> tuple[LateProduct, ...]:
        """Products in the order in which they run; forwards those of one operand are one."""
        known, groups = levels(self.tape), dict[tuple[int, int, int], list[int]]()
        for at, node in enumerate(self.tape.nodes):
            if node.op in PRODUCTS:
                groups.setdefault((known[at], node.args[0], at if self.is_backward else 0), []).append(at)
        return tuple(
            LateProduct(number, level, operand, tuple(places), tuple(self.tape.nodes[at].name for at in places))
            for number, ((level, operand, _), places) in enumerate(sorted(groups.items()))
        )

    @cached_property
    def num_stages(self) -> int:
        """Stages of a step."""
        return 1 + max((product.level for product in self.products), default=0)

    @property
    def has_reductions(self) -> bool:
        """Whether a program of a stage has to hold all units of a head."""
        return any(node.op in REDUCTIONS for node in self.tape.nodes)

    def operands(self, stage: int) -> tuple[LateProduct, ...]:
        """The products whose operands a stage computes."""
        return tuple(product for product in self.products if product.level == stage + 1)

    def outputs(self, stage: int) -> dict[str, int]:
        """The tape's outputs if this is the last stage."""
        return self.tape.places if stage == self.num_stages - 1 else {}

    def needed(self, stage: int) -> tuple[int, ...]:
        """Places that a stage computes or reads, results of products counted as read."""
        wanted = {product.operand for product in self.operands(stage)} | set(self.outputs(stage).values())
        for at in range(len(self.tape.nodes) - 1, -1, -1):
            node = self.tape.nodes[at]
            if at in wanted and node.op not in PRODUCTS:
                wanted.update(node.args)
        return tuple(sorted(wanted))
