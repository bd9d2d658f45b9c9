"""A cell's step in CUDA C++, as a text: what the loops over time call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from constrint.kernels.rnn.generated.body import StepBody, lines
from constrint.kernels.rnn.language.graph import CellDefinition, CellNode, CellTape
from constrint.select.cuda_text import normal_text

#: Formulas of operations on floats, and on conditions.
FORMULAS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "quotient({0}, {1})",
    "neg": "-{0}",
    "min": "fminf({0}, {1})",
    "max": "fmaxf({0}, {1})",
    "abs": "fabsf({0})",
    "exp": "__expf({0})",
    "log": "logarithm({0})",
    "log1p": "log1pf({0})",
    "sqrt": "sqrtf({0})",
    "rsqrt": "rsqrtf({0})",
    "erf": "erff({0})",
    "tanh": "tanh_of({0})",
    "sigmoid": "sigmoid({0})",
    "relu": "fmaxf({0}, 0.0f)",
    "softplus": "-log_sigmoid(-({0}))",
    "logsigmoid": "log_sigmoid({0})",
    "rounded_down": "rounded_down({0})",
    "where": "{0} ? {1} : {2}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} && {1}",
    "or": "{0} || {1}",
    "not": "!{0}",
}
#: Cells whose quotients forward are exact in 16 bits, too, as those of the loops were whose times are recorded.
EXACT = ("slstm",)
#: The flag of a backward step, and arrays of the other operands.
FLAG = "shift_free"
ARRAYS = {"slot": "p", "state": "q", "new": "c", "gradient": "d", "parameter": "w"}
_FUNCTION = "\n__device__ __forceinline__"


@lru_cache(maxsize=256)
def cuda_text(definition: CellDefinition, direction: str) -> str:
    """`step_forward` of a cell, or `Known`, `know` and `step_backward`, for sources that include `cells.cuh`.

    What `know` computes does not depend on the gradients. `step_backward` turns those of the states after the step into
    those before it, without what flows through R.
    """
    return "".join((_forward if direction == "forward" else _backward)(StepBody(definition)))


def cuda_macros(definition: CellDefinition) -> dict[str, int]:
    """Macros that say what the generated text needs and has."""
    tape = definition.backward
    return {
        "CELL_GATES": len(definition.gates),
        "CELL_STATES": len(definition.states),
        "CELL_APART": int(any(gate.is_apart for gate in definition.gates)),
        "CELL_PARAMS": len(definition.parameters),
        "CELL_READS_H": int(definition.states[0] in tape.leaves("state")),
        "CELL_READS_NEW": int(bool(tape.leaves("new"))),
    }


def cuda_step_texts(definition: CellDefinition, direction: str) -> list[str]:
    """The device code of a cell's step for a fingerprint: the text as a compiler reads it, and the macros."""
    macros = (f"{name}={value}" for name, value in sorted(cuda_macros(definition).items()))
    return [normal_text(cuda_text(definition, direction)), *macros]


def _leaf(body: StepBody, node: CellNode, arrays: Mapping[str, str]) -> str:
    sort, number = body.operand(node)
    return f"{arrays[sort]}[{number}]"


def _constant(node: CellNode) -> str:
    return f"{node.value!r}f" if "e" in repr(node.value) or "." in repr(node.value) else f"{node.value!r}.0f"


def _statements(
    body: StepBody,
    tape: CellTape,
    places: Sequence[int],
    written: dict[int, str],
    arrays: Mapping[str, str],
    wanted: Sequence[int],
    formulas: Mapping[str, str] = FORMULAS,
) -> list[str]:
    written.update({at: _constant(node) for at, node in enumerate(tape.nodes) if node.op == "constant"})
    written.update({at: FLAG for at, node in enumerate(tape.nodes) if node.op == "flag"})
    return lines(tape.nodes, places, formulas, lambda node: _leaf(body, node, arrays), written, _assign, wanted)


def _assign(variable: str, node: CellNode, formula: str) -> str:
    return f"  const {'bool' if node.kind == 'c' else 'float'} {variable} = {formula};\n"


def _forward(body: StepBody) -> list[str]:
    tape, written = body.forward, dict[int, str]()
    formulas = FORMULAS | ({"div": "{0} / {1}"} if body.definition.name in EXACT else {})
    operands = written, {**ARRAYS, "state": "s"}, list(tape.places.values()), formulas
    statements = _statements(body, tape, range(len(tape.nodes)), *operands)
    results = [f"  const float s{i} = {written[tape.places[name]]};\n" for i, name in enumerate(body.definition.states)]
    stores = [f"  s[{i}] = s{i};\n" for i in range(len(results))]
    head = f"{_FUNCTION} void step_forward(const float (&p)[4], float (&s)[STATES]"
    return [f"{head}{_reference(body, 'w', is_const=True)}) {{\n", *statements, *results, *stores, "}\n"]


def _reference(body: StepBody, name: str, *, is_const: bool) -> str:
    if not body.definition.parameters:
        return ""
    return f", {'const ' if is_const else ''}float (&{name})[CELL_PARAMS]"


def _backward(body: StepBody) -> list[str]:
    tape, carried, is_known = body.chain, body.carried, body.is_known
    fields = [f"  {'bool' if tape.nodes[at].kind == 'c' else 'float'} x{at};\n" for at in carried]
    places = range(len(tape.nodes))
    written = dict[int, str]()
    computed = _statements(body, tape, [at for at in places if is_known[at]], written, ARRAYS, carried)
    kept = [f"  known.x{at} = {written[at]};\n" for at in carried]
    rest = {at: f"k.x{at}" for at in carried}
    wanted = list(tape.places.values())
    later = _statements(body, tape, [at for at in places if not is_known[at]], rest, ARRAYS, wanted)
    names = {"slot": "grads", "state": "d", "parameter": "of_step"}
    found = [(f"{names[sort]}[{number}]", rest[place]) for sort, number, place in body.gradient_outputs(tape)]
    results = [f"  const float r{i} = {text};\n" for i, (_, text) in enumerate(found)]
    stores = [f"  {to} = r{i};\n" for i, (to, _) in enumerate(found)]
    operands = "const float (&p)[4], const float (&q)[4], const float (&c)[4]"
    know = f"{_FUNCTION} Known know({operands}{_reference(body, 'w', is_const=True)}, bool {FLAG}) {{\n"
    step = f"{_FUNCTION} void step_backward(const Known& k, bool {FLAG}, float (&d)[STATES], float (&grads)[4]"
    return [
        "\nstruct Known {\n",
        *fields,
        "};\n",
        know,
        *computed,
        "  Known known;\n",
        *kept,
        "  return known;\n}\n",
        f"{step}{_reference(body, 'of_step', is_const=False)}) {{\n",
        "  (void)k;\n",
        *later,
        *results,
        *stores,
        "}\n",
    ]
