"""`cell`: a Python function that computes one step, traced on symbols, becomes a `CellDefinition`. No torch.

    @cell(gates=("i", "f", "z", "o"), states=("h", "c"))
    def peephole_lstm(g, s, p):
        c = sigmoid(g.f + p.wf * s.c) * s.c + sigmoid(g.i + p.wi * s.c) * tanh(g.z)
        return dict(c=c, h=sigmoid(g.o + p.wo * c) * tanh(c))

The function runs once, at its definition. Whatever it cannot do is refused there, with the line where it stands.
"""

from __future__ import annotations

import inspect
import keyword
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, NoReturn

from constrint.errors import UsageError
from constrint.kernels.gemm.traced.expression import TapeOperation
from constrint.kernels.gemm.traced.trace import NAMES, NUMBERS, TracedValue, apply
from constrint.kernels.rnn.language.graph import (
    CELL_OPERATIONS,
    FOLDED,
    INPUT_KINDS,
    MOST_GATES,
    MOST_INPUTS,
    MOST_PARAMETERS,
    MOST_STATES,
    PARAMETER_KINDS,
    CellDefinition,
    CellGate,
    CellTapeWriter,
    Parameter,
    StepInput,
)

_PACKAGE = str(Path(__file__).resolve().parents[3]) + os.sep


class CellValue(TracedValue):
    """A number or a condition of a step, as the cell's function sees it."""

    __slots__ = ()
    _owner, _traced, _function = "", "a cell", ""
    _advice = "a cell reads gates, states, parameters and inputs, and numbers."
    _operations: ClassVar[Mapping[str, TapeOperation]] = {
        name: op for name, op in CELL_OPERATIONS.items() if name not in ("product", "product_t")
    }
    _names: ClassVar[Mapping[str, str]] = {name: op for name, op in NAMES.items() if op in CELL_OPERATIONS} | {
        "log1p": "log1p",
        "softplus": "softplus",
        "log_sigmoid": "logsigmoid",
        "logsigmoid": "logsigmoid",
    }


