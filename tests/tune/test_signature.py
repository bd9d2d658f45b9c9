"""A kernel's call as text: what becomes a type, a constant, a multiple of 16; and the same from Python."""

from __future__ import annotations

from typing import Any

import pytest

from constrint.errors import UnsupportedError, UsageError
from constrint.tune.signature import read_value, split_commas
from tests.support.needs import needs_triton


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-3", -3), ("2.5", 2.5), ("1e-3", 1e-3), ("True", True), ("False", False), ("None", None),
        ("relu", "relu"), ("'3'", "3"), ('"None"', "None"), ("", ""), ("__import__('os')", "__import__('os')"),
    ],
)  # fmt: skip
def test_values_are_read_and_never_evaluated(text: str, value: Any) -> None:
    assert read_value(text) == value
    assert type(read_value(text)) is type(value)


def test_commas_in_brackets_separate_nothing() -> None:
    assert split_commas("*fp16, tensordesc<fp16[128,64]>,i32:16") == ["*fp16", "tensordesc<fp16[128,64]>", "i32:16"]
    assert split_commas("  ") == []


@needs_triton
def test_the_text_is_what_triton_is_told() -> None:
    import triton.language as tl

    from constrint.tune import triton_source
    from tests.support.tutorial import SIGNATURE
    from tests.support.tutorial_kernel import matmul_kernel

    tiles = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
    source = triton_source(matmul_kernel, SIGNATURE, tiles, {"num_warps": 4})
    assert source.constants == {**tiles, "stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
    assert source.types["a_ptr"] == "*fp16"
    assert source.types["stride_am"] == "i32"
    assert source.aligned == set(source.types)
    named = triton_source(matmul_kernel, [*SIGNATURE.split(",")[:-2], "stride_cn=1", "stride_cm=i32"], tiles)
    assert named.aligned == source.aligned - {"stride_cm"}
    assert named.types == source.types
    types = dict.fromkeys(source.types, "i32") | {"a_ptr": "*bf16:1", "b_ptr": "*bf16", "c_ptr": "*fp32"}
    mapped = triton_source(matmul_kernel, types, {**tiles, "stride_ak": 1, "stride_bn": 1, "stride_cn": 1})
    assert mapped.aligned == {"b_ptr", "c_ptr"}
    assert read_value("tl.bfloat16") == tl.bfloat16
    with pytest.raises(UsageError, match=r"tl.float17 is no type of triton.language"):
        read_value("tl.float17")
    with pytest.raises(UsageError, match=r"a function of triton.jit is compiled, got function"):
        triton_source(lambda x: x, "*fp16")


@needs_triton
def test_a_kernel_is_compiled_from_python_by_a_gpus_name() -> None:
    from constrint.tune import build_triton, compile_triton, count_instructions, triton_source
    from tests.support.tutorial import SIGNATURE
    from tests.support.tutorial_kernel import matmul_kernel

    tiles = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
    source = triton_source(matmul_kernel, SIGNATURE, tiles, {"num_warps": 4, "num_stages": 3})
    taken = compile_triton("a100", source)
    # Two of three stages of A and B lie in shared memory: mma.sync holds the third in registers.
    assert (taken.target, taken.smem_bytes, taken.spill_bytes) == ("sm_80", 2 * (64 + 64) * 32 * 2, 0)
    counts = count_instructions(build_triton("a100", source))
    assert set(counts["matrix"]) == {"mma.sync.m16n8k16.row.col.f32.f16.f16.f32"}
    assert set(counts["asynchronous copies"]) == {"cp.async.cg.shared.global"}
    wrong = triton_source(matmul_kernel, SIGNATURE, {**tiles, "BLOCK_SIZE_K": 33}, {"num_warps": 4})
    with pytest.raises(UnsupportedError, match="refuses the kernel for sm_80") as refused:
        compile_triton("a100", wrong)
    assert "BLOCK_SIZE_K" in str(refused.value.__cause__)
