"""How operands lie in memory, what kernels are told of it, and that they then load as widely as rows allow."""

from __future__ import annotations

import itertools
from math import gcd

import pytest

from tests.support.gemm import POINTER, gemm, product, smem_of, use_of
from tests.support.needs import missing_packages, needs_gpu

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.operands import (
    Rows,
    can_describe,
    copies_needed,
    product_of,
    random_operands,
    rows_of,
    unusual_operands,
    with_aligned_stride,
)
from constrint.kernels.gemm.product import Product

CONFIG = {"tile_m": 64, "tile_n": 32, "tile_k": 64, "num_warps": 4, "num_stages": 4}
CONFIG |= {"split_k": 1, "persistent": 0, "group_m": 8}


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
    whole = with_aligned_stride(column)
    assert torch.equal(whole.view(torch.int16), column.view(torch.int16))
    assert "a" not in copies_needed(whole, halves(1, 77, 64))
    plain = halves(1, 64, 64)
    assert with_aligned_stride(plain) is plain


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


@pytest.mark.parametrize(
    ("sizes", "width", "layout"),
    [
        *(((1000, 1000, 1000), 16, "rr"), ((100, 300, 500), 8, "rr"), ((100, 300, 500), 8, "cc")),
        ((98, 302, 506), 4, "cc"),
    ],
)
@pytest.mark.parametrize("gpu_name", ["h200", "a100", "mi300x"])
def test_misaligned_rows_are_pipelined_in_as_much_shared_memory_as_predicted(
    gpu_name: str, sizes: tuple[int, int, int], width: int, layout: str
) -> None:
    gpu, is_transposed = load_gpu(gpu_name), int(layout == "cc")
    workload = gemm(*sizes, "bf16", transpose_a=is_transposed, transpose_b=is_transposed)
    assert Product.of(workload).aligned == (width, width, gcd(16, 2 * sizes[1]))
    knobs = {"matrix_instr_nonkdim": 16, "waves_per_eu": 0, "kpack": 1, "xcd_chunk": 0, "num_stages": 2}
    config = CONFIG | (knobs if gpu.vendor == "amd" else {})
    compiled = POINTER.compile(gpu, workload, config)
    use = use_of(POINTER, gpu, workload, POINTER.problem(gpu, workload))
    assert compiled.smem_bytes == smem_of(use, config)
    stage = (config["tile_m"] + config["tile_n"]) * config["tile_k"] * 2
    assert compiled.smem_bytes >= stage * (config["num_stages"] - 1)


def empty_product(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype = torch.float16) -> Product:
    return product_of(a, b, None, None, out_dtype, is_three_pass=False)


def test_products_say_what_has_to_be_copied() -> None:
    even, odd = torch.empty(2, 64, 64, dtype=torch.float16), torch.empty(2, 64, 63, dtype=torch.float16)
    assert empty_product(even, even).copied_bytes == 0
    assert empty_product(even, odd).copied_bytes == 64 * 63 * 2
    wide = torch.empty(2, 64, 64, dtype=torch.int8)
    turned = wide.transpose(1, 2)
    assert empty_product(wide, turned, torch.int32).copied_bytes == 0
    assert empty_product(wide, wide, torch.int32).copied_bytes == 64 * 64
    repeated = empty_product(even[:1].expand(2, 64, 64), even)
    assert (repeated.a.is_expanded, repeated.b.is_expanded) == (True, False)


