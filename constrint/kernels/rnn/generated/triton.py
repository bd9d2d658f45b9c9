"""A cell's step in Triton: functions with the signatures of `kernel_cells.py`, from a text that Triton can read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from constrint.kernels.rnn.generated.body import StepBody, lines
from constrint.kernels.rnn.generated.modules import HEAD, module_of_text
from constrint.kernels.rnn.language.graph import CellDefinition, CellNode, CellTape

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


def triton_text(definition: CellDefinition) -> str:
    """The module with `cell_forward` and `cell_backward` of a cell."""
    body = StepBody(definition)
    return HEAD + _forward(body) + "\n\n" + _backward(body)


@lru_cache(maxsize=256)
def triton_functions(definition: CellDefinition) -> dict[str, Any]:
    """The jitted functions of a cell by direction; a cell of the same equations gets functions of the same text."""
    module = module_of_text("cell", triton_text(definition))
    return {"forward": vars(module)["cell_forward"], "backward": vars(module)["cell_backward"]}


def _names(letter: str, number: int = 4) -> str:
    return ", ".join(f"{letter}{i}" for i in range(number))


def _leaf(body: StepBody, node: CellNode, before: str) -> str:
    sort, number = body.operand(node)
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
    )
    is_tile: list[bool] = []
    for node in tape.nodes:
        is_leaf = node.op in ("slot", "state", "new", "gradient")
        is_tile.append(is_leaf or any(is_tile[at] for at in node.args))
    return statements, [written[at] if is_tile[at] else f"zero + {written[at]}" for at in range(len(tape.nodes))]


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
    found = {(sort, number): texts[place] for sort, number, place in body.gradient_outputs()}
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
        "    zero = tl.zeros(p0.shape, tl.float32)\n"
        f"{''.join(statements)}"
        f"    return {', '.join(results)}\n"
    )
