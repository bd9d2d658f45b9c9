"""The language of cells: what it refuses and where, what it derives, and what a definition is to other processes."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from constrint.errors import UsageError
from constrint.flashrnn.steps import (
    cell,
    erf,
    exp,
    head_mean,
    head_sum,
    log,
    log1p,
    logsigmoid,
    maximum,
    minimum,
    relu,
    rsqrt,
    sigmoid,
    softplus,
    sqrt,
    surrogate,
    tanh,
    where,
)
from constrint.kernels.rnn.equations import EQUATIONS
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.language.parse import definition_of
from constrint.kernels.rnn.language.torch_code import derivative_error
from constrint.kernels.rnn.language.trace import state_derivative

ONE: dict[str, Any] = {"gates": ("g",)}
APART: dict[str, Any] = {"gates": ("g",), "apart": ("g",)}

#: A cell's declaration, or a function of `g`, `s`, `p` (or a lambda on one line), and a part of the message. A function
#: is refused on its last line, a declaration on the line of `cell(...)`.
HOSTILE: list[tuple[dict[str, Any], Callable[..., Any], str]] = [
    ({"gates": ()}, lambda g, s: {}, "1 to 8 names"),
    ({"gates": "ifzo"}, lambda g, s: {}, "tuple of names"),
    ({"gates": {"g": 1}}, lambda g, s: {}, "tuple of names"),
    ({"gates": ("g", "g")}, lambda g, s: {}, "twice"),
    ({"gates": ("a b",)}, lambda g, s: {}, "identifier"),
    ({"gates": ("if",)}, lambda g, s: {}, "identifier"),
    ({"gates": ("grün",)}, lambda g, s: {}, "identifier"),
    ({"gates": ("_g",)}, lambda g, s: {}, "underscore"),
    ({"gates": ("g" * 50,)}, lambda g, s: {}, "40 letters"),
    ({"gates": (1,)}, lambda g, s: {}, "identifier"),
    ({"gates": tuple(f"g{i}" for i in range(9))}, lambda g, s: {}, "1 to 8 names"),
    (ONE | {"states": ()}, lambda g, s: {}, "1 to 8 names"),
    (ONE | {"states": {"h": float("nan")}}, lambda g, s: {}, "finite"),
    (ONE | {"states": {"h": "0"}}, lambda g, s: {}, "a number"),
    (ONE | {"apart": ("q",)}, lambda g, s: {}, "'q' is none"),
    (ONE | {"parameters": ["w"]}, lambda g, s, p: {}, "maps names"),
    (ONE | {"parameters": {"w": "row"}}, lambda g, s, p: {}, "unit, head, layer"),
    (ONE | {"parameters": {"w": ("unit", 1e999)}}, lambda g, s, p: {}, "finite"),
    (ONE | {"parameters": {"w": True}}, lambda g, s, p: {}, "a number"),
    (ONE | {"parameters": {"weight_ih": 0.0}}, lambda g, s, p: {}, "is taken"),
    (ONE | {"inputs": {"lengths": "unit"}}, lambda g, s, p, x: {}, "is taken"),
    (ONE | {"inputs": {"m": "batch"}}, lambda g, s, p, x: {}, "sequence or unit"),
    (ONE | {"name": "a-b"}, lambda g, s: {"h": g.g}, "identifier"),
    (ONE | {"name": "a"}, lambda g: {"h": g.g}, "takes g, s, p and x"),
    (ONE | {"name": "a"}, lambda *g: {"h": 0}, "without *"),
    (ONE | {"name": "a", "inputs": {"m": "unit"}}, lambda g, s: {"h": g.g}, "needs 4"),
    (ONE | {"name": "a"}, lambda g, s: g.g, "returns a dict"),
    (ONE | {"name": "a"}, lambda g, s: None, "returns a dict"),
    (ONE | {"name": "a"}, lambda g, s: {}, "returns the states h; got none"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g, "c": g.g}, "returns the states h; got h, c"),
    (ONE | {"name": "a"}, lambda g, s: {"h": s.h}, "gate 'g' is not used"),
    (ONE | {"name": "a"}, lambda g, s: {"h": 0 * g.g if False else s.h * 2}, "gate 'g' is not used"),
    (ONE | {"name": "a", "parameters": {"w": 0.0}}, lambda g, s, p: {"h": g.g}, "parameter 'w' is not used"),
    (ONE | {"name": "a", "inputs": {"m": "unit"}}, lambda g, s, p, x: {"h": g.g}, "input 'm' is not used"),
    (APART | {"name": "a"}, lambda g, s: {"h": s.h}, "gate 'g' is not used"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g > 0}, "got a condition"),
    (ONE | {"name": "a"}, lambda g, s: {"h": "g"}, "a value computed by the cell"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.q}, "no gate 'q'"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g + s.c}, "no state 'c'"),
    (ONE | {"name": "a", "parameters": {}}, lambda g, s, p: {"h": g.g + p.w}, "no parameter 'w'"),
    (ONE | {"name": "a"}, lambda g, s, p: {"h": g.g + p._w}, "underscore"),
    (ONE | {"name": "a"}, lambda g, s, p: {"h": g.g + p.bias_hh}, "is taken"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g if g.g > 0 else s.h}, "cannot branch"),
    (ONE | {"name": "a"}, lambda g, s: {"h": max(g.g, s.h)}, "cannot branch"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g and s.h}, "cannot branch"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g + "1"}, "got str"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g + True}, "got bool"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g + 1j}, "got complex"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g + torch.ones(3)}, "got Tensor"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g + float("inf")}, "finite"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g * 10**400}, "too large"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g / 0 + log(0)}, "not finite"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g**1.7}, "powers"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g.sin()}, "no 'sin'"),
    (ONE | {"name": "a"}, lambda g, s: {"h": torch.sin(g.g)}, "no torch's function 'sin'"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g[0]}, "TypeError"),
    (ONE | {"name": "a"}, lambda g, s: {"h": float(g.g)}, "TypeError"),
    (ONE | {"name": "a"}, lambda g, s: {"h": sum(g.g)}, "TypeError"),
    (ONE | {"name": "a"}, lambda g, s: {"h": where(g.g, 1, 0)}, "where takes a condition"),
    (ONE | {"name": "a"}, lambda g, s: {"h": sigmoid(g.g > 0)}, "sigmoid takes a number"),
    (ONE | {"name": "a"}, lambda g, s: {"h": (g.g > 0) + 1}, "add takes a number"),
    (ONE | {"name": "a"}, lambda g, s: {"h": undefined(g.g)}, "NameError"),  # type: ignore[name-defined]  # noqa: F821
    (ONE | {"name": "a"}, lambda g, s: {"h": s.__setattr__("h", 0)}, "in place"),
    (ONE | {"name": "a"}, lambda g, s: {"h": g.g + elsewhere()}, "two tracings"),
    (APART | {"name": "a"}, lambda g, s: {"h": g.g + 1}, "stand apart"),
    (APART | {"name": "a"}, lambda g, s: {"h": tanh(g.g)}, "stand apart"),
    (APART | {"name": "a"}, lambda g, s: {"h": g.g(1.0)}, "multiplies a value of the cell"),
    (APART | {"name": "a"}, lambda g, s: {"h": g.g(s.h > 0)}, "product takes a number"),
    (APART | {"name": "a"}, lambda g, s: {"h": g.g(s.h * 2) + g.g(s.h * 3)}, "another needs a gate"),
    (APART | {"name": "a"}, lambda g, s: {"h": g.g(tanh(g.g.recurrent))}, "another needs a gate"),
    (ONE | {"name": "a"}, lambda g, s: {"h": long_sum(g.g, 600)}, "at most 512"),
    (ONE | {"name": "a"}, lambda g, s, p: {"h": g.g + sum(getattr(p, f"w{i}") for i in range(17))}, "at most 16"),
]
_KEPT: list[Any] = []


def elsewhere() -> Any:
    """A value of another cell's tracing."""
    if not _KEPT:
        cell(("g",), name="other")(lambda g, s: {"h": [g.g, _KEPT.append(g.g)][0]})  # type: ignore[func-returns-value]
    return _KEPT[0]


