"""`constrint.launch.prepare` on the GPU of this machine: the same results as Triton's launch, whatever is given."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import numpy as np
import torch
import triton

from constrint.errors import UsageError
from constrint.launch import prepare, prepare_cuda
from tests.support.launched_kernels import copy_kernel, scale_kernel

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine")


@pytest.mark.gpu
@needs_gpu
def test_results_are_those_of_triton_for_every_variant_that_is_asked_for() -> None:
    x = torch.randn(4096, device="cuda")
    out = torch.empty_like(x)
    launch = prepare(scale_kernel, lambda a: (triton.cdiv(a["size"], a["tile"]),), x, None, out, 1024, 1, 2.0, tile=256)
    calls: list[tuple[Any, ...]] = [
        (x, None, 1024, 1, 2.0),
        (x, None, 4096, 1, -0.5),  # another grid
        (x, None, 1000, 1, 3.0),  # no multiple of 16
        (x[1:], None, 512, 1, 2.0),  # another alignment
        (x, None, 512, 3, 2.0),  # no longer 1
        (x.half(), None, 1024, 1, 2.0),  # another dtype
        (x, x, 1024, 1, 2.0),  # no longer None
        (x, None, 1024, 1, 2),  # an integer factor
        (x, None, 1024, 1, 2.0),
    ]
    for given, extra, size, step, factor in calls:
        out.fill_(float("nan"))
        launch(given, extra, out, size, step, factor)
        expected = torch.full_like(out, float("nan"))
        at = slice(0, size * step, step)
        expected[at] = factor * given[at].float() + (0 if extra is None else extra[at])
        torch.testing.assert_close(out, expected, equal_nan=True)
    with pytest.raises(UsageError, match="scale_kernel takes x, extra, out, size, step, factor; got 2 arguments"):
        launch(x, out)


@pytest.mark.gpu
@needs_gpu
def test_descriptors_streams_graphs_and_hooks() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs a Hopper GPU")
    x, out = (torch.randn(128, 64, device="cuda") for _ in range(2))

    def described(t: Any) -> Any:
        return TensorDescriptor.from_tensor(t, [32, 64])

    launch = prepare(copy_kernel, (4,), described(x), described(out), tile=32)
    launch(described(x), described(out))
    assert torch.equal(out, x)
    other, into = torch.randn(128, 64, device="cuda"), torch.zeros(128, 64, device="cuda")
    launch(described(other), described(into))
    assert torch.equal(into, other)
    longer = torch.randn(256, 64, device="cuda")
    launch(described(longer), described(into))  # another shape: Triton launches it
    assert torch.equal(into, longer[:128])
    graph = torch.cuda.CUDAGraph()
    source, target = described(x), described(into)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        launch(source, target)
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(into, x)
    calls: list[Any] = []
    hook = triton.knobs.runtime.launch_enter_hook
    hook.add(calls.append)
    try:
        launch(source, target)
    finally:
        hook.remove(calls.append)
    assert len(calls) == 1


@pytest.mark.gpu
@needs_gpu
def test_kernels_in_cuda() -> None:
    cupy = pytest.importorskip("cupy", reason="compiles the CUDA kernel of this test")
    source = r"""
    extern "C" __global__ void axpy(const float* x, float* y, float a, double b, int n, long long offset, bool flag) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n && flag) y[i + offset] = a * x[i] + (float)b;
    }
    """
    kernel = cupy.RawKernel(source, "axpy")
    kernel.compile()
    x, y = torch.randn(1000, device="cuda"), torch.zeros(1010, device="cuda")
    numbers = np.float32(2), np.float64(0.5), np.int32(1000), np.int64(10), np.bool_(True)
    launch = prepare_cuda(int(kernel.kernel.ptr), (4,), (256,), x, y, *numbers)
    launch(x, y, *numbers)
    torch.testing.assert_close(y[10:], 2 * x + 0.5)
    launch(x, y, 3, 1, 1000, 0, True)
    torch.testing.assert_close(y[:1000], 3 * x + 1)
    with pytest.raises(UsageError, match=r"argument 2 is float: give tensors, and numbers as numpy.int32"):
        prepare_cuda(int(kernel.kernel.ptr), (4,), (256,), x, y, 2.0)


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(UsageError, match=r"prepare takes a function decorated with triton\.jit, got function"):
        prepare(lambda x: x, (1,), 1)
    with pytest.raises(UsageError, match="scale_kernel needs step, factor, tile, too"):
        prepare(scale_kernel, (1,), None, None, None, 4)
    with pytest.raises(UsageError, match="scale_kernel: size is given twice"):
        prepare(scale_kernel, (1,), None, None, None, 4, size=4)
    with pytest.raises(UsageError, match="scale_kernel takes 7 arguments, got 8"):
        prepare(scale_kernel, (1,), *range(8))
