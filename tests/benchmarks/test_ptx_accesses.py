"""Shared memory of kernels in CUDA C++: addresses of all lanes from the arithmetic in PTX."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.ptx_accesses import Block, ptx_accesses
from benchmarks.harness.shared_accesses import SharedAccess
from constrint.errors import UsageError
from constrint.hwmodels import load_gpu

H200 = load_gpu("h200")
#: One warp: a row that all lanes read side by side, and columns of rows of `kernel_param_0` words in a loop.
PTX = """
.file 1 "/somewhere/kernel.cu"
.visible .entry kernel(.param .u32 kernel_param_0, .param .u64 kernel_param_1)
{
    .shared .align 16 .b8 first[100];
    .shared .align 16 .b8 buffer[8192];
    .loc 1 7 3
    mov.u32 %r1, %tid.x;
    ld.param.u32 %r2, [kernel_param_0];
    mov.u32 %r3, buffer;
    shl.b32 %r4, %r1, 2;
    add.s32 %r5, %r3, %r4;
    st.shared.u32 [%r5+128], %r1;
    mov.u32 %r10, 0;
$L_loop:
    .loc 1 9 5
    mul.lo.s32 %r6, %r1, %r2;
    mad.lo.s32 %r7, %r6, 4, %r3;
    ld.shared.u32 %r8, [%r7];
    setp.gt.u32 %p2, %r1, 1;
    .loc 1 10 5
    @%p2 bra $L_rest;
    st.shared.u32 [%r7], %r8;
$L_rest:
    add.s32 %r10, %r10, 1;
    setp.lt.s32 %p1, %r10, 8;
    @%p1 bra $L_loop;
    .loc 1 12 3
    shl.b32 %r9, %r8, 2;
    ld.shared.u32 %r11, [%r9];
    shl.b32 %r12, %r1, 4;
    add.s32 %r13, %r3, %r12;
    .loc 1 14 3
    { .reg .b32 t; add.s32 t, %r13, 16; ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [t]; }
    ret;
}
"""


def walked(words: int) -> list[SharedAccess]:
    return ptx_accesses(PTX, Block((32,), (4,), (np.int32(words), None)))


def degrees(accesses: list[SharedAccess]) -> dict[str, int]:
    return {access.tile: int(access.conflicts(H200).degree.max()) for access in accesses}


@pytest.mark.parametrize(("words", "degree"), [(32, 32), (33, 1), (8, 8), (36, 4)])
def test_columns_conflict_as_their_rows_are_long(words: int, degree: int) -> None:
    store, load, of_two, of_data, wide = walked(words)
    assert degrees([store, load, of_two, wide]) == {
        "kernel.cu:7": 1,
        "kernel.cu:9": degree,
        "kernel.cu:10": min(degree, 2) if words % 32 == 0 else 1,
        "kernel.cu:14": 1,
    }
    assert [access.is_in_loop for access in (store, load, of_two, of_data, wide)] == [False, True, True, False, False]
    assert [access.kind for access in (store, load, of_two)] == ["write", "read", "write"]
    assert (wide.width_bits, wide.how) == (128, "128 bits")
    # 100 bytes come first, and rows begin at a multiple of 16.
    assert store.addresses.tolist() == [[112 + 128 + 4 * lane for lane in range(32)]]


def test_addresses_that_depend_on_data_are_said_to_be_unknown() -> None:
    of_data = walked(32)[3]
    assert of_data.tile == "kernel.cu:12"
    with pytest.raises(UsageError, match="negative"):
        of_data.conflicts(H200)
    # An argument that is not stated makes what depends on it unknown, and nothing else.
    unstated = ptx_accesses(PTX, Block((32,), (4,)))
    assert (unstated[1].addresses == -1).all()
    assert degrees([unstated[0], unstated[4]]) == {"kernel.cu:7": 1, "kernel.cu:14": 1}


def test_lanes_that_take_no_part_cause_no_conflict() -> None:
    of_two = walked(32)[2]
    assert np.unique(of_two.addresses).tolist() == [112, 112 + 128]


def test_every_warp_of_a_block_is_looked_at() -> None:
    accesses = ptx_accesses(PTX, Block((64,), (1,), (np.int32(33),)))
    assert accesses[0].addresses.shape == (2, 32)