def long_sum(x: Any, count: int) -> Any:
    for at in range(count):
        x = x * (1.5 + at)
    return x


@pytest.mark.parametrize("at", range(len(HOSTILE)))
def test_a_hostile_definition_is_refused_with_its_line(at: int) -> None:
    declaration, function, part = HOSTILE[at]
    with pytest.raises(UsageError) as refusal:
        cell(**declaration)(function)
    message = str(refusal.value)
    assert part in message
    file, line, _ = message.split(":", 2)
    assert Path(file) == Path(__file__)
    own = function.__code__.co_firstlineno
    helper = {"long_sum": long_sum.__code__.co_firstlineno + 2}.get(next(iter(function.__code__.co_names), ""))
    calls = [frame.lineno for frame in traceback.extract_tb(refusal.tb) if frame.filename == __file__]
    assert int(line) in {own, calls[0], helper}
    assert len(HOSTILE) >= 50


def test_a_line_within_a_function_is_named() -> None:
    def step(g: Any, s: Any) -> Any:
        h = tanh(g.g)
        return {"h": h + g.nothing}

    with pytest.raises(UsageError, match=rf"{__file__}:{step.__code__.co_firstlineno + 2}: step: there is no gate"):
        cell(("g",))(step)


@cell(
    gates=("a", "r", "n"),
    states={"h": 0.5, "m": 0.0},
    apart=("n",),
    parameters={"w": 0.3, "k": ("head", 1.0), "q": ("layer", 2.0)},
    inputs={"mask": "unit", "z": "sequence"},
)
def every_operation(g: Any, s: Any, p: Any, x: Any) -> Any:
    n = tanh(g.n.input + sigmoid(g.r) * g.n(s.m * p.w * p.k))
    c = maximum(n, s.m) + where((s.h > 0.1) | (n <= -1), exp(-s.h * s.h) * x.z, p.q * log1p(abs(g.a)))
    u = c - head_mean(c)
    v = minimum(u * rsqrt(head_sum(u * u) + 1e-3), relu(u) + 2)
    h = x.mask * s.h + (1 - x.mask) * surrogate(where(v > 0, 1, 0), v / (1 + abs(v)))
    return {"h": h + softplus(v) * 0.1 - log(1 + c**2), "m": erf(s.m) * 0.5 + logsigmoid(c) * sqrt(1 + s.h**2)}


