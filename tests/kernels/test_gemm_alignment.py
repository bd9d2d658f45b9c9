"""How operands lie in memory, what the pointer kernel is told of it, and that it then loads as widely as rows allow."""

from __future__ import annotations

import importlib.util
import itertools
from math import gcd

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from constrint.kernels.gemm.alignment import Rows, rows_of, settled
from constrint.kernels.gemm.build import compile_config
from constrint.kernels.gemm.pack import copies_needed

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import matmul, resources
from constrint.model import Var
from constrint.select import Workload

CONFIG = {
    "tile_m": 64,
    "tile_n": 32,
    "tile_k": 64,
    "num_warps": 4,
    "num_stages": 4,
    "split_k": 1,
    "persistent": 0,
    "group_m": 8,
}


def halves(*shape: int) -> torch.Tensor:
    """16-bit elements that start at a line of the L2."""
    whole = torch.empty(torch.Size(shape).numel() + 64, dtype=torch.float16)
    return whole[(-whole.data_ptr() // 2) % 64 :][: torch.Size(shape).numel()].view(shape)


TENSORS = {
    "whole lines": (halves(1, 64, 64), Rows(16, 128, False, 1)),
    "2000 bytes": (halves(1, 64, 1000), Rows(16, 16, False, 8)),
    "600 bytes": (halves(1, 64, 300), Rows(8, 8, False, 4)),
    "604 bytes": (halves(1, 64, 302), Rows(4, 4, False, 2)),
    "602 bytes": (halves(1, 64, 301), Rows(2, 2, False, 1)),
    "columns of whole lines": (halves(1, 300, 64).transpose(1, 2), Rows(16, 128, True, 1)),
    "columns of 600 bytes": (halves(1, 64, 300).transpose(1, 2), Rows(8, 8, True, 4)),
    # Loads end with the length, whatever the stride.
    "aligned rows of odd length": (halves(1, 64, 64)[:, :, :60], Rows(8, 128, False, 4)),
    "an odd start": (halves(1, 64, 64)[:, :, 4:], Rows(2, 2, False, 1)),
    "no unit stride": (halves(1, 64, 64)[:, :, ::2], Rows(2, 2, True, 1)),
    "products of a batch at odd starts": (halves(3, 5, 24)[:, :, :16], Rows(16, 16, False, 8)),
    "one row, its stride unused": (halves(3, 300)[:, None, :].expand(3, 1, 300), Rows(8, 8, False, 4)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_rows_are_described(name: str) -> None:
    tensor, expected = TENSORS[name]
    assert rows_of(tensor) == expected


def test_hints_are_true_of_everything_that_they_are_applied_to() -> None:
    for rows, columns, batch, turned in itertools.product((1, 5, 8, 100), (4, 6, 24, 1000), (1, 3), (False, True)):
        whole = halves(batch, rows, columns + 4)[:, :, :columns]
        found = rows_of(whole.transpose(1, 2) if turned else whole)
        strides = ([whole.stride(0)] if batch > 1 else []) + ([whole.stride(1)] if rows > 1 else [])
        assert found.is_transposed == turned
        assert all(figure % found.hint == 0 for figure in (columns, *strides))
        assert found.hint * 2 == found.width_bytes or found.hint == 1


def test_a_single_row_or_column_gets_a_stride_that_the_tma_unit_takes() -> None:
    column = halves(1, 77, 1).as_strided((1, 1, 77), (77, 1, 1))
    assert "a" in copies_needed(column, halves(1, 77, 64))
    whole = settled(column)
    assert torch.equal(whole.view(torch.int16), column.view(torch.int16))
    assert "a" not in copies_needed(whole, halves(1, 77, 64))
    plain = halves(1, 64, 64)
    assert settled(plain) is plain


@pytest.mark.parametrize(
    ("columns", "along_k"),
    [(8, True), (16, None), (24, True), (32, None), (48, True), (64, None), (7, True), (77, False)],
)
def test_short_rows_are_copied_along_k(columns: int, along_k: bool | None) -> None:
    """None: not copied. 77 columns of 2 bytes are longer than a line and keep their order."""
    a, b = halves(1, 64, columns).transpose(1, 2), halves(1, 64, columns)
    assert copies_needed(a, halves(1, 64, 64)) == ({} if along_k is None else {"a": along_k})
    assert copies_needed(halves(1, 64, 64), b) == ({} if along_k is None else {"b": along_k})
    wide = torch.empty(1, 64, 64, dtype=torch.int8)
    assert copies_needed(wide, wide.transpose(1, 2)) == {}
    assert copies_needed(wide.transpose(1, 2), wide) == {"a": True, "b": True}


@pytest.mark.parametrize("layout", ["rr", "cc"])
@pytest.mark.parametrize(("sizes", "width"), [((1000, 1000, 1000), 16), ((100, 300, 500), 8), ((98, 302, 506), 4)])
@pytest.mark.parametrize("gpu_name", ["h200", "a100", "mi300x"])
def test_misaligned_rows_are_pipelined_in_as_much_shared_memory_as_predicted(
    gpu_name: str, sizes: tuple[int, int, int], width: int, layout: str
) -> None:
    gpu, workload = load_gpu(gpu_name), Workload("gemm", dict(zip("mnk", sizes, strict=True)), "bf16")
    knobs = {"matrix_instr_nonkdim": 16, "waves_per_eu": 0, "kpack": 1, "xcd_chunk": 0, "num_stages": 2}
    config = CONFIG | (knobs if gpu.vendor == "amd" else {})
    found = compile_config(gpu, workload, config, layout)
    stored = gcd(16, 2 * sizes[1])
    v = {name: Var(name) for name in CONFIG if name != "group_m"}
    predicted = resources.smem_bytes(gpu, "bf16", v, resources.Aligned(width, width, stored)).value(config)
    assert found.smem_bytes == predicted
    stage = (config["tile_m"] + config["tile_n"]) * config["tile_k"] * 2
    assert found.smem_bytes >= stage * (config["num_stages"] - 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize(
    "sizes", [(100, 300, 500), (8, 512, 1024), (24, 64, 256), (1, 98, 500), (77, 1, 126), (33, 77, 155)]
)
def test_products_on_a_gpu_are_right_however_operands_lie(sizes: tuple[int, int, int], layout: str) -> None:
    m, n, k = sizes
    for batch, start in itertools.product((1, 3), (0, 4)):
        operands = []
        for rows, columns, order in ((m, k, layout[0]), (k, n, layout[1])):
            shape = (batch, rows, columns + start) if order == "r" else (batch, columns, rows + start)
            stored = torch.randn(shape, device="cuda").bfloat16()[:, :, start:]
            operands.append(stored if order == "r" else stored.transpose(1, 2))
        a, b = operands
        exact, sums = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        error = (matmul(a, b).double() - exact).abs()
        assert bool((error <= k * 2.0**-23 * sums + 1.01 * 2.0**-8 * exact.abs()).all())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_product_that_overlaps_its_copies_waits_for_them() -> None:
    """In a graph, with operands that change between the products."""
    several = torch.randn(20, 333, 1555, device="cuda").bfloat16()
    a, b = torch.empty_like(several[0]), torch.randn(1555, 777, device="cuda").bfloat16()
    out = torch.empty(20, 333, 777, device="cuda", dtype=torch.bfloat16)
    matmul(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(20):
            a.copy_(several[i])
            out[i].copy_(matmul(a, b))
    for _ in range(10):
        several.normal_()
        out.fill_(float("nan"))
        graph.replay()
        exact, sums = several.double() @ b.double(), several.double().abs() @ b.double().abs()
        assert bool(((out.double() - exact).abs() <= 1555 * 2.0**-23 * sums + 1.01 * 2.0**-8 * exact.abs()).all())
