"""Registration of cells that are written in Python: kernels of both directions, by every implementation that can."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from constrint.errors import UnknownNameError, UnsupportedError
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
from constrint.kernels.rnn.generated.body import MOST_PARAMETERS, MOST_SLOTS, MOST_STATES
from constrint.kernels.rnn.language.graph import FOLDED, LEAVES, CellDefinition, CellTape
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec

#: Modules that contribute candidates: of a layer, of which both directions are one request, and of one implementation.
CANDIDATES = {"forward": "constrint.kernels.rnn.candidates", "backward": "constrint.choose.candidates"}
LIKE_BUILT_IN = "constrint.kernels.rnn.generated.candidates"
#: Steps after which the states of a unit without inputs are taken to rest.
RESTING_STEPS = 2


def register_cell(definition: CellDefinition) -> RecurrentCell:
    """Make a cell known to all implementations of recurrent layers; one of the same equations is registered once.

    Its operations are `definition.operation` and the same with `-backward`: the name and a digest of the equations, so
    that nothing that was stored for other equations is found for these.

    Raises:
        UnsupportedError: When the fused kernels cannot compute the cell; says why.
    """
    known = CELLS.get(definition.operation)
    if known is not None:
        return known
    from constrint.kernels.registry import contribute, register

    cell = recurrent_cell(definition)
    for direction in SUFFIX:
        specs = specs_of(cell, direction)
        register(*specs)
        contribute(cell.name + SUFFIX[direction], CANDIDATES[direction])
        for spec in specs:
            contribute(spec.full_name, LIKE_BUILT_IN)
    return CELLS.setdefault(cell.name, cell)


def recurrent_cell(definition: CellDefinition) -> RecurrentCell:
    """A cell as kernels take it.

    Raises:
        UnsupportedError: When the fused kernels cannot compute the cell; says why.
    """
    reason = next(obstacles(definition), "")
    if reason:
        raise UnsupportedError(
            f"cell {definition.name}: {reason}. Its layer runs by 'staged' on a GPU, by 'torch' anywhere."
        )
    backward = definition.backward
    return RecurrentCell(
        definition.operation,
        tuple(gate.name for gate in definition.gates),
        definition.states,
        forward_specials=_specials(definition.forward),
        backward_specials=_specials(backward),
        keeps_parts_apart=any(gate.is_apart for gate in definition.gates),
        idle_states=resting_states(definition),
        reads_h=definition.states[0] in backward.leaves("state"),
        reads_new=bool(backward.leaves("new")),
        parameters=tuple(parameter.name for parameter in definition.parameters),
        definition=definition,
    )


def obstacles(definition: CellDefinition) -> Iterator[str]:
    """Reasons why the fused kernels cannot compute a cell."""
    gates = definition.gates
    apart = [gate.name for gate in gates if gate.is_apart]
    if not definition.is_pointwise or any(gate.is_late for gate in gates):
        yield "fused kernels have one product a step; it has a later product, or a sum over a head's units"
    if len(apart) > 1 or apart not in ([], [gates[-1].name]):
        yield (
            "fused kernels keep the two parts of one gate apart, the last one in the order of gates; it uses those of "
            f"{', '.join(apart)}"
        )
    for what, number, most in (
        ("pre-activations", len(gates) + len(apart), MOST_SLOTS),
        ("states", len(definition.states), MOST_STATES),
        ("elementwise parameters", len(definition.parameters), MOST_PARAMETERS),
    ):
        if number > most:
            yield f"fused kernels have up to {most} {what}; it has {number}"
    if definition.inputs:
        names = ", ".join(each.name for each in definition.inputs)
        yield f"fused kernels have no inputs of a step beside x; it has {names}"
    if not all(gate.has_input and gate.has_recurrent for gate in gates):
        yield "every gate of fused kernels has the input's part and the recurrence's part"
    if "rounded_down" in {node.op for node in definition.backward.nodes}:
        yield "rounded_down of a value that is no state is not known in the backward pass; make it a state"


def specs_of_definition(definition: CellDefinition, direction: str, implementation: str = "") -> tuple[RnnSpec, ...]:
    """The implementations of one direction of a cell, or the named one.

    Raises:
        UnknownNameError: When it has no implementation of that name.
        UnsupportedError: When the fused kernels cannot compute the cell; says why.
    """
    from constrint.kernels.registry import load_kernel

    operation = register_cell(definition).name + SUFFIX[direction]
    specs = [spec for spec in load_kernel(operation).implementations if isinstance(spec, RnnSpec)]
    named = [spec for spec in specs if implementation in ("", spec.name)]
    if not named:
        raise UnknownNameError("implementation", implementation, [spec.name for spec in specs])
    return tuple(named)


def specs_of(cell: RecurrentCell, direction: str) -> list[RnnSpec]:
    """The implementations of one direction of a cell; preferred ones first."""
    from constrint.kernels.rnn.alternating.spec import AlternatingSpec
    from constrint.kernels.rnn.cuda.spec import CudaRnnSpec
    from constrint.kernels.rnn.triton.spec import TritonSpec
    from constrint.kernels.rnn.wgmma.spec import WgmmaBothSpec, WgmmaSpec
    from constrint.kernels.rnn.wgmma_partial.spec import PartialSpec

    many: list[RnnSpec] = [WgmmaSpec(cell, direction)] if direction == "forward" else []
    if direction == "backward" and not cell.num_params:  # these loops sum no gradients of parameters
        many = [WgmmaBothSpec(cell, direction), PartialSpec(cell, direction)]
    return [CudaRnnSpec(cell, direction), *many, TritonSpec(cell, direction), AlternatingSpec(cell, direction)]


def _specials(tape: CellTape) -> int:
    """Special functions of an element: a sigmoid is one beside a tanh, as in the kernels of 16 bits."""
    return sum(node.op in ("exp", "tanh", "sigmoid", "div", "sqrt", "rsqrt", "erf") for node in tape.nodes) + sum(
        2 for node in tape.nodes if node.op in ("softplus", "logsigmoid", "log", "log1p")
    )


def resting_states(definition: CellDefinition) -> tuple[float, ...]:
    """Values of the states of a unit whose inputs, weights and parameters are zero, after a few steps from zero."""
    states = dict(zip(definition.states, definition.initial, strict=True))
    for _ in range(RESTING_STEPS):
        try:
            states = _stepped(definition.forward, states)
        except (ValueError, ZeroDivisionError, OverflowError):
            break
        if not all(map(math.isfinite, states.values())):
            return definition.initial
    return tuple(states[name] for name in definition.states)


def _stepped(tape: CellTape, states: dict[str, float]) -> dict[str, float]:
    values: list[float] = []
    for node in tape.nodes:
        args = [values[at] for at in node.args]
        if node.op in LEAVES:
            values.append(
                node.value if node.op == "constant" else states.get(node.name, 0.0) if node.op == "state" else 0.0
            )
        else:
            values.append(float({**FOLDED, **_CONDITIONS}[node.op](*args)))
    return {name: values[place] for name, place in tape.outputs}


_CONDITIONS: dict[str, Callable[..., Any]] = {
    "where": lambda c, x, y: x if c else y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "not": lambda x: not x,
    "rounded_down": lambda x: x,
}