def test_the_derivative_of_every_operation() -> None:
    assert derivative_error(every_operation) < 1e-7


@pytest.mark.parametrize("name", EQUATIONS)
def test_the_derivative_of_built_in_cells(name: str) -> None:
    assert derivative_error(EQUATIONS[name]) < 1e-8


def test_a_stated_derivative_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"test_cell_language.py:\d+: lstm: .* gradients of i, f, z, o, h, c"):
        state_derivative(EQUATIONS["lstm"])(lambda g, s, new, d, only_h: {"i": d.h})
    with pytest.raises(UsageError, match="whose gates are sums"):
        state_derivative(EQUATIONS["gru"])


def test_a_value_that_is_not_taken_has_no_gradient_even_if_it_overflows() -> None:
    @cell(("g",))
    def safe(g: Any, s: Any) -> Any:
        return {"h": where(g.g > 0, s.h, exp(g.g * g.g))}

    from constrint.kernels.rnn.language.torch_code import evaluated

    one = torch.ones(1, 1, 1, dtype=torch.float64)
    leaves = {("slot", "g"): one * 100, ("state", "h"): one, ("gradient", "h"): one}
    gradients = evaluated(safe.backward, leaves, (1, 1, 1))
    assert float(gradients["slot:g"]) == 0
    assert float(gradients["state:h"]) == 1


def lstm(name: str = "lstm", extra: float = 0.0) -> CellDefinition:
    @cell(("i", "f", "z", "o"), ("h", "c"), name=name)
    def step(g: Any, s: Any) -> Any:
        c = sigmoid(g.f) * s.c + sigmoid(g.i) * tanh(g.z) + extra
        return {"c": c, "h": sigmoid(g.o) * tanh(c)}

    return step


def test_a_tape_has_no_more_than_a_hand_written_body() -> None:
    """An LSTM written by hand has 5 special functions and 4 others forward, 5 and 22 backward."""
    tapes = lstm().forward, lstm().backward
    assert [sum(node.op in ("sigmoid", "tanh") for node in tape.nodes) for tape in tapes] == [5, 5]
    assert [sum(node.op in ("add", "sub", "mul") for node in tape.nodes) for tape in tapes] == [4, 22]
    assert lstm().backward.leaves("new") == lstm().backward.leaves("state") == ("c",)
    assert lstm().backward.registers >= lstm().forward.registers > 2


def test_content_follows_the_equations_and_not_the_name() -> None:
    assert lstm().content == lstm("another").content != lstm(extra=1.0).content
    assert lstm().operation != lstm("another").operation


def test_another_process_knows_a_cell_by_its_text() -> None:
    program = (
        "import sys; from constrint.kernels.rnn.language.parse import definition_of; "
        "cell = definition_of(sys.argv[1]); print(cell.content, cell.backward.text, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, every_operation.text], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == f"{every_operation.content} {every_operation.backward.text} False"


def test_operators_know_a_cell_by_its_name_too() -> None:
    """Measurements of a cell's kernels are stored by the operation's name."""
    again = definition_of(every_operation.named_text)
    assert again.text == every_operation.text
    assert again.operation == every_operation.operation
    assert definition_of(every_operation.text).operation.startswith("cell_")


@pytest.mark.parametrize(
    "text", ["", "a", lstm().text[:-2], lstm().text.replace("tanh 2", "tanh 9"), "a b@" + lstm().text, "/" * 4]
)
def test_a_text_of_no_cell_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no text of a cell"):
        definition_of(text)