class _Names:
    """Symbols by name: `g`, `s`, `p` and `x` of a cell's function."""

    __slots__ = ("_kind", "_symbols")
    _kind: str
    _symbols: dict[str, Any]

    def __init__(self, kind: str, symbols: dict[str, Any]) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_symbols", symbols)

    def __getattr__(self, name: str) -> Any:
        if name not in self._symbols:
            known = ", ".join(self._symbols) or "none"
            raise UsageError(f"there is no {self._kind} {name!r}; there are: {known}.")
        return self._symbols[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UsageError(f"a cell changes no {self._kind} in place; it returns new states.")


class _NewParameters(_Names):
    """Parameters of a cell that declares none: each name is a parameter per unit at its first use."""

    __slots__ = ("_writer",)
    _writer: CellTapeWriter

    def __init__(self, writer: CellTapeWriter) -> None:
        super().__init__("parameter", {})
        object.__setattr__(self, "_writer", writer)

    def __getattr__(self, name: str) -> Any:
        _check_name("a parameter", name)
        if name not in self._symbols and len(self._symbols) >= MOST_PARAMETERS:
            raise UsageError(f"a cell has at most {MOST_PARAMETERS} parameters.")
        return self._symbols.setdefault(name, CellValue(self._writer, self._writer.leaf("parameter", name)))


class GateParts:
    """A gate whose parts stand apart: `input` is W x, `recurrent` is R h + b, and a call is R times a value plus b."""

    __slots__ = ("_name", "_used", "_writer")

    def __init__(self, writer: _StepWriter, name: str) -> None:
        self._writer, self._name, self._used = writer, name, ""

    @property
    def input(self) -> CellValue:
        """W x, and the bias on the input's side."""
        return self._slot("input")

    @property
    def recurrent(self) -> CellValue:
        """R h, and the bias on the recurrent side."""
        self._claim("R times the state before")
        return self._slot("recurrent")

    def __call__(self, value: Any) -> CellValue:
        """R times a value of a head's units, and the bias on the recurrent side: a second product of the step."""
        if not isinstance(value, CellValue) or value._tape is not self._writer:
            raise UsageError(f"R of gate {self._name!r} multiplies a value of the cell, got {type(value).__name__}.")
        place = value._place
        node = self._writer.nodes[place]
        if node.op == "state" and node.name == self._writer.first_state:
            return self.recurrent
        self._claim(f"R times the value at place {place}")
        return CellValue(self._writer, self._writer.operation("product", place, name=self._name))

    def _slot(self, part: str) -> CellValue:
        return CellValue(self._writer, self._writer.leaf("slot", f"{self._name}.{part}"))

    def _claim(self, use: str) -> None:
        """Note what R of this gate multiplies: one thing."""
        if self._used not in ("", use):
            raise UsageError(f"R of gate {self._name!r} multiplies one value of a step; another needs a gate more.")
        self._used = use

    def _refuse(self, *_: object) -> NoReturn:
        name = self._name
        raise UsageError(
            f"the parts of gate {name!r} stand apart: use g.{name}.input, g.{name}.recurrent or g.{name}(value)."
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __neg__ = __pos__ = __abs__ = __pow__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()


def cell(
    gates: Sequence[str],
    states: Sequence[str] | Mapping[str, float] = ("h",),
    *,
    apart: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], CellDefinition]:
    """Define a recurrent cell by the function of one step.

    The function takes `g`, `s`, and where it uses them `p` and `x`: gates' pre-activations, states before the step,
    elementwise parameters and inputs of the step, each by name. It returns a dict of all new states.

    Args:
        gates: Names of gates, in the order of the rows of weights. `g.i` is W x + R h + b.
        states: Names of states; R multiplies the first one, which is the layer's output. A mapping gives the values
            before the first step; else they are 0.
        apart: Gates whose parts are used apart: `g.n.input`, `g.n.recurrent`, or `g.n(value)`, a second product.
        parameters: Kind ("unit", "head", "layer"), initial value, or both of every parameter, by name; left out, each
            used name is one per unit that starts at 0.
        inputs: Kind of every input of a step besides x, by name: "sequence", one number per sequence and step, or
            "unit".
        name: The cell's name; else the function's.

    Raises:
        UsageError: For a declaration or a function that is no cell, with the line where this stands.
    """
    at = _caller()
    with _Located(at, "cell"):
        gates, apart = _names("gates", gates, MOST_GATES), _names("apart", apart, MOST_GATES, least=0)
        if not set(apart) <= set(gates):
            raise UsageError(f"apart names gates; {sorted(set(apart) - set(gates))[0]!r} is none.")
        names = _names("states", tuple(states) if isinstance(states, Mapping) else states, MOST_STATES)
        initial = states if isinstance(states, Mapping) else dict.fromkeys(names, 0.0)
        start = tuple(_number(f"the first value of state {each!r}", value) for each, value in initial.items())
        declared = None if parameters is None else _parameters(parameters)
        step_inputs = _inputs({} if inputs is None else inputs)

    def define(function: Callable[..., Any]) -> CellDefinition:
        place = at
        if isinstance(function, FunctionType):
            place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        label = name if name is not None else getattr(function, "__name__", "cell")
        with _Located(place, str(label)):
            _check_name("a cell", label)
            return _defined(function, label, gates, apart, names, start, declared, step_inputs)

    return define


def _defined(
    function: Any,
    name: str,
    gates: tuple[str, ...],
    apart: tuple[str, ...],
    states: tuple[str, ...],
    start: tuple[float, ...],
    declared: tuple[Parameter, ...] | None,
    inputs: tuple[StepInput, ...],
) -> CellDefinition:
    """Trace the function and check what it returned."""
    count = _count_of_parameters(function)
    least = 4 if inputs else 3 if declared else 2
    if not least <= count <= 4:
        raise UsageError(f"the function of a cell takes g, s, p and x; this cell needs {least} of them, got {count}.")
    writer = _StepWriter(states[0])
    g = {each: GateParts(writer, each) if each in apart else _leaf(writer, "slot", each) for each in gates}
    p: _Names = _NewParameters(writer)
    if declared is not None:
        p = _Names("parameter", {each.name: _leaf(writer, "parameter", each.name) for each in declared})
    s = {each: _leaf(writer, "state", each) for each in states}
    x = {each.name: _leaf(writer, "input", each.name) for each in inputs}
    symbols = (_Names("gate", g), _Names("state", s), p, _Names("input", x))[:count]
    result = function(*symbols)
    if not isinstance(result, Mapping):
        raise UsageError(f"a cell returns a dict of its new states, got {type(result).__name__}.")
    if set(result) != set(states):
        raise UsageError(f"a cell returns the states {', '.join(states)}; got {', '.join(map(str, result)) or 'none'}.")
    traced = writer.ended({each: _place(writer, each, result[each]) for each in states})
    parameters = declared if declared is not None else tuple(Parameter(each) for each in p._symbols)
    for kind, leaf, names in (
        ("parameter", "parameter", [each.name for each in parameters]),
        ("input", "input", [each.name for each in inputs]),
        ("gate", "slot", [each for each in gates if each not in apart]),
    ):
        unused = [each for each in names if each not in traced.leaves(leaf)]
        if unused:
            raise UsageError(f"{kind} {unused[0]!r} is not used: no new state depends on it.")
    slots, products = traced.leaves("slot"), traced.leaves("product")
    made = []
    for each in gates:
        if each not in apart:
            made.append(CellGate(each))
            continue
        is_late = each in products
        gate = CellGate(each, True, f"{each}.input" in slots, is_late or f"{each}.recurrent" in slots, is_late)
        if not (gate.has_input or gate.has_recurrent):
            raise UsageError(f"gate {each!r} is not used: no new state depends on it.")
        made.append(gate)
    definition = CellDefinition(name, tuple(made), states, start, parameters, inputs, traced)
    _ = definition.backward  # made now, so that what it cannot do is said here
    return definition


def state_derivative(definition: CellDefinition) -> Callable[[Callable[..., Any]], CellDefinition]:
    """State the derivative of a cell's step, for one that loses its accuracy where it is made from the step.

    The function takes `g` and `s` as the step does, `new`, the states after the step as they are stored, `d`, the
    gradients of these, and `only_h`, a condition: the first state alone has gradients, and values are stored in 16
    bits. It returns the gradients of all gates and of all states before the step, without what flows through R.

    Args:
        definition: A cell without parameters and inputs whose gates are sums.

    Raises:
        UsageError: For a function that returns anything else, with the line where it stands.
    """
    with _Located(_caller(), definition.name):
        if definition.parameters or definition.inputs or any(gate.is_apart for gate in definition.gates):
            raise UsageError("a derivative is stated for a cell without parameters and inputs whose gates are sums.")

    def define(function: Callable[..., Any]) -> CellDefinition:
        code = function.__code__
        with _Located(f"{code.co_filename}:{code.co_firstlineno}", definition.name):
            writer, gates = CellTapeWriter(), [gate.name for gate in definition.gates]
            g, s, new, d = (
                _Names(op, {name: _leaf(writer, op, name) for name in names})
                for op, names in (
                    ("slot", gates),
                    *((op, definition.states) for op in ("state", "new", "gradient")),
                )
            )
            result = function(g, s, new, d, _leaf(writer, "flag", "only_h"))
            wanted = {f"slot:{name}": name for name in gates} | {f"state:{name}": name for name in definition.states}
            if not isinstance(result, Mapping) or set(result) != set(wanted.values()):
                raise UsageError(f"a derivative is a dict of the gradients of {', '.join(wanted.values())}.")
            tape = writer.ended({key: _place(writer, name, result[name]) for key, name in wanted.items()})
            return replace(definition, stated=tape)

    return define


class _StepWriter(CellTapeWriter):
    """The tape of a step, which knows the state that R multiplies."""

    def __init__(self, first_state: str) -> None:
        super().__init__()
        self.first_state = first_state


class _Located:
    """Gives errors the line where they stand: the innermost one outside of this package, else a given one."""

    def __init__(self, place: str, name: str) -> None:
        self.place, self.name = place, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception):
            return
        place = self.place
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file == self.place.rpartition(":")[0]:
                place = f"{file}:{trace.tb_lineno}"
            trace = trace.tb_next
        text = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
        raise UsageError(f"{place}: {self.name}: {text}") from error


