"""Batches of the GEMM for short sides on the CPU, thread by thread: exact sums, operands that all products share."""

from __future__ import annotations

import ctypes
import random
import shutil
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.skinny.launch import SIZES, SkinnyOperands, skinny_launches
from constrint.kernels.launch.cuda import CudaLaunch
from tests.support.skinny_on_cpu import built

H200 = load_gpu("h200")
CONFIG = {"tile_m": 4, "tile_n": 64, "tile_k": 64, "num_warps": 4, "warps_k": 2, "mma": 0, "resident": 2, "turned": 1}
CONFIG |= {"split_k": 1, "num_stages": 1, "fan_in": 0, "persistent": 0}


def numbers(*shape: int) -> Tensor:
    """Small whole numbers, sums of which are exact."""
    return torch.randint(-9, 9, shape).to(torch.bfloat16)


def call_of(shape: tuple[int, int, int, int], *, along_k: bool, shared: str = "", adds: bool = False) -> GemmCall:
    batch, m, n, k = shape
    a = numbers(1 if shared == "a" else batch, m, k)
    b = numbers(1 if shared == "b" else batch, *((n, k) if along_k else (k, n)))
    b = b.transpose(1, 2) if along_k else b
    # Between two products there are rows of neither.
    out = torch.full((batch, m + 1, n), torch.nan)[:, :m]
    end = Epilogue(numbers(n), numbers(batch, m, n), 1.0, 2.0) if adds else Epilogue()
    return GemmCall(a.expand(batch, m, k), b.expand(batch, k, n), out, Machine.of(H200), end, "ieee")


def run(call: GemmCall, config: dict[str, int], folder: Path) -> None:
    """Run the launch of a call, its blocks in a random order."""
    (launch,) = skinny_launches(call, config)
    assert isinstance(launch, CudaLaunch)
    assert launch.source.macros["BATCHED"] == 1
    bias, source = launch.arguments[3:5]
    ends = CompiledEpilogue("fp32", "" if bias is None else "bf16", "" if source is None else "bf16")
    sides = SkinnyOperands.of_batch(call.a, call.b, call.out, turned=bool(config["turned"]))
    library = built(config, "bf16", sides.layout, ends, folder, batched=True)
    sizes = np.zeros((), SIZES)
    for name, value in zip(SIZES.names or (), launch.arguments[7:22], strict=True):
        sizes[name] = value
    x, y, z = launch.grid
    order = np.array(random.Random(1).sample(range(x * y * z), x * y * z), np.int32)
    steps = np.array(launch.arguments[22:], np.int64)
    read = [*launch.arguments[:2], bias, source]
    whole = [None if t is None else t.untyped_storage() for t in read]
    spans = np.array(
        [n for s in whole for n in ((0, 0) if s is None else (s.data_ptr(), s.data_ptr() + s.nbytes()))], np.uint64
    )
    tensors = [ctypes.c_void_p(None if t is None else t.data_ptr()) for t in launch.arguments[:7]]
    arrays = [ctypes.c_void_p(array.ctypes.data) for array in (sizes, spans)]
    at = ctypes.c_void_p(steps.ctypes.data)
    assert library.run(x, y, ctypes.c_void_p(order.ctypes.data), *tensors, *arrays, z, at) == 0


@pytest.mark.parametrize(
    ("shape", "along_k", "shared", "adds", "config"),
    [
        ((3, 2, 100, 130), True, "", False, {}),
        ((3, 2, 100, 131), False, "b", True, {"tile_n": 128}),
        ((2, 4, 60, 300), True, "a", False, {"split_k": 3}),
        ((3, 70, 3, 64), False, "", True, {"turned": 0, "tile_m": 64, "tile_n": 4}),
    ],
    ids=str,
)
def test_every_product_has_its_own_results(
    shape: tuple[int, int, int, int],
    along_k: bool,
    shared: str,
    adds: bool,
    config: dict[str, int],
    tmp_path: Path,
) -> None:
    torch.manual_seed(1)
    call = call_of(shape, along_k=along_k, shared=shared, adds=adds)
    run(call, CONFIG | config, tmp_path)
    expected = call.a.double() @ call.b.double()
    if adds and call.epilogue.bias is not None and call.epilogue.source is not None:
        expected = expected + call.epilogue.bias.double() + 2 * call.epilogue.source.double()
    assert torch.equal(call.out.double(), expected)
    call.out.fill_(torch.nan)
    assert bool(torch.as_strided(call.out, (call.out.untyped_storage().nbytes() // 4,), (1,), 0).isnan().all())
