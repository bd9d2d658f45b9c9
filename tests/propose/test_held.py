"""Launch code holds tensors that refuse to compute, and finds of Python and PyTorch what is on the lists."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.attacks.triton_source import LIBRARY
from constrint.propose import allowed
from tests.support.needs import needs_triton

pytestmark = needs_triton


def value(expression: str, names: dict[str, Any]) -> Any:
    return eval(expression, names)  # noqa: S307 - the candidate's side is what is tested


def run(statement: str, names: dict[str, Any]) -> None:
    exec(statement, names)  # noqa: S102 - the candidate's side is what is tested


@pytest.fixture
def names() -> dict[str, Any]:
    """The globals of a candidate, with two tensors."""
    import torch

    from constrint.propose.worker.held import HeldTensor, namespace

    space = namespace()
    run("import torch, triton, math\nimport triton.language as tl\nfrom triton.language.extra import libdevice", space)
    return space | {"x": HeldTensor(torch.ones(4, 3)), "y": HeldTensor(torch.ones(4, 3))}


@pytest.mark.parametrize("expression", LIBRARY)
def test_no_expression_computes_with_a_tensor(names: dict[str, Any], expression: str) -> None:
    with pytest.raises((TypeError, AttributeError)):
        value(expression, names)


def test_an_operation_is_refused_with_its_name_and_the_rule(names: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="pow of a tensor: PyTorch may not do the work; a kernel of its own has to"):
        value("x ** 2", names)
    with pytest.raises(AttributeError, match="softmax of a tensor: PyTorch may not do the work"):
        value("x.softmax(1)", names)
    assert value("'%s' % x", names) == "a tensor"


def test_a_launch_finds_what_it_needs(names: dict[str, Any]) -> None:
    assert value("x.shape, x.stride(), x.stride(0), x.numel(), x.ndim, x.size(1)", names) == (
        (4, 3),
        (3, 1),
        3,
        12,
        2,
        3,
    )
    assert value("x.T.shape, x.view(2, -1).shape, x.T.contiguous().stride()", names) == ((3, 4), (2, 6), (4, 1))
    assert value("x.dtype == torch.float32 and x.element_size() == 4 and x.is_contiguous()", names)
    assert value("torch.empty((2, 5), dtype=torch.int32, device=x.device).shape", names) == (2, 5)
    assert value("torch.zeros_like(x, dtype=torch.float16).dtype == torch.float16", names)
    assert value("x.new_empty((7,)).shape", names) == (7,)
    assert value("triton.cdiv(7, 2), math.pi, tl.float32.name", names) == (4, math.pi, "fp32")


@pytest.mark.parametrize(
    "statement",
    [
        "import os",
        "import triton.testing",
        "import torch.nn",
        "from torch import nn",
        "from triton.language import core",
        "from . import tensors",
        "open('/etc/passwd')",
        "eval('1')",
        "torch.softmax",
        "torch.ops",
        "triton.testing",
        "class A: pass",
    ],
)
def test_all_else_is_not_there(names: dict[str, Any], statement: str) -> None:
    with pytest.raises((ImportError, NameError, AttributeError)):
        run(statement, names)


def test_memory_that_is_taken_holds_poison_where_calls_are_checked(names: dict[str, Any]) -> None:
    from constrint.propose.worker.held import poisons, released

    token = poisons.set(True)
    try:
        for taken in (
            "torch.empty((9,))",
            "torch.empty_like(x)",
            "x.new_empty((4,))",
            "torch.empty_strided((3,), (1,))",
        ):
            assert released(value(taken, names)).isnan().all(), taken
        assert released(value("torch.zeros((9,))", names)).eq(0).all()
        assert released(value("torch.empty((9,), dtype=torch.int8)", names)).eq(-127).all()
    finally:
        poisons.reset(token)


def test_a_worker_gives_no_name_that_the_reader_refuses(names: dict[str, Any]) -> None:
    """The lists are one: what a candidate's `torch` and `triton` have is what the reader lets pass."""
    own = {name for name in vars(names["torch"]) if not name.startswith("__")}
    assert own == allowed.NAMES["torch"] | {"Tensor", "Size", "dtype", "device"}
    own = {name for name in vars(names["triton"]) if not name.startswith("__")}
    assert own == allowed.NAMES["triton"] | {"jit", "language"}
    assert set(names["__builtins__"]) == allowed.BUILTINS | {"__import__"}