def test_products_say_how_rows_lie() -> None:
    even, odd = torch.empty(1, 64, 64, dtype=torch.float16), torch.empty(1, 64, 1000, dtype=torch.float16)
    aligned = empty_product(even, odd)
    assert (aligned.a.width_bytes, aligned.b.width_bytes) == (16, 16)
    assert (aligned.b.step_bytes, aligned.b.is_copied) == (16, False)
    narrow = empty_product(even, odd[:, :, :300])
    assert (narrow.b.width_bytes, narrow.b.step_bytes, narrow.b.is_copied) == (8, 16, False)
    short = empty_product(torch.empty(1, 64, 24, dtype=torch.float16).mT, even)
    assert (short.a.is_k_major, short.a.is_copied, short.a.is_copied_k_major) == (False, True, True)
    assert short.copied_bytes == 2 * 64 * 24


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "tf32", "int8"])
@pytest.mark.parametrize("order", list(itertools.product((0, 1), repeat=2)), ids=str)
@pytest.mark.parametrize(
    "sizes",
    [(128, 256, 512), (200, 1000, 3000), (77, 300, 155), (1000, 1028, 2052)],
    ids=str,
)
def test_random_operands_lie_as_the_workload_says(
    sizes: tuple[int, int, int], order: tuple[int, int], dtype: str
) -> None:
    """What tensors tell and what `Product.of` expects of contiguous operands are the same."""
    asked = product(*sizes, dtype, batch=2, transpose_a=order[0], transpose_b=order[1])
    made = random_operands(load_gpu("h200"), asked, device="meta", seed=0)
    out_dtype = {"bf16": torch.bfloat16, "fp8": torch.bfloat16, "tf32": torch.float32, "int8": torch.int32}[dtype]
    assert product_of(made["a"], made["b"], None, None, out_dtype, is_three_pass=False) == asked


def test_what_the_tma_unit_can_load() -> None:
    t = torch.empty(2, 64, 64, dtype=torch.float16)
    assert can_describe(t)
    assert can_describe(t.transpose(1, 2))
    assert can_describe(t[:, :, :63])
    assert not can_describe(t[:, :, 1:])
    assert not can_describe(t[:, :, ::2])
    assert not can_describe(torch.empty(2, 64, 63, dtype=torch.float16))
    assert not can_describe(t[:1].expand(2, 64, 64))
    assert can_describe(t[:1])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize(
    "sizes", [(100, 300, 500), (8, 512, 1024), (24, 64, 256), (1, 98, 500), (77, 1, 126), (33, 77, 155)]
)
def test_products_on_a_gpu_are_right_however_operands_lie(sizes: tuple[int, int, int], layout: str) -> None:
    m, n, k = sizes
    for batch, start in itertools.product((1, 3), (0, 4)):
        operands: list[torch.Tensor] = []
        for rows, columns, order in ((m, k, layout[0]), (k, n, layout[1])):
            shape = (batch, rows, columns + start) if order == "r" else (batch, columns, rows + start)
            stored = torch.randn(shape, device="cuda").bfloat16()[:, :, start:]
            operands.append(stored if order == "r" else stored.transpose(1, 2))
        a, b = operands
        exact, sums = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        error = (matmul(a, b).double() - exact).abs()
        assert bool((error <= k * 2.0**-23 * sums + 1.01 * 2.0**-8 * exact.abs()).all())


@pytest.mark.gpu
@needs_gpu
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


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp8", "int8"])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_unusual_operands_differ_as_they_are_said_to_and_are_aligned_alike(dtype: str, is_transposed: bool) -> None:
    made = random_operands(load_gpu("h200"), product(64, 64, 64, dtype), device="cpu", seed=1)
    if is_transposed:
        made = {name: t.transpose(1, 2) for name, t in made.items()}
    apart, one_signed, scattered, tiny = (unusual_operands(made, number) for number in (1, 2, 3, 4))
    assert all(unusual_operands(made, 0)[name] is t for name, t in made.items())
    for name, t in made.items():
        wide = apart[name]
        assert torch.equal(wide.float(), t.float())
        assert max(wide.stride()[1:]) == max(t.stride()[1:]) + 128 // t.element_size()
        assert rows_of(wide).is_transposed == rows_of(t).is_transposed
        assert bool((one_signed[name].float() >= 0).all())
        assert 0 < int((scattered[name].float() != 0).sum()) <= t.numel() // 37 + 1
        if t.is_floating_point():
            assert float(tiny[name].float().abs().max()) < 2.0**-8 * float(t.float().abs().max()) * 1.1
