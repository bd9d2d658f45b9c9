"""Hardware limits as constraints: what is certain prunes, and what is estimated gives a chance to spill and a time.

The certain limits say exactly what the occupancy model says: a block that fits is one that is resident.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, list_gpus, load_gpu, occupancy
from constrint.model import Problem, Var, const
from constrint.model.constraint import CERTAIN, ESTIMATED
from constrint.select import BlockUse, add_block_limits
from constrint.select.limits import (
    BROKEN_CHANCE,
    LAPSE,
    UNFITTED,
    Spilling,
    broken_chance,
    most_registers,
    slowdown,
    spill_chance,
)
from constrint.solve import enumerate_space

NUM = 4000
CERTAIN_LIMITS = ["threads", "smem", "registers", "register_file"]


def block(**more: Any) -> tuple[Problem, BlockUse]:
    """A problem over what a block takes."""
    problem = Problem("block")
    warps = problem.int_var("warps", lower=1, upper=40)
    registers = problem.int_var("registers", lower=1, upper=1100)
    smem = problem.int_var("smem", lower=0, upper=300_000)
    return problem, BlockUse(warps, registers, smem, **more)


def resident(gpu: GpuModel, columns: dict[str, Any], registers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which blocks of so many registers a thread the occupancy model says to be resident on an SM."""
    threads = columns["warps"] * gpu.sm.warp_size
    fits = threads <= gpu.sm.max_threads_per_block
    fits &= columns["smem"] <= gpu.sm.max_smem_bytes_per_block
    fits &= registers <= gpu.sm.max_registers_per_thread
    blocks = occupancy(
        gpu,
        threads_per_block=np.where(fits, threads, gpu.sm.warp_size),
        registers_per_thread=np.where(fits, registers, 1),
        smem_bytes_per_block=np.where(fits, columns["smem"], 0),
        # LLVM deals a block of RDNA to both CUs of a pair.
        wgp_mode=(gpu.register_file.partitions_per_block or 0) > gpu.sm.num_partitions,
    ).blocks_per_sm
    return np.asarray(fits & (blocks >= 1))


def drawn(gpu: GpuModel) -> dict[str, Any]:
    rng = np.random.default_rng(len(gpu.name))
    return {
        "warps": rng.integers(1, 41, NUM),
        "registers": rng.integers(1, 2 * gpu.sm.max_registers_per_thread + 1, NUM),
        "smem": rng.integers(0, 2 * gpu.sm.max_smem_bytes_per_block, NUM),
    }


def holding(problem: Problem, columns: dict[str, Any]) -> NDArray[np.bool_]:
    return np.asarray(np.logical_and.reduce([rule.holds_columns(columns) for rule in problem.constraints]))


