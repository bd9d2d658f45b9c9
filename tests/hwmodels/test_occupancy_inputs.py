"""`occupancy` refuses what makes no sense, broadcasts what does, and its parts agree with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import LIMIT_NAMES, UNLIMITED, list_gpus, load_gpu, occupancy

GOOD: dict[str, Any] = {"threads_per_block": 256, "registers_per_thread": 64, "smem_bytes_per_block": 16384}


@pytest.mark.parametrize("name", list(GOOD))
@pytest.mark.parametrize(
    "bad",
    [
        -1,
        1.5,
        256.0,
        True,
        "256",
        None,
        float("nan"),
        float("inf"),
        2**31,
        2**70,
        [1, -1],
        [1.0],
        [[1], [1, 2]],
        np.array([True]),
        np.array([np.nan]),
        np.array([2**63], dtype=np.uint64),
        np.array(["1"]),
        pytest.param(object(), id="object"),
        {},
        1j,
    ],
    ids=repr,
)
def test_bad_numbers_are_refused_by_name(name: str, bad: Any) -> None:
    with pytest.raises(UsageError, match=name):
        occupancy("h200", **{**GOOD, name: bad})


def test_blocks_have_at_least_one_thread() -> None:
    with pytest.raises(UsageError, match="threads_per_block: expected whole numbers from 1"):
        occupancy("h200", **{**GOOD, "threads_per_block": 0})


def test_arrays_that_do_not_broadcast_are_refused_with_their_shapes() -> None:
    with pytest.raises(UsageError, match=r"threads_per_block \(2,\), registers_per_thread \(3,\)"):
        occupancy("h200", threads_per_block=[32, 64], registers_per_thread=[1, 2, 3])


@pytest.mark.parametrize(
    ("gpu", "option"),
    [
        ("h200", {"accumulator_registers_per_thread": 4}),
        ("h200", {"sgprs_per_wave": 4}),
        ("h200", {"wgp_mode": True}),
        ("h200", {"wave_size": 64}),
        ("h200", {"lds_granularity_bytes": 512}),
        ("h200", {"carveout_percent": 101}),
        ("h200", {"carveout_percent": -2}),
        ("h200", {"smem_opt_in": 1}),
        ("mi300x", {"carveout_percent": 50}),
        ("mi300x", {"barriers_per_block": 1}),
        ("mi300x", {"smem_opt_in": False}),
        ("mi300x", {"wgp_mode": True}),
        ("mi300x", {"wave_size": 32}),
        ("mi300x", {"lds_granularity_bytes": 0}),
        ("7900xtx", {"accumulator_registers_per_thread": 4}),
        ("7900xtx", {"wave_size": 16}),
        ("7900xtx", {"wave_size": [32, 64]}),
    ],
)
def test_options_that_do_not_apply_are_refused(gpu: str, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(option))):
        occupancy(gpu, **GOOD, **option)


def test_the_gpu_is_a_model_or_a_known_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU 'h300'"):
        occupancy("h300", **GOOD)
    with pytest.raises(UsageError, match="expected a GpuModel"):
        occupancy(None, **GOOD)  # type: ignore[call-overload]
    assert occupancy(load_gpu("h200"), **GOOD) == occupancy("H200-SXM", **GOOD)


def test_scalars_give_plain_numbers_and_arrays_give_arrays_of_the_common_shape() -> None:
    scalar = occupancy("h200", **GOOD)
    assert type(scalar.blocks_per_sm) is int
    assert type(scalar.occupancy) is float
    assert type(scalar.limited_by) is str
    grid = occupancy("h200", threads_per_block=np.array([[128], [256]]), registers_per_thread=[32, 64, 128])
    for value in (
        grid.blocks_per_sm,
        grid.limit_blocks,
        grid.occupancy,
        grid.limited_by,
        grid.limit_barriers,
    ):
        assert value.shape == (2, 3)
    assert grid.blocks_per_sm.dtype == np.int64
    empty = occupancy("mi300x", threads_per_block=np.array([], dtype=np.int64), registers_per_thread=8)
    assert empty.blocks_per_sm.shape == (0,)
    assert occupancy("h200", threads_per_block=[], registers_per_thread=8).blocks_per_sm.shape == (0,)


@given(
    gpu=st.sampled_from(list_gpus()),
    threads=st.lists(st.integers(1, 1100), min_size=1, max_size=8),
    registers=st.integers(0, 520),
    smem=st.integers(0, 250_000),
)
def test_columns_equal_scalars_and_limits_explain_the_result(
    gpu: str, threads: list[int], registers: int, smem: int
) -> None:
    kernel: dict[str, Any] = {"registers_per_thread": registers, "smem_bytes_per_block": smem}
    columns = occupancy(gpu, threads_per_block=threads, **kernel)
    sm = load_gpu(gpu).sm
    for row, count in enumerate(threads):
        one = occupancy(gpu, threads_per_block=count, **kernel)
        for name in (
            "blocks_per_sm",
            "warps_per_sm",
            "limited_by",
            "registers_per_block",
            "smem_bytes_per_block",
        ):
            assert getattr(columns, name)[row] == getattr(one, name)
        limits = {name: getattr(one, f"limit_{name}") for name in LIMIT_NAMES}
        assert one.blocks_per_sm == min(limits.values()) < UNLIMITED
        assert set(one.limited_by.split("+")) == {n for n, limit in limits.items() if limit == one.blocks_per_sm}
        assert one.warps_per_sm <= sm.max_warps_per_sm
        assert one.blocks_per_sm * smem <= sm.smem_bytes_per_sm


@given(gpu=st.sampled_from(list_gpus()), threads=st.integers(1, 1024), registers=st.integers(1, 256))
def test_asking_for_more_never_gives_more_blocks(gpu: str, threads: int, registers: int) -> None:
    def blocks(threads: int, registers: int, smem: int) -> int:
        kernel: dict[str, Any] = {
            "threads_per_block": threads,
            "registers_per_thread": registers,
            "smem_bytes_per_block": smem,
        }
        return int(occupancy(gpu, **kernel).blocks_per_sm)

    base = blocks(threads, registers, 1000)
    assert blocks(threads, registers + 1, 1000) <= base
    assert blocks(threads, registers, 2000) <= base
    assert blocks(min(1024, threads + 64), registers, 1000) <= base
