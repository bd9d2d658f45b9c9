"""A cell's step in CUDA C++: the functions that `cuda/source/cells.cuh` has for built-in cells, as a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constrint.kernels.rnn.generated.body import StepBody, lines
from constrint.kernels.rnn.language.graph import CellDefinition, CellNode, CellTape

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
#: Arrays of the operands.
ARRAYS = {"slot": "p", "state": "q", "new": "c", "gradient": "d", "parameter": "w"}
_HEAD = """
// A quotient; in 16 bits to a rounding of fp32 more.
__device__ __forceinline__ float quotient(float x, float y) { return IS_WIDE ? x / y : __fdividef(x, y); }

// A logarithm: in fp32 exact near 1, too.
__device__ __forceinline__ float logarithm(float x) { return IS_WIDE ? logf(x) : __logf(x); }

// A value that the dtype of states has, and not above x.
__device__ __forceinline__ float rounded_down(float x) {
#if DTYPE < 2
  constexpr float UNIT = DTYPE == 1 ? 0.00394531f : 0.00049316f;
  return widen(narrow(x - UNIT * fabsf(x)));
#else
  return x;
#endif
}
"""


def cuda_text(definition: CellDefinition) -> str:
    """`step_forward`, `Known`, `know` and `step_backward` of a cell, for sources that include `cells.cuh`."""
    body = StepBody(definition)
    return "".join((_HEAD, *_forward(body), *_backward(body)))


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


def _leaf(body: StepBody, node: CellNode, arrays: Mapping[str, str]) -> str:
    sort, number = body.operand(node)
    return f"{arrays[sort]}[{number}]"


def _constant(node: CellNode) -> str:
    return f"{node.value!r}f" if "e" in repr(node.value) or "." in repr(node.value) else f"{node.value!r}.0f"


def _statements(
    body: StepBody, tape: CellTape, places: Sequence[int], written: dict[int, str], arrays: Mapping[str, str]
) -> list[str]:
    written.update({at: _constant(node) for at, node in enumerate(tape.nodes) if node.op == "constant"})
    return lines(tape.nodes, places, FORMULAS, lambda node: _leaf(body, node, arrays), written, _assign)


def _assign(variable: str, node: CellNode, formula: str) -> str:
    return f"  const {'bool' if node.kind == 'c' else 'float'} {variable} = {formula};\n"


def _forward(body: StepBody) -> list[str]:
    tape, written = body.forward, dict[int, str]()
    statements = _statements(body, tape, range(len(tape.nodes)), written, {**ARRAYS, "state": "s"})
    results = [f"  const float s{i} = {written[tape.places[name]]};\n" for i, name in enumerate(body.definition.states)]
    stores = [f"  s[{i}] = s{i};\n" for i in range(len(results))]
    head = "\n__device__ __forceinline__ void step_forward(const float (&p)[4], float (&s)[STATES]"
    return [f"{head}{_reference(body, 'w', is_const=True)}) {{\n", *statements, *results, *stores, "}\n"]


def _reference(body: StepBody, name: str, *, is_const: bool) -> str:
    if not body.definition.parameters:
        return ""
    return f", {'const ' if is_const else ''}float (&{name})[CELL_PARAMS]"


def _backward(body: StepBody) -> list[str]:
    tape, carried, is_known = body.backward, body.carried, body.is_known
    fields = [f"  {'bool' if tape.nodes[at].kind == 'c' else 'float'} x{at};\n" for at in carried]
    places = range(len(tape.nodes))
    written = dict[int, str]()
    computed = _statements(body, tape, [at for at in places if is_known[at]], written, ARRAYS)
    kept = [f"  known.x{at} = {written[at]};\n" for at in carried]
    rest = {at: f"k.x{at}" for at in carried}
    later = _statements(body, tape, [at for at in places if not is_known[at]], rest, ARRAYS)
    names = {"slot": "grads", "state": "d", "parameter": "of_step"}
    found = [(f"{names[sort]}[{number}]", rest[place]) for sort, number, place in body.gradient_outputs()]
    results = [f"  const float r{i} = {text};\n" for i, (_, text) in enumerate(found)]
    stores = [f"  {to} = r{i};\n" for i, (to, _) in enumerate(found)]
    operands = "const float (&p)[4], const float (&q)[4], const float (&c)[4]"
    know = f"\n__device__ __forceinline__ Known know({operands}{_reference(body, 'w', is_const=True)}, bool) {{\n"
    step = "\n__device__ __forceinline__ void step_backward(const Known& k, bool, float (&d)[STATES], float (&grads)[4]"
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
