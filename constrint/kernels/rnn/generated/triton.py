"""A cell's step in Triton, as functions that the loops over time are given.

A function sees four pre-activations `p`, four states `s` and, where the cell has any, four parameters `u`, all
(tile_batch, tile_out) in fp32. What the cell lacks is handed through. Backward it gets the gradients `d` of the states
after the step, the states `q` before it and `s` after it, and gives the gradients of `p` and of the states before the
step, without what flows through R.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from constrint.kernels.rnn.generated.body import StepBody, lines
from constrint.kernels.rnn.generated.modules import FUNCTIONS, HEAD, module_of_text
from constrint.kernels.rnn.language.graph import CellDefinition, CellNode, CellTape
from constrint.select.python_text import closure, module_of

FORMULAS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "min": "tl.minimum({0}, {1})",
    "max": "tl.maximum({0}, {1})",
    "abs": "tl.abs({0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "log1p": "log1p({0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})",
    "erf": "tl.erf({0})",
    "tanh": "tanh({0}, fast)",
    "sigmoid": "sigmoid({0}, fast)",
    "relu": "tl.maximum({0}, 0.0)",
    "softplus": "-log_sigmoid(-({0}))",
    "logsigmoid": "log_sigmoid({0})",
    "rounded_down": "rounded_down({0}, dtype)",
    "where": "tl.where({0}, {1}, {2})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "{0} == 0",
}
#: First letters of the operands.
LETTERS = {"slot": "p", "state": "s", "new": "s", "gradient": "d", "parameter": "u"}


def triton_text(definition: CellDefinition, direction: str) -> str:
    """The function `cell_forward` or `cell_backward` of a cell."""
    return (_forward if direction == "forward" else _backward)(StepBody(definition))


def triton_step_texts(definition: CellDefinition, direction: str) -> list[str]:
    """The device code of a cell's step for a fingerprint: its text, and those of all that it may call."""
    functions = module_of(FUNCTIONS)
    assert functions is not None
    return [triton_text(definition, direction), *closure(functions.definitions())]


@lru_cache(maxsize=256)
def step_function(definition: CellDefinition, direction: str) -> Any:
    """The `triton.jit` function of one direction of a cell's step; the same for cells of the same equations."""
    return vars(module_of_text("cell", HEAD + triton_text(definition, direction)))[f"cell_{direction}"]


def _names(letter: str, number: int = 4) -> str:
    return ", ".join(f"{letter}{i}" for i in range(number))


def _leaf(body: StepBody, node: CellNode, before: str) -> str:
    sort, number = body.operand(node)
    if sort == "flag":
        return "shift_free"
    return f"{before if sort == 'state' else LETTERS[sort]}{number}"


def _computed(body: StepBody, tape: CellTape, before: str) -> tuple[list[str], list[str]]:
    """Statements of a whole tape, and the text of every place, as a tile."""
    written = dict[int, str]()
    statements = lines(
        tape.nodes,
        range(len(tape.nodes)),
        FORMULAS,
        lambda node: _leaf(body, node, before),
        written,
        lambda variable, node, formula: f"    {variable} = {formula}\n",
        list(tape.places.values()),
    )
    is_tile: list[bool] = []
    for node in tape.nodes:
        is_leaf = node.op in ("slot", "state", "new", "gradient")
        is_tile.append(is_leaf or any(is_tile[at] for at in node.args))
    return statements, [
        written[at] if is_tile[at] else "zero" if written[at] == "0.0" else f"zero + {written[at]}"
        for at in range(len(tape.nodes))
    ]


def _forward(body: StepBody) -> str:
    statements, texts = _computed(body, body.forward, "s")
    places = body.forward.places
    results = [texts[places[name]] for name in body.definition.states]
    results += [f"s{number}" for number in range(len(results), 4)]
    parameters = f"{_names('u')}, " if body.definition.parameters else ""
    return (
        "@triton.jit\n"
        f"def cell_forward({_names('p')}, {_names('s')}, {parameters}fast: tl.constexpr, dtype: tl.constexpr):\n"
        "    zero = tl.zeros(p0.shape, tl.float32)\n"
        f"{''.join(statements)}"
        f"    return {', '.join(results)}\n"
    )


def _backward(body: StepBody) -> str:
    statements, texts = _computed(body, body.backward, "q")
    found = {(sort, number): texts[place] for sort, number, place in body.gradient_outputs(body.backward)}
    results = [found.get(("slot", number), f"p{number}") for number in range(4)]
    results += [found.get(("state", number), f"d{number}") for number in range(4)]
    parameters = ""
    if body.definition.parameters:
        parameters = f"{_names('u')}, "
        results += [found.get(("parameter", number), "zero") for number in range(4)]
    operands = f"{_names('d')}, {_names('p')}, {_names('q')}, {_names('s')}, {parameters}"
    return (
        "@triton.jit\n"
        f"def cell_backward({operands}fast: tl.constexpr, shift_free: tl.constexpr):\n"
        "    zero = d0 * 0.0\n"
        f"{''.join(statements)}"
        f"    return {', '.join(results)}\n"
    )