def _caller() -> str:
    """File and line of the nearest frame outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _leaf(writer: CellTapeWriter, op: str, name: str) -> CellValue:
    return CellValue(writer, writer.leaf(op, name))


def _place(writer: CellTapeWriter, name: str, value: Any) -> int:
    """The place of a new state, a number or a value of this tracing."""
    if isinstance(value, NUMBERS) and not isinstance(value, bool):
        return writer.constant(_number(f"state {name!r}", value))
    if not isinstance(value, CellValue) or value._tape is not writer:
        raise UsageError(f"state {name!r} is a value computed by the cell, got {type(value).__name__}.")
    if writer.nodes[value._place].kind != "n":
        raise UsageError(f"state {name!r} is a number, got a condition: use where(condition, 1, 0).")
    return value._place


def _count_of_parameters(function: Any) -> int:
    if not isinstance(function, FunctionType):
        raise UsageError(f"a cell is a Python function, got {type(function).__name__}.")
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    if any(kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds):
        raise UsageError("the function of a cell takes g, s, p and x, without * and **.")
    return len(kinds)


#: Names that a layer has for other things.
RESERVED = ("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh", "input", "hx", "lengths", "reset", "self")


def _check_name(what: str, name: Any) -> None:
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise UsageError(f"{what} has an ASCII identifier as its name, got {name!r:.60}.")
    if name.startswith("_") or len(name) > 40:
        raise UsageError(f"{what} has a name of at most 40 letters that starts with no underscore, got {name!r:.60}.")
    if name in RESERVED:
        raise UsageError(f"{what} has a name that its layer has no other use for; {name!r} is taken.")


def _names(what: str, names: Any, most: int, least: int = 1) -> tuple[str, ...]:
    """Distinct names, in order."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise UsageError(f"{what} is a tuple of names, got {type(names).__name__}.")
    if not least <= len(names) <= most:
        raise UsageError(f"{what} holds {least} to {most} names, got {len(names)}.")
    for each in names:
        _check_name(f"each of {what}", each)
    if len(set(names)) < len(names):
        raise UsageError(f"{what} holds {next(each for each in names if names.count(each) > 1)!r} twice.")
    return tuple(names)


