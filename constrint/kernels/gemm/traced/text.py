"""CUDA C++ of an epilogue: a function of the sum and of the operands at a row and a column of C. No torch.

Results of 16 bits take the approximations of `../cuda/source/epilogue.cuh` for activations, and those of the unit for
special functions for exp; results of 32 bits the functions of CUDA's library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constrint.kernels.gemm.epilogue.compiled import ADDED
from constrint.kernels.gemm.traced.expression import ACC, Expression

#: Operands by how they lie: one element, one for each row of C, one for each column, or one for each element.
SCALAR, ROW, COLUMN, FULL = "scalar", "row", "column", "full"
#: Operands that gemm.cuda reads as it reads a bias and a source matrix.
AS_BIAS, AS_SOURCE = "bias", "source"

_SIMPLE = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "min": "at_most({0}, {1})",
    "max": "at_least({0}, {1})",
    "abs": "fabsf({0})",
    "log": "logf({0})",
    "sqrt": "sqrtf({0})",
    "rsqrt": "rsqrtf({0})",
    "erf": "erff({0})",
    "where": "{0} ? {1} : {2}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} && {1}",
    "or": "{0} || {1}",
    "not": "!{0}",
    "relu": "activate_as<1>({0})",
    "gelu": "activate_as<2>({0})",
    "silu": "activate_as<3>({0})",
    "gelu_tanh": "activate_as<4>({0})",
    "sigmoid": "activate_as<5>({0})",
    "quick_gelu": "activate_as<6>({0})",
    "relu2": "activate_as<7>({0})",
    "tanh": "activate_as<8>({0})",
}


@dataclass(frozen=True)
class Placed:
    """An operand as a kernel is compiled for it.

    Args:
        name: Its name.
        lies: SCALAR, ROW, COLUMN, FULL, or AS_BIAS or AS_SOURCE.
        type: Name of its type, a key of `ADDED`; of no meaning for AS_BIAS and AS_SOURCE.
    """

    name: str
    lies: str
    type: str = ""


@dataclass(frozen=True)
class TracedEnd:
    """An epilogue as a kernel is compiled with it.

    Args:
        tape: `Expression.text`.
        operands: Its operands.
        output: Type of C.
    """

    tape: str
    operands: tuple[Placed, ...]
    output: str

    @property
    def extras(self) -> tuple[Placed, ...]:
        """Operands with parameters of their own, in order."""
        return tuple(each for each in self.operands if each.lies not in (AS_BIAS, AS_SOURCE))


def body(expression: Expression, names: Mapping[str, str], output: str) -> str:
    """Statements that compute the value; `names` says what stands for the sum and each operand."""
    lines, shown = [], []
    for number, step in enumerate(expression.steps):
        if step.op == "operand":
            shown.append(names[step.name])
            continue
        if step.op == "constant":
            shown.append(literal(step.value))
            continue
        template = _SIMPLE.get(step.op) or _exponential(output)
        text = template.format(*(shown[at] for at in step.args))
        lines.append(f"  const {'bool' if step.kind == 'c' else 'float'} t{number} = {text};")
        shown.append(f"t{number}")
    return "\n".join([*lines, f"  return {shown[-1]};"])


def literal(value: float) -> str:
    """A constant of 32 bits, by its bits."""
    import struct

    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return f"__uint_as_float(0x{struct.unpack('<I', packed)[0]:08x}u)"


def _exponential(output: str) -> str:
    return "power_of_two(kLog2E * {0})" if output in ("fp16", "bf16") else "expf({0})"


def ahead_of_kernel(end: TracedEnd) -> str:
    """Text ahead of gemm.cuda's kernel: the parameters of further operands."""
    extras = range(len(end.extras))
    parameters = "".join(
        f", const void* const __grid_constant__ from{i}, const __grid_constant__ long long by{i}" for i in extras
    )
    members = "".join(f"const void* const& from{i}; const long long& by{i}; " for i in extras)
    values = ", ".join(f"from{i}, by{i}" for i in extras)
    return (
        f"#define TRACED 1\n#define TRACED_PARAMETERS {parameters}\n#define TRACED_VALUES {{{values}}}\n"
        f"struct Operands {{ {members}}};\n"
    )


def behind_kernel(end: TracedEnd) -> str:
    """Text behind gemm.cuda's kernel: the epilogue."""
    names = {ACC: "acc"} | {each.name: each.lies for each in end.operands if each.lies in (AS_BIAS, AS_SOURCE)}
    for i, each in enumerate(end.extras):
        names[each.name] = f"x{i}"
    loads = [
        f"  const float x{i} = load_added<{ADDED[each.type]}>(o.from{i}, {_place(each.lies, i)});"
        for i, each in enumerate(end.extras)
    ]
    return "\n".join(
        [
            "__device__ __forceinline__ float traced(",
            "    float acc, float bias, float source, const Operands& o, int row, int column) {",
            *loads,
            body(Expression.of_text(end.tape), names, end.output),
            "}\n",
        ]
    )


def _place(lies: str, number: int) -> str:
    """The element of an operand; `by` is the step from row to row of a full one."""
    return {
        SCALAR: "0",
        ROW: f"row * o.by{number}",
        COLUMN: f"column * o.by{number}",
        FULL: f"row * o.by{number} + column",
    }[lies]


def pass_text(end: TracedEnd, operands: Sequence[Placed]) -> str:
    """Text of what `source/pass.cu` includes: the parameters, their loads, and the epilogue of one element."""
    parameters = "".join(f", const void* __restrict__ from{i}, long long by{i}" for i in range(len(operands)))
    vectors, arguments, formal, names = [], [], [], {ACC: "acc"}
    for i, each in enumerate(operands):
        kind, at = ADDED[each.type], f"row * by{i}"
        if each.lies == FULL:
            vectors.append(f"float x{i}[kVector]; load_vector<{kind}>(from{i}, {at} + column, x{i});")
        elif each.lies == COLUMN:
            vectors.append(f"float x{i}[kVector]; load_vector<{kind}>(from{i}, column, x{i});")
        else:
            vectors.append(f"const float x{i} = load_added<{kind}>(from{i}, {'0' if each.lies == SCALAR else at});")
        arguments.append(f", x{i}[i]" if each.lies in (FULL, COLUMN) else f", x{i}")
        formal.append(f", float x{i}")
        names[each.name] = f"x{i}"
    signature = f"__device__ __forceinline__ float traced(float acc{''.join(formal)})"
    return (
        f"#define PASS_PARAMETERS {parameters}\n#define PASS_LOADS {' '.join(vectors)}\n"
        f"#define PASS_ARGUMENTS {''.join(arguments)}\n{signature};\n"
        '#include "pass.cu"\n'
        f"{signature} {{\n{body(Expression.of_text(end.tape), names, end.output)}\n}}\n"
    )
