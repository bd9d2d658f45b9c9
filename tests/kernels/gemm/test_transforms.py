"""`matmul` and `rnn` where torch traces, transforms or observes calls: as torch's own functions do, on the CPU here.

On a GPU the same holds: `tests/kernels/launch/test_plans_gpu.py`.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from constrint.flashrnn import LSTM, rnn
from constrint.kernels.gemm import matmul

Function = Callable[..., Any]


def operands(*, seed: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 4, 5, generator=generator), torch.randn(5, 6, generator=generator)


def both(transform: Function) -> tuple[Any, Any]:
    """What a transform makes of our product and of torch's."""
    a, b = operands()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")  # torch's own, at its first jvp
        return transform(matmul, a, b), transform(torch.matmul, a, b)


TRANSFORMS: dict[str, Function] = {
    "grad": lambda f, a, b: torch.func.grad(lambda x: f(x, b).square().sum())(a),
    "vmap": lambda f, a, b: torch.func.vmap(lambda x: f(x, b))(a),
    "vmap of grad": lambda f, a, b: torch.func.vmap(torch.func.grad(lambda x: f(x, b).square().sum()))(a),
    "grad of grad": lambda f, a, b: torch.func.grad(lambda y: torch.func.grad(lambda x: (f(x, y) ** 3).sum())(a).sum())(
        b
    ),
    "jvp": lambda f, a, b: torch.func.jvp(lambda x: f(x, b), (a,), (a,)),
    "jacrev": lambda f, a, b: torch.func.jacrev(lambda x: f(x, b))(a),
    "hessian": lambda f, a, b: torch.func.hessian(lambda x: (f(a, x) ** 3).sum())(b),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_a_product_are_those_of_torch(name: str) -> None:
    ours, theirs = both(TRANSFORMS[name])
    torch.testing.assert_close(ours, theirs)


def test_transforms_of_a_recurrence_are_those_of_the_reference() -> None:
    generator = torch.Generator().manual_seed(1)
    wx, r = torch.randn(2, 3, 4, 2, 16, generator=generator), torch.randn(4, 2, 16, 16, generator=generator) / 4

    def loss(x: Any, **options: Any) -> Any:
        return rnn(x, r, **options)[0].square().sum()

    torch.testing.assert_close(torch.func.grad(loss)(wx), torch.func.grad(lambda x: loss(x, backend="reference"))(wx))
    stacked = torch.stack([wx, 2 * wx])
    expected = torch.stack([rnn(x, r)[0] for x in stacked])
    torch.testing.assert_close(torch.func.vmap(lambda x: rnn(x, r)[0])(stacked), expected)


def test_a_module_is_called_functionally() -> None:
    module = LSTM(8, 16)
    x, weights = torch.randn(3, 2, 8), {name: w.detach() for name, w in module.named_parameters()}
    gradients = torch.func.grad(lambda p: torch.func.functional_call(module, p, (x,))[0].sum())(weights)
    module(x)[0].sum().backward()
    for name, weight in module.named_parameters():
        torch.testing.assert_close(gradients[name], weight.grad)


def test_modes_and_subclasses_see_the_operator() -> None:
    a, b = operands()
    seen: list[str] = []

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    named_type: Any = type("Named", (torch.Tensor,), {})

    mode: Any = Mode  # torch leaves its initialiser untyped
    with mode():
        observed = matmul(a, b)
    assert "constrint.gemm.default" in seen
    torch.testing.assert_close(observed, a @ b)
    named: Any = matmul(a.as_subclass(named_type), b)
    assert type(named) is named_type
    torch.testing.assert_close(named.as_subclass(torch.Tensor), a @ b)
    graph = make_fx(lambda x: matmul(x, b))(a)
    assert "constrint.gemm" in graph.code
    torch.testing.assert_close(graph(2 * a), 2 * a @ b)


def test_tensors_without_data_have_the_right_shape() -> None:
    from torch._subclasses import FakeTensorMode

    a, b = operands()
    assert matmul(a.to("meta"), b.to("meta")).shape == (3, 4, 6)
    with FakeTensorMode() as mode:
        made = matmul(mode.from_tensor(a), mode.from_tensor(b))
    assert (made.shape, made.dtype) == ((3, 4, 6), torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_converts_as_torch_does(dtype: Any) -> None:
    a, b = operands()
    with torch.autocast("cpu", dtype=dtype):
        ours, theirs = matmul(a, b), torch.matmul(a, b)
        assert matmul(a.double(), b.double()).dtype == torch.float64
        assert matmul(a, b, out_dtype=torch.float32).dtype == torch.float32
    assert ours.dtype == theirs.dtype == dtype
    torch.testing.assert_close(ours, theirs)


def test_whatever_looks_at_calls_is_heard_and_a_default_device_is_not() -> None:
    from torch.overrides import TorchFunctionMode

    from constrint.kernels.launch.plan.table import listeners

    def heard() -> bool:
        return any(bool(listener()) for listener in listeners())

    class Functions(TorchFunctionMode):
        pass

    class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    assert not heard()
    with torch.device("cpu"):
        assert not heard()
        with Functions():
            assert heard()
    operators: Any = Operators  # torch leaves its initialiser untyped
    for mode in (Functions(), operators(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])):
        with mode:
            assert heard()
    seen: list[bool] = []

    def look(x: Any) -> Any:
        seen.append(heard())
        return x.sum()

    torch.func.grad(look)(torch.ones(2))
    assert seen == [True]
    torch.use_deterministic_algorithms(True)
    try:
        assert heard()
    finally:
        torch.use_deterministic_algorithms(False)
    assert not heard()