def _number(what: str, value: Any) -> float:
    if not isinstance(value, NUMBERS) or isinstance(value, bool):
        raise UsageError(f"{what} is a number, got {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UsageError(f"{what} is finite, got {number}.")
    return number


def _parameters(declared: Any) -> tuple[Parameter, ...]:
    if not isinstance(declared, Mapping):
        raise UsageError(f"parameters maps names to kinds or first values, got {type(declared).__name__}.")
    names = _names("parameters", tuple(declared), MOST_PARAMETERS, least=0)
    made = []
    for each in names:
        given = declared[each]
        kind, value = given if isinstance(given, tuple) and len(given) == 2 else ("unit", given)
        if isinstance(given, str):
            kind, value = given, 0.0
        if kind not in PARAMETER_KINDS:
            raise UsageError(f"parameter {each!r} is one per {', '.join(PARAMETER_KINDS)}, got {kind!r:.60}.")
        made.append(Parameter(each, kind, _number(f"the first value of parameter {each!r}", value)))
    return tuple(made)


def _inputs(declared: Any) -> tuple[StepInput, ...]:
    if not isinstance(declared, Mapping):
        raise UsageError(f"inputs maps names to kinds, got {type(declared).__name__}.")
    names = _names("inputs", tuple(declared), MOST_INPUTS, least=0)
    for each in names:
        if declared[each] not in INPUT_KINDS:
            raise UsageError(f"input {each!r} is one per {' or '.join(INPUT_KINDS)}, got {declared[each]!r:.60}.")
    return tuple(StepInput(each, declared[each]) for each in names)


def _function(op: str, *values: Any) -> Any:
    """An operation on values and numbers; on numbers alone a number."""
    if any(isinstance(value, CellValue) for value in values):
        return apply(op, *values)
    parts = [value for value in values if isinstance(value, GateParts)]
    if parts:
        parts[0]._refuse()
    numbers = [_number(f"an argument of {op}", value) for value in values]
    if op not in FOLDED:
        raise UsageError(f"{op} takes a value of the cell.")
    try:
        return FOLDED[op](*numbers)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise UsageError(f"{op}({', '.join(map(str, numbers))}) is not finite.") from error


def exp(x: Any) -> Any:
    """e to the power of x."""
    return _function("exp", x)


def log(x: Any) -> Any:
    """The natural logarithm."""
    return _function("log", x)


def log1p(x: Any) -> Any:
    """The natural logarithm of 1 + x."""
    return _function("log1p", x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return _function("tanh", x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _function("sigmoid", x)


def relu(x: Any) -> Any:
    """max(x, 0)."""
    return _function("relu", x)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return _function("softplus", x)


def logsigmoid(x: Any) -> Any:
    """The logarithm of `sigmoid`, without overflow."""
    return _function("logsigmoid", x)


def sqrt(x: Any) -> Any:
    """The square root."""
    return _function("sqrt", x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _function("rsqrt", x)


def erf(x: Any) -> Any:
    """The error function."""
    return _function("erf", x)


def head_sum(x: Any) -> Any:
    """The sum over the units of a head, at each of them: a stage of the step of its own."""
    return _function("head_sum", x)


def head_mean(x: Any) -> Any:
    """The mean over the units of a head, at each of them: a stage of the step of its own."""
    return _function("head_mean", x)


def rounded_down(x: Any) -> Any:
    """A value that the dtype of stored states represents and that is not above x; its derivative is that of x."""
    return _function("rounded_down", x)


def minimum(x: Any, y: Any) -> Any:
    """The smaller one."""
    return _function("min", x, y)


def maximum(x: Any, y: Any) -> Any:
    """The larger one."""
    return _function("max", x, y)


def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y. The other one's gradient is zero, even where its value is not finite."""
    return _function("where", condition, x, y)


def surrogate(forward: Any, backward: Any) -> Any:
    """The value of `forward`, with the derivative of `backward`: for steps that have no slope of use."""
    return _function("surrogate", forward, backward)
