"""The cost model reacts to each resource as it must, and the XCD traffic model counts what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from constrint.hwmodels import load_gpu
from constrint.hwmodels.assumed import sustained_matrix_fraction
from constrint.kernels.gemm.pointer.cost import TileGrid, operand_traffic
from constrint.select import TileWork, estimate
from constrint.select.cost import (
    FITTED_SHARE,
    LAUNCH_S,
    PARTS,
    BlockTimes,
    cost_assumptions,
    dram_bytes_per_s,
    l2_bytes_per_s,
    launch_s,
    loaded_clock_hz,
    overlap,
    sustained_shares,
)

WORK = TileWork(
    num_blocks=np.array([1056.0]),
    blocks_per_sm=np.array([1.0]),
    warps_per_block=np.array([8.0]),
    iterations=np.array([64.0]),
    flop=np.array([2.0 * 128 * 256 * 64]),
    matrix_efficiency=1.0,
    smem_bytes=np.array([90_000.0]),
    load_bytes=np.array([49_152.0]),
    load_instructions=np.array([3072.0]),
    store_bytes=np.array([65_536.0]),
    is_async=np.array([True]),
    stages_in_flight=np.array([2.0]),
    l2_bytes=np.array([3.3e9]),
    last_level_bytes=np.array([0.4e9]),
    dram_bytes=np.array([0.2e9]),
)
PEAK = 989.4e12


def seconds(**changes: Any) -> float:
    return float(estimate(load_gpu("h200"), PEAK, replace(WORK, **changes)).seconds[0])


@pytest.mark.parametrize(
    "worse",
    [
        {"flop": WORK.flop * 2},
        {"smem_bytes": WORK.smem_bytes * 10},
        {"load_bytes": WORK.load_bytes * 4},
        {"load_instructions": WORK.load_instructions * 20},
        {"stages_in_flight": np.array([0.0])},
        {"matrix_efficiency": 0.5},
        {"dram_bytes": WORK.dram_bytes * 20},
        {"num_blocks": np.array([1057.0])},
        {"extra_s": 1e-5},
        {"warps_per_block": np.array([1.0])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_resource_can_bind(worse: dict[str, object]) -> None:
    assert seconds(**worse) > 1.02 * seconds()


def test_bound_by_is_the_largest_part() -> None:
    result = estimate(load_gpu("h200"), PEAK, replace(WORK, dram_bytes=np.array([9e9])))
    parts = result.parts_of(0)
    assert set(parts) == set(PARTS)
    assert result.bound_by(0) == "DRAM" == max(parts, key=lambda name: parts[name])
    assert result.seconds[0] >= max(parts.values())


def test_overlap_lies_between_the_largest_and_the_sum() -> None:
    rng = np.random.default_rng(3)
    times = rng.uniform(1e-9, 1e-2, (5, 1000))
    combined = overlap(*times)
    assert np.all(combined >= times.max(axis=0) * (1 - 1e-9))
    assert np.all(combined <= times.sum(axis=0))
    np.testing.assert_allclose(overlap(np.array([2e-6])), [2e-6], rtol=1e-12)


def tiles(**changes: float) -> TileGrid:
    values = {
        "rows": 64.0,
        "columns": 64.0,
        "row_bytes": 1e8,
        "column_bytes": 1e8,
        "resident": 304.0,
        "group_m": 8.0,
        "xcd_chunk": 0.0,
    } | changes
    return TileGrid(**{name: np.array([value]) for name, value in values.items()})


def simulated_l2_misses(num_xcds: int, group: int, resident: int, remap: bool) -> float:
    """Distinct tile rows and columns per XCD for the first wave, counted block by block."""
    rows = columns = 64
    total = rows * columns
    touched: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in range(num_xcds)]
    for block in range(resident):
        xcd, tile = block % num_xcds, block
        if remap:
            tile = xcd * (total // num_xcds) + block // num_xcds
        first = tile // (group * columns) * group
        within = tile % (group * columns)
        touched[xcd][0].add(first + within % group)
        touched[xcd][1].add(within // group)
    return float(sum(len(r) + len(c) for r, c in touched))


@pytest.mark.parametrize("group", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("remap", [False, True])
def test_traffic_per_xcd_is_near_a_block_by_block_count(group: int, remap: bool) -> None:
    gpu = load_gpu("mi300x")
    traffic = operand_traffic(gpu, tiles(group_m=float(group), xcd_chunk=1024.0 * remap))
    waves = 64 * 64 / 304
    counted = simulated_l2_misses(8, group, 304, remap)
    assert traffic.l2_miss_bytes[0] / (waves * 1e8) == pytest.approx(counted, rel=0.15)


def test_remapping_xcds_and_grouping_rows_save_traffic() -> None:
    gpu = load_gpu("mi300x")

    def missed(**changes: float) -> float:
        return float(operand_traffic(gpu, tiles(**changes)).l2_miss_bytes[0])

    assert missed(xcd_chunk=1024.0) < missed(xcd_chunk=0.0)
    assert missed(xcd_chunk=1024.0, group_m=4.0) < missed(xcd_chunk=1024.0, group_m=1.0)
    nvidia = load_gpu("a100")
    grouped, ungrouped = (operand_traffic(nvidia, tiles(group_m=g)).dram_bytes[0] for g in (8.0, 1.0))
    assert grouped < ungrouped


def test_traffic_never_falls_below_reading_each_operand_once() -> None:
    for name in ("mi300x", "h200", "7900xtx"):
        for group in (1.0, 8.0, 64.0):
            traffic = operand_traffic(load_gpu(name), tiles(group_m=group, row_bytes=1e5, column_bytes=1e5))
            assert traffic.dram_bytes[0] >= 128 * 1e5 * (1 - 1e-9)
            assert traffic.l2_miss_bytes[0] >= traffic.dram_bytes[0]


def test_the_constants_belong_to_the_share_that_the_fitted_gpu_keeps_up() -> None:
    assert load_gpu("h200").compute.sustained_matrix_fraction == FITTED_SHARE


def test_an_assumed_l2_binds_where_it_gives_less_than_the_ports_take() -> None:
    for name in ("h200", "gh200", "h100", "b200"):
        assert l2_bytes_per_s(load_gpu(name)) is None
    consumer = load_gpu("rtx-5090")
    rate = l2_bytes_per_s(consumer)
    assert rate is not None
    assert rate < 9.5e12
    ample = estimate(consumer, 209.5e12, replace(WORK, l2_bytes=np.array([1.0])))
    bound = estimate(consumer, 209.5e12, replace(WORK, l2_bytes=np.array([2e10])))
    assert bound.bound_by(0) == "L2"
    assert bound.parts_of(0)["L2"] == pytest.approx(2e10 / rate)
    assert bound.seconds[0] > 2 * ample.seconds[0]


def test_a_gpu_that_keeps_up_less_of_its_peak_slows_as_a_whole() -> None:
    h200, l4 = load_gpu("h200"), load_gpu("l4")
    assert loaded_clock_hz(h200) == h200.device.boost_clock_hz
    assert loaded_clock_hz(l4) == pytest.approx(2.04e9 * 0.58 / FITTED_SHARE)
    assert loaded_clock_hz(load_gpu("a100")) == 1.41e9


def test_power_slows_the_matrix_units_and_not_what_a_kernel_waits_for() -> None:
    l4 = load_gpu("l4")
    peak = l4.peak_flop_per_s("bf16")
    assert peak is not None
    few = replace(WORK, flop=np.array([1e3]), smem_bytes=np.array([0.0]), load_bytes=np.array([1e6]))
    reached, powered = sustained_shares(l4, few)
    assert reached == FITTED_SHARE
    assert float(powered[0]) < 0.1, "bytes take nearly all of the power"
    moved = BlockTimes(l4, peak, few)
    full = BlockTimes(load_gpu("l4"), peak, replace(few, has_matrix_units=False))
    assert moved.port_s[0] == full.port_s[0], "at the clock of an idle GPU"
    # Half of the SMs at work have twice the power each.
    assert np.all(moved._busy_power(1.0, 0.5) < moved._busy_power(1.0, 1.0))
    assert sustained_shares(load_gpu("h200"), few) == (FITTED_SHARE, FITTED_SHARE)


def test_launches_are_as_long_as_where_they_were_measured() -> None:
    assert launch_s(load_gpu("h200")) == launch_s(load_gpu("h100")) == LAUNCH_S
    for name in ("a100", "b200", "b300", "gb300", "l40s", "mi300x", "mi355x"):
        # The shortest published products take 1.7 us in all (B200, 48x32x64).
        assert 1.1e-6 < launch_s(load_gpu(name)) < 3e-6, name
        assert any("one after another" in line for line in cost_assumptions(load_gpu(name)))
    assert launch_s(load_gpu("b300")) == launch_s(load_gpu("gb300")) == launch_s(load_gpu("b200"))


def test_a_share_of_the_peak_and_of_the_dram_is_that_of_the_dtype_and_the_family() -> None:
    mi355x = load_gpu("mi355x")
    shares = [sustained_matrix_fraction(mi355x, dtype) for dtype in ("bf16", "fp8", "int8")]
    assert shares == sorted(shares, reverse=True)
    assert dram_bytes_per_s(mi355x) < mi355x.memory.dram.bandwidth_bytes_per_s
    assert dram_bytes_per_s(load_gpu("h200"), 0.79) == 0.79 * load_gpu("h200").memory.dram.bandwidth_bytes_per_s


def test_the_two_gpus_of_one_chip_have_one_clock() -> None:
    h200, gh200 = load_gpu("h200").device, load_gpu("gh200").device
    assert (gh200.sm_count, gh200.boost_clock_hz) == (h200.sm_count, h200.boost_clock_hz)


def test_vector_units_are_named_and_know_no_sustained_share() -> None:
    t4 = load_gpu("t4")
    plain, matrix = (estimate(t4, 8.1e12, replace(WORK, has_matrix_units=has)).parts_of(0) for has in (False, True))
    assert plain["matrix units"] == 0 == matrix["vector units"]
    # Matrix units keep up as much of the peak as power allows, vector units all that is stated.
    share = float(np.ravel(sustained_shares(t4, WORK)[1])[0])
    assert 0.4 < share < 0.9
    assert matrix["matrix units"] == pytest.approx(plain["vector units"] / share)
    assert sustained_shares(t4, replace(WORK, has_matrix_units=False)) == (1.0, 1.0)


def test_assumptions_are_printed_with_their_band_and_source() -> None:
    lines = cost_assumptions(load_gpu("rtx-4090"))
    share = "97% of the matrix peak is sustained, assumed (97% to 100%; secondary: "
    assert any(line.startswith(share) for line in lines)
    cache = "L2 of 4.7 TB/s assumed (3.9 to 5.2; secondary: te42kyfo/gpu-benches: L40"
    assert any(line.startswith(cache) for line in lines)
    assert not any("matrix peak" in line for line in cost_assumptions(load_gpu("t4"), has_matrix_units=False))
    assert any("more than the SMs' ports take" in line for line in cost_assumptions(load_gpu("h200")))
    assert not any("matrix peak" in line for line in cost_assumptions(load_gpu("h200")))
