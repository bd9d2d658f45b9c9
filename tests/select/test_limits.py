"""The limits as constraints say exactly what the occupancy model says: a block that fits is one that is resident."""

from __future__ import annotations

import numpy as np
import pytest

from constrint.hwmodels import list_gpus, load_gpu, occupancy
from constrint.model import Problem
from constrint.select import BlockUse, add_block_limits


@pytest.mark.parametrize("name", list_gpus())
def test_limits_hold_exactly_where_a_block_is_resident(name: str) -> None:
    gpu = load_gpu(name)
    problem = Problem("block")
    warps = problem.int_var("warps", lower=1, upper=40)
    registers = problem.int_var("registers", lower=1, upper=600)
    smem = problem.int_var("smem", lower=0, upper=300_000)
    add_block_limits(problem, gpu, BlockUse(warps, registers, smem))
    assert [c.name for c in problem.constraints] == ["threads", "smem", "registers", "register_file"]
    assert all(c.because for c in problem.constraints)
    rng = np.random.default_rng(len(name))
    most = gpu.sm.max_registers_per_thread
    columns = {
        "warps": rng.integers(1, 41, 4000),
        "registers": rng.integers(1, most + 1, 4000),
        "smem": rng.integers(0, 2 * gpu.sm.max_smem_bytes_per_block, 4000),
    }
    holds = np.ones(4000, dtype=bool)
    for constraint in problem.constraints:
        holds &= constraint.holds_columns(columns)
    threads = columns["warps"] * gpu.sm.warp_size
    launchable = threads <= gpu.sm.max_threads_per_block
    launchable &= columns["smem"] <= gpu.sm.max_smem_bytes_per_block
    resident = occupancy(
        gpu,
        threads_per_block=np.where(launchable, threads, gpu.sm.warp_size),
        registers_per_thread=columns["registers"],
        smem_bytes_per_block=np.where(launchable, columns["smem"], 0),
    ).blocks_per_sm
    assert np.array_equal(holds, launchable & (resident >= 1))
    assert 0 < holds.sum() < 4000


def test_reasons_name_the_gpu_and_the_number() -> None:
    problem = Problem("block")
    x = problem.int_var("x", lower=1, upper=8)
    add_block_limits(problem, load_gpu("h200"), BlockUse(x, x, x))
    reasons = {c.name: c.because for c in problem.constraints}
    assert reasons["smem"] == "a block of H200-SXM has at most 232,448 bytes of shared memory"
    assert "255 registers" in reasons["registers"]
    assert "16,384 registers per SM sub-partition" in reasons["register_file"]
