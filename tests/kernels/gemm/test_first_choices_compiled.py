"""What `matmul` would run first on GPUs that are not there: compiled, it takes what the model says."""

from __future__ import annotations

import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu, occupancy
from constrint.kernels.gemm.first_choice import choose, gemm_spec
from constrint.kernels.gemm.product import Product
from tests.support.compiled import Compiler
from tests.support.gemm import POINTER, gemm, smem_of, use_of
from tests.support.needs import needs_triton

GPUS = ("a100-sxm4-80gb", "h200", "b200", "mi210", "mi300x", "mi355x")
SHAPES = ((4096, 4096, 4096), (16384, 3072, 768), (16, 4096, 4096))


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("dtype", POINTER.dtypes)
@pytest.mark.parametrize("name", GPUS)
def test_first_choices_compile_to_what_is_predicted(compiler: Compiler, name: str, dtype: str) -> None:
    gpu = load_gpu(name)
    for sizes in SHAPES:
        workload = gemm(*sizes, dtype)
        try:
            POINTER.check_workload(gpu, workload)
        except UnsupportedError as error:
            pytest.skip(str(error))
        choice = choose(gpu, Product.of(workload))
        spec, config = gemm_spec(choice.kernel), choice.config
        compiled = compiler.compile(spec, gpu, workload, config)
        use = use_of(spec, gpu, workload, spec.problem(gpu, workload))
        registers, smem = use.registers_per_thread.value(config), smem_of(use, config)
        what = f"{choice.kernel} {sizes} {dict(config)}: {registers} registers predicted, {compiled}"
        assert compiled.instruction, what
        assert compiled.smem_bytes <= smem <= use.smem_bytes.value(config), what
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
