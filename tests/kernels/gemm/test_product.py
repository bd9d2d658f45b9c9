"""A product as rules see it: from a workload and back, how contiguous operands lie, what kernels refuse."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.product import OPTIONS, MatrixLayout, Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.select import rank
from tests.support.gemm import CUDA, DESCRIPTOR, KERNELS, POINTER, gemm, gemm_operation, product

H200 = load_gpu("h200")


def test_a_product_of_a_workload_gives_the_workload_back() -> None:
    rng = random.Random(3)
    for dtype in POINTER.dtypes:
        for values in itertools.product(*((o.default, 1 - o.default if o.most == 1 else 5) for o in OPTIONS)):
            m, n, k = (rng.randint(1, 5000) for _ in range(3))
            workload = gemm(m, n, k, dtype, **dict(zip((o.name for o in OPTIONS), values, strict=True)))
            asked = Product.of(workload)
            assert Product.of(asked.workload) == asked
            given = {name: value for name, value in workload.options.items() if value != defaults()[name]}
            if dtype in ("tf32", "int8"):
                # Their results have 32 bits anyhow.
                given.pop("wide_output", None)
            assert asked.workload == gemm(m, n, k, dtype, **given)


def defaults() -> dict[str, int]:
    return {option.name: option.default for option in OPTIONS}


def test_contiguous_operands_lie_as_their_rows_are_long() -> None:
    plain = product(1024, 300, 500)
    # Rows of 1000 and of 600 bytes.
    assert plain.a == MatrixLayout(8, 8, True, is_copied=True, is_copied_k_major=True)
    assert plain.b == MatrixLayout(8, 8, False, is_copied=True)
    assert plain.copied_bytes == 2 * (1024 * 500 + 500 * 300)
    assert plain.aligned == (8, 8, 8)
    turned = product(1024, 300, 512, transpose_a=1, transpose_b=1)
    assert turned.a == MatrixLayout(16, 128, False)
    assert turned.b == MatrixLayout(16, 128, True)
    assert turned.copied_bytes == 0


def test_operands_of_8_and_32_bits_are_copied_along_k() -> None:
    for dtype, element in (("fp8", 1), ("int8", 1), ("tf32", 4)):
        asked = product(512, 1024, 2048, dtype)
        assert (asked.a.is_copied, asked.b.is_copied, asked.b.is_copied_k_major) == (False, True, True)
        assert asked.copied_bytes == element * 2048 * 1024
        assert product(512, 1024, 2048, dtype, transpose_b=1).copied_bytes == 0


def test_the_tma_unit_loads_a_copy_in_whole_lines_along_k() -> None:
    odd = product(512, 1001, 2048, "fp8").b
    assert (odd.step_bytes, odd.tma_step_bytes) == (1, 128)
    assert (odd.is_k_major, odd.is_tma_k_major) == (False, True)


def test_a_batch_is_several_products_of_one_size() -> None:
    many = product(64, 128, 256, batch=7)
    assert many.alone == product(64, 128, 256)
    assert POINTER.moved_bytes(many.workload) == 7 * POINTER.moved_bytes(many.alone.workload)


def test_names_of_options_are_the_ones_that_every_kernel_has() -> None:
    assert all(spec.options == OPTIONS for spec in KERNELS)
    assert gemm_operation().options == OPTIONS


EXPANDED = replace(product(4096, 4096, 4096), a=MatrixLayout(is_expanded=True))
REFUSED: list[tuple[GemmSpec, str, Product, str]] = [
    *(
        (DESCRIPTOR, name, product(64, 64, 64, "fp16"), "has no TMA unit")
        for name in ("a100", "rtx-4090", "mi300x", "t4")
    ),
    (DESCRIPTOR, "h200", EXPANDED, "repeated in memory, larger than the operand"),
    *((CUDA, name, product(64, 64, 64), "written for Hopper's wgmma") for name in ("b200", "a100", "mi300x")),
    (CUDA, "h200", replace(product(4096, 4096, 4096, batch=2), a=MatrixLayout(is_expanded=True)), "repeated in memory"),
    (CUDA, "h200", product(4096, 4096, 4096, "tf32", three_pass=1), "multiplies fp32 in one pass"),
    (CUDA, "h200", product(4096, 4096, 4100), "it copies no operand"),
    (CUDA, "h200", EXPANDED, "repeated in memory"),
]


@pytest.mark.parametrize(("spec", "name", "asked", "reason"), REFUSED)
def test_a_kernel_says_what_it_does_not_compute(spec: GemmSpec, name: str, asked: Product, reason: str) -> None:
    gpu = load_gpu(name)
    assert reason in spec.refusal(gpu, asked)
    if Product.of(asked.workload) == asked and asked.dtype in spec.dtypes:
        with pytest.raises(UnsupportedError, match=rf"^{spec.full_name}: .*{reason}"):
            spec.check_workload(gpu, asked.workload)


def test_kernels_take_what_they_are_for() -> None:
    for dtype in POINTER.dtypes:
        assert DESCRIPTOR.refusal(H200, product(4096, 4096, 4096, dtype, batch=3, source=1, wide_output=1)) == ""
    assert POINTER.refusal(H200, EXPANDED) == ""


def test_an_operand_that_all_products_share_is_loaded_in_place_by_kernels_that_know_of_it() -> None:
    shared = MatrixLayout(is_expanded=True, is_copied=True, is_shared=True)
    asked = replace(product(512, 512, 512, batch=8), a=shared)
    assert CUDA.refusal(H200, asked) == ""
    assert "repeated in memory" in DESCRIPTOR.refusal(H200, asked)


def test_a_ranking_names_the_kernels_that_cannot_and_why() -> None:
    spaces = {space.kernel: space for space in rank(gemm_operation(), H200, gemm(4096, 4096, 4100), top=1).spaces}
    assert list(spaces) == [spec.full_name for spec in KERNELS]
    assert "it copies no operand" in spaces["gemm.cuda"].refusal
    assert spaces["gemm.cuda"].num_valid == spaces["gemm.cuda"].num_product == 0
    assert all(spaces[name].num_valid > 0 and not spaces[name].refusal for name in ("gemm.pointer", "gemm.descriptor"))
