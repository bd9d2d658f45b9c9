"""What `matmul` would run first on GPUs that are not there: compiled, it takes what the model says."""

from __future__ import annotations

import importlib.util

import pytest
from constrint.kernels.gemm.choose import Request, choose

from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu, occupancy
from constrint.kernels.gemm.spec import SPEC
from constrint.kernels.registry import load_compiler
from constrint.select import Workload

GPUS = ("a100-sxm4-80gb", "h200", "b200", "mi210", "mi300x", "mi355x")
SHAPES = ((4096, 4096, 4096), (16384, 3072, 768), (16, 4096, 4096))

needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="needs the extra [torch]: torch or triton is not installed",
)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("name", GPUS)
def test_first_choices_compile_to_what_is_predicted(name: str, dtype: str) -> None:
    gpu, compile_config = load_gpu(name), load_compiler("gemm")
    for sizes in SHAPES:
        workload = Workload("gemm", dict(zip("mnk", sizes, strict=True)), dtype)
        try:
            SPEC.check_workload(gpu, workload)
        except UnsupportedError as error:
            pytest.skip(str(error))
        config = choose(gpu.name, Request.of(workload))
        compiled = compile_config(gpu, workload, config)
        use = SPEC.use(gpu, workload, SPEC.problem(gpu, workload))
        registers = use.registers_per_thread.value(config)
        what = f"{sizes} {dict(config)}: {registers} registers predicted, {compiled}"
        assert compiled.instruction, what
        assert compiled.smem_bytes <= use.smem_bytes.value(config), what
        assert compiled.spill_bytes == 0, what
        threads = use.warps.value(config) * gpu.sm.warp_size
        predicted, found = (
            int(occupancy(gpu, threads_per_block=threads, registers_per_thread=r, smem_bytes_per_block=s).blocks_per_sm)
            for r, s in (
                (registers, use.smem_bytes.value(config)),
                (compiled.registers_per_thread, compiled.smem_bytes),
            )
        )
        # A block less than promised may hide no latency; two mean that the choice rests on an error.
        assert found >= 1, what
        assert predicted <= found + max(1, found // 4), what
        assert abs(registers - compiled.registers_per_thread) <= max(40, 0.35 * compiled.registers_per_thread), what
