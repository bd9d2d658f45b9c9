"""What NVRTC makes of the CUDA GEMM's configurations: nothing spills, registers and shared memory are as stated."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.shape import WgmmaTile
from constrint.kernels.gemm.cuda.source import OperandLayout, source_of
from constrint.kernels.gemm.epilogue.compiled import SUMS_BESIDE_SOURCE, CompiledEpilogue
from constrint.kernels.launch.cuda import compile_cuda
from constrint.select import Workload
from constrint.solve import enumerate_space
from tests.support.gemm import CUDA, gemm, use_of
from tests.support.needs import missing_packages, needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.skipif(bool(missing_packages("torch")), reason="needs the extra [torch]")]

H200 = load_gpu("h200")
#: Layouts that every dtype has, and those of 16 bits alone.
WORKLOADS = {
    "bf16 both along K": gemm(4096, 4096, 4096, "bf16", transpose_b=1),
    "fp16 none along K": gemm(4096, 4096, 4096, "fp16", transpose_a=1),
    "bf16 by rows": gemm(4096, 4096, 4096, "bf16"),
    "tf32": gemm(4096, 4096, 4096, "tf32", transpose_b=1),
    "fp8": gemm(4096, 4096, 4096, "fp8", transpose_b=1),
    "int8": gemm(4096, 4096, 4096, "int8", transpose_b=1),
    "bf16 with all ends": gemm(4096, 4096, 4096, "bf16", transpose_b=1, bias=1, source=1),
}


def columns_of(workload: Workload) -> dict[str, Any]:
    problem = CUDA.problem(H200, workload)
    names = [name for name in problem.variables if name != "group_m"]
    columns, _ = enumerate_space(problem).project(names)
    return {**columns, "group_m": np.full(len(columns["tile_m"]), 8)}


def config_at(columns: Mapping[str, Any], row: int) -> dict[str, int]:
    return {name: int(column[row]) for name, column in columns.items()}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_nothing_spills_and_what_is_stated_is_true(workload: Workload) -> None:
    """The configurations with the most sums of two numbers of consumers and turned, and one drawn at random."""
    columns, draw = columns_of(workload), random.Random(str(workload))
    sums = WgmmaTile.of(columns).sums
    rows = [int(np.argmax(np.where(columns["consumers"] == number, sums, 0))) for number in draw.sample((1, 2, 3), 2)]
    rows += [int(np.argmax(sums * columns["turned"])), draw.randrange(len(sums))]
    problem = CUDA.problem(H200, workload)
    use = use_of(CUDA, H200, workload, problem)
    for row in dict.fromkeys(rows):
        config = config_at(columns, row)
        compiled = CUDA.compile(H200, workload, config)
        assert compiled.spill_bytes == 0, config
        assert compiled.smem_bytes == use.smem_bytes.value(config), config
        assert compiled.registers_per_thread <= use.registers_per_thread.value(config), config
        threads = use.warps.value(config) * 32
        assert compiled.registers_per_thread * threads <= H200.sm.num_partitions * 16384, config


ENDS = (
    CompiledEpilogue("fp32", "fp32", "fp32", "silu"),
    CompiledEpilogue("fp16", "bf16", "", "gelu"),
    CompiledEpilogue("bf16", "", "fp64", "relu"),
    CompiledEpilogue("bf16", "", "", "silu"),
    CompiledEpilogue("bf16", "bf16", "", "gelu", in_boxes=True, buffers=2),
    CompiledEpilogue("fp16", "fp32", "", "gelu_tanh", in_boxes=True),
    CompiledEpilogue("bf16", "fp32", "bf16", "gelu", in_boxes=True, buffers=2),
    CompiledEpilogue("int32"),
)


@pytest.mark.parametrize(("ends", "turned"), [(ends, at % 2) for at, ends in enumerate((*ENDS, ENDS[0]))], ids=str)
def test_every_end_compiles_without_spilling(ends: CompiledEpilogue, turned: int) -> None:
    config = {"tile_m": 256, "tile_n": 144, "num_stages": 3, "consumers": 2, "by_columns": 1, "in_turns": 0}
    config |= {"cluster_m": 2, "cluster_n": 1, "turned": 0}
    if turned:
        config |= {"tile_m": 144, "tile_n": 256, "cluster_m": 1, "cluster_n": 2, "turned": 1}
    if ends.in_boxes and ends.source:
        # With more sums `launch.py` leaves the source matrix to threads that store results.
        config |= {"tile_n": SUMS_BESIDE_SOURCE}
        assert WgmmaTile.of(config).sums == SUMS_BESIDE_SOURCE
    source = source_of(
        config, OperandLayout("int8" if ends.output == "int32" else "bf16", True, True), ends, splits=True
    )
    assert compile_cuda(H200, source).spill_bytes == 0


def test_what_would_spill_is_compiled_sparing() -> None:
    config = {"tile_m": 256, "tile_n": 56, "num_stages": 5, "consumers": 2, "by_columns": 1, "in_turns": 1}
    config |= {"cluster_m": 1, "cluster_n": 2, "turned": 0}
    source = source_of(config, OperandLayout("bf16", False, True), CompiledEpilogue("bf16"), splits=True)
    assert source.sparing
    assert compile_cuda(H200, source).spill_bytes == 0


def test_a_wrong_tile_is_refused_by_the_compiler_too() -> None:
    """The source asserts what the rules say of wgmma."""
    from constrint.errors import CompileError

    config = {"tile_m": 96, "tile_n": 128, "num_stages": 3, "consumers": 1, "by_columns": 1, "in_turns": 0}
    config |= {"cluster_m": 1, "cluster_n": 1, "turned": 0}
    with pytest.raises(CompileError, match="what wgmma takes"):
        compile_cuda(H200, source_of(config, OperandLayout("bf16", True, True), CompiledEpilogue("bf16"), splits=False))