@pytest.mark.parametrize("name", list_gpus())
def test_certain_limits_hold_exactly_where_a_block_is_resident(name: str) -> None:
    """What must be live at once stands for all registers here, so that nothing is left to an estimate."""
    gpu = load_gpu(name)
    problem, use = block(least_registers=Var("registers"), spilling=None)
    add_block_limits(problem, gpu, use)
    assert [(c.name, c.kind) for c in problem.constraints] == [(limit, CERTAIN) for limit in CERTAIN_LIMITS]
    assert all(c.because for c in problem.constraints)
    assert problem.estimates == ()
    columns = drawn(gpu)
    holds = holding(problem, columns)
    files = gpu.register_file.num_files
    fits = resident(gpu, columns, -(-columns["registers"] // files))
    assert 0 < holds.sum() < NUM
    # Nothing that is resident is excluded, however its registers are dealt to the files.
    assert not np.any(fits & ~holds)
    if files == 1:
        assert np.array_equal(holds, fits)
    else:
        # Half a step of the allocation may be shared by both files.
        almost = np.maximum(columns["registers"] // files - gpu.register_file.granularity, 1)
        assert not np.any(holds & ~resident(gpu, columns, almost))


@pytest.mark.parametrize("name", list_gpus())
def test_an_estimate_of_registers_leaves_out_nothing(name: str) -> None:
    gpu = load_gpu(name)
    problem, use = block()
    add_block_limits(problem, gpu, use)
    assert [c.name for c in problem.constraints] == ["threads", "smem"]
    assert [(c.name, c.kind) for c in problem.estimates] == [("spills", ESTIMATED)]
    columns = drawn(gpu)
    assert np.array_equal(holding(problem, columns), resident(gpu, columns, np.ones(NUM, dtype=np.int64)))


@pytest.mark.parametrize("name", list_gpus())
def test_strict_keeps_what_spills_at_most_once_in_ten(name: str) -> None:
    gpu = load_gpu(name)
    problem, use = block()
    add_block_limits(problem, gpu, use)
    columns = drawn(gpu)
    clean = holding(problem, columns)
    strict = holding(problem.strict(), columns)
    chances = spill_chance(gpu, use, columns)
    assert np.array_equal(strict, clean & (chances <= chances[strict].max()))
    # `clear_percent` is rounded down to a whole percent.
    assert 0.08 <= chances[strict].max() <= 0.1
    assert chances[clean & ~strict].min() > 0.08


def test_a_least_need_of_shared_memory_prunes_and_what_may_be_added_is_estimated() -> None:
    gpu = load_gpu("h200")
    most = gpu.sm.max_smem_bytes_per_block
    problem, use = block(least_smem_bytes=Var("smem") // 2)
    add_block_limits(problem, gpu, use)
    assert {c.name: c.kind for c in (*problem.constraints, *problem.estimates)} == {
        "threads": CERTAIN, "smem": CERTAIN, "smem_stated": ESTIMATED, "spills": ESTIMATED,
    }  # fmt: skip
    for smem, is_kept, is_sure in ((most, True, True), (most + 1, True, False), (2 * most + 2, False, False)):
        config = {"warps": 4, "registers": 32, "smem": smem}
        assert all(rule.holds(config) for rule in problem.constraints) is is_kept
        assert all(rule.holds(config) for rule in problem.strict().constraints) is is_sure
        columns = {parameter: np.array([value]) for parameter, value in config.items()}
        chance = float(np.max(broken_chance(problem.estimates, columns)))
        assert chance == (0.0 if is_sure else BROKEN_CHANCE)


def test_shared_memory_is_judged_with_the_free_parameters() -> None:
    """The most over a free parameter's values limits nothing: each value is judged by what it takes itself."""
    gpu = load_gpu("h200")
    problem = Problem("block")
    packed = problem.int_var("packed", values=[1, 2])
    most = gpu.sm.max_smem_bytes_per_block
    use = BlockUse(const(4), const(32), const(2 * most), smem_bytes_exact=packed * most)
    add_block_limits(problem, gpu, use)
    assert [row["packed"] for row in enumerate_space(problem)] == [1]


def test_reasons_name_the_gpu_and_the_number() -> None:
    problem, use = block(least_registers=Var("registers"), spilling=Spilling.of(100, 100, 17))
    add_block_limits(problem, load_gpu("h200"), use)
    reasons = {c.name: c.because for c in (*problem.constraints, *problem.estimates)}
    assert reasons["smem"] == "a block of H200-SXM has at most 232,448 bytes of shared memory"
    assert "255 registers" in reasons["registers"]
    assert "what must be live at once alone needs more" in reasons["registers"]
    assert "16,384 registers per SM sub-partition" in reasons["register_file"]
    assert "one kernel in ten at this limit spills, of those that no fit has seen" in reasons["spills"]
    assert "17 %" in reasons["spills"]


@pytest.mark.parametrize(
    ("gpu", "num_warps", "registers"),
    [
        ("h200", 4, 255), ("h200", 16, 128), ("mi300x", 8, 256), ("mi100", 4, 256),
        # LLVM deals a block of RDNA to both CUs of a pair: 16 warps leave each as many registers as it can name.
        ("7900xtx", 16, 256), ("7900xtx", 32, 192),
    ],
)  # fmt: skip
def test_warps_share_the_register_file(gpu: str, num_warps: int, registers: int) -> None:
    assert most_registers(load_gpu(gpu), const(num_warps)).value({}) == registers


def chances_of(registers: list[int], curve: Spilling, gpu: str = "h200", warps: int = 4) -> NDArray[np.float64]:
    use = BlockUse(const(warps), Var("registers"), const(0), spilling=curve)
    return spill_chance(load_gpu(gpu), use, {"registers": np.array(registers)})


def test_the_chance_to_spill_is_the_curve_of_what_is_needed_over_what_may_be_had() -> None:
    curve = Spilling.of(at_percent=110, slope_tenths=70, error_percent=20)
    registers = [1, 64, 128, 200, 255, 280, 300, 400, 4000]
    chances = chances_of(registers, curve)
    share = np.array(registers) / 255
    of_curve = 1 / (1 + np.exp(-7 * np.log(share / 1.1)))
    np.testing.assert_allclose(chances, LAPSE + (1 - LAPSE) * of_curve, rtol=1e-9)
    assert np.all(np.diff(chances) > 0)
    # Nothing that was fitted to some thousand kernels says less.
    assert chances[0] == pytest.approx(LAPSE, rel=1e-9)
    assert chances[-1] > 0.999
    # As many warps as leave a thread half the registers: the same need is twice the share.
    np.testing.assert_allclose(chances_of([100], curve, warps=16), chances_of([50], curve, warps=32), rtol=1e-9)
    assert chances_of([150], curve, warps=16) > 0.5 > 0.1 > chances_of([150], curve, warps=4)


@pytest.mark.parametrize(
    "curve", [UNFITTED, Spilling.of(110, 70, 20), Spilling.of(95, 250, 9), Spilling.of(130, 15, 40)]
)
def test_one_kernel_in_ten_spills_where_the_estimated_rule_ends(curve: Spilling) -> None:
    """The rule and the curve are two statements of one thing; the rule's percentage is rounded down."""
    assert isinstance(curve.clear_percent, int)
    slope = curve.slope_tenths / 10
    for percent, sign in ((curve.clear_percent, -1), (curve.clear_percent + 1, 1)):
        chance = 1 / (1 + (percent / curve.at_percent) ** -slope)
        assert sign * (chance - 0.1) >= 0


def test_curves_may_differ_from_configuration_to_configuration() -> None:
    problem = Problem("two")
    kind = problem.int_var("kind", values=[0, 1])
    curve = Spilling(80 + 40 * kind, 60 + 20 * kind, 50 + 30 * kind, 10 + 10 * kind)
    use = BlockUse(const(4), const(230), const(0), spilling=curve)
    add_block_limits(problem, load_gpu("h200"), use)
    one, other = spill_chance(load_gpu("h200"), use, {"kind": np.array([0, 1])})
    assert one == chances_of([230], Spilling(80, 60, 0, 0))[0]
    assert other == chances_of([230], Spilling(120, 80, 0, 0))[0]
    assert one > 0.5 > other
    assert enumerate_space(problem).size == 2


def test_registers_that_are_known_exactly_never_spill() -> None:
    use = BlockUse(const(4), Var("registers"), const(0), least_registers=Var("registers"), spilling=None)
    assert spill_chance(load_gpu("h200"), use, {"registers": np.array([1, 255, 4000])}).tolist() == [0.0, 0.0, 0.0]


def test_estimated_rules_without_a_curve_have_one_chance_and_wait_for_their_parameters() -> None:
    problem, use = block()
    add_block_limits(problem, load_gpu("h200"), use)
    problem.add(Var("warps") <= 8, name="few", because="more were seen to spill", kind=ESTIMATED)
    columns = {"warps": np.array([4, 8, 16]), "registers": np.array([9999, 32, 32])}
    # The rule on registers counts by its curve alone.
    assert np.broadcast_to(broken_chance(problem.estimates, columns), 3).tolist() == [0.0, 0.0, BROKEN_CHANCE]
    # Nothing is known of a parameter that is still open.
    assert np.all(broken_chance(problem.estimates, {"registers": np.array([32])}) == 0.0)


@pytest.mark.parametrize("name", list_gpus())
def test_what_may_spill_is_expected_to_take_longer(name: str) -> None:
    gpu = load_gpu(name)
    slower = slowdown(gpu, np.array([0.0, 0.5, 1.0]), 1.5)
    assert slower[0] == 1.0
    assert slower[2] > 1.0
    assert slower[1] == pytest.approx((slower[0] + slower[2]) / 2)
    # The more registers are missing the longer it takes; where none are, a spill costs hardly anything.
    by_need = slowdown(gpu, 1.0, np.array([0.5, 1.0, 1.1, 2.0]))
    assert by_need[:2].tolist() == [1.0, 1.0]
    assert np.all(np.diff(by_need[1:]) > 0)
