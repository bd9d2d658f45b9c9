"""What NVRTC makes of the GEMM that gathers operands: nothing spills, registers and shared memory are as stated."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from constrint.errors import CompileError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.shape import Shape
from constrint.kernels.gemm.cuda.source import Operands
from constrint.kernels.gemm.cuda.unaligned.gathered import Gathered
from constrint.kernels.gemm.cuda.unaligned.source import source_of
from constrint.kernels.gemm.cuda.unaligned.spec import SPECS
from constrint.kernels.gemm.epilogue.ends import Ends
from constrint.kernels.launch.cuda import compile_cuda
from constrint.select import Workload
from constrint.solve import enumerate_space
from tests.support.gemm import gemm, use_of
from tests.support.needs import missing_packages, needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.skipif(bool(missing_packages("torch")), reason="needs the extra [torch]")]

H200 = load_gpu("h200")
SPEC = SPECS[0]
WORKLOADS = {
    "bf16 by rows, both": gemm(4096, 4097, 4097, "bf16"),
    "fp16, A alone": gemm(4096, 4096, 4097, "fp16"),
    "bf16 across K, B alone": gemm(4096, 4097, 4096, "bf16", transpose_a=1),
    "bf16 both along K": gemm(4096, 4096, 4097, "bf16", transpose_b=1),
    "tf32": gemm(4096, 4096, 4097, "tf32", transpose_b=1),
    "fp8": gemm(4096, 4096, 4097, "fp8", transpose_b=1),
    "int8": gemm(4096, 4096, 4097, "int8", transpose_b=1),
    "bf16 with all ends": gemm(4096, 4097, 4097, "bf16", bias=1, source=1),
}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_nothing_spills_and_what_is_stated_is_true(workload: Workload) -> None:
    """The configuration with the most sums of each number of consumers, and another drawn at random."""
    problem = SPEC.problem(H200, workload)
    columns, _ = enumerate_space(problem).project([name for name in problem.variables if name != "group_m"])
    columns = {**columns, "group_m": np.full(len(columns["tile_m"]), 8)}
    sums, draw = Shape.of(columns).sums, random.Random(str(workload))
    rows = [int(np.argmax(np.where(columns["consumers"] == number, sums, 0))) for number in (1, 2, 3)]
    rows += [int(np.argmax(sums * columns["turned"])), *draw.sample(range(len(sums)), 1)]
    use = use_of(SPEC, H200, workload, problem)
    for row in dict.fromkeys(rows):
        config = {name: int(column[row]) for name, column in columns.items()}
        compiled = SPEC.compile(H200, workload, config)
        assert compiled.spill_bytes == 0, config
        assert compiled.smem_bytes == use.smem_bytes.value(config), config
        assert compiled.registers_per_thread <= use.registers_per_thread.value(config), config


@pytest.mark.parametrize(
    ("tile", "consumers", "raw_stages", "gathered"),
    [((256, 136), 2, 4, Gathered(False, True)), ((192, 96), 1, 3, Gathered(True, True))],
)
def test_what_would_spill_is_compiled_sparing(
    tile: tuple[int, int], consumers: int, raw_stages: int, gathered: Gathered
) -> None:
    config = {"tile_m": tile[0], "tile_n": tile[1], "num_stages": 2, "raw_stages": raw_stages, "consumers": consumers}
    config |= {"by_columns": 1, "in_turns": 0, "cluster_m": 1, "cluster_n": 1, "turned": 0}
    source = source_of(config, Operands("bf16", False, True), gathered, Ends("bf16", buffers=2), splits=True)
    assert source.sparing
    assert compile_cuda(H200, source).spill_bytes == 0


def test_clusters_are_refused_by_the_launch_and_by_the_compiler() -> None:
    workload = gemm(4096, 4096, 4097)
    config: dict[str, Any] = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "num_stages": 3, "raw_stages": 2}
    config |= {"consumers": 2, "by_columns": 1, "in_turns": 0, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 8}
    inputs = SPEC.inputs(H200, workload)
    outputs = SPEC.outputs(H200, workload, inputs)
    with pytest.raises(UsageError, match="no clusters"):
        SPEC.launches(H200, workload, config | {"cluster_m": 2, "cluster_n": 1}, inputs, outputs)
    (launch,) = SPEC.launches(H200, workload, config | {"cluster_m": 1, "cluster_n": 1}, inputs, outputs)
    source: Any = launch.source  # type: ignore[attr-defined]
    with pytest.raises(CompileError, match="reaches one block"):
        compile_cuda(H200, replace(source, macros={**source.macros, "CLUSTER_ROWS": 2}))


def test_operands_that_need_no_gathering_are_left_to_the_other_kernel() -> None:
    workload = gemm(4096, 4096, 4096)
    inputs = SPEC.inputs(H200, workload)
    outputs = SPEC.outputs(H200, workload, inputs)
    with pytest.raises(UsageError, match=r"use gemm\.cuda"):
        SPEC.launches(H200, workload, {"cluster_m": 1, "cluster_n": 1}, inputs, outputs)
