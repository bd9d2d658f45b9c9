"""Shared memory (LDS) of products in every layout: what is stated is what Triton takes, and the first choice fits."""

from __future__ import annotations

from itertools import product as combinations

import pytest

from benchmarks.attacks.lds import attack
from constrint.choose import decide
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.registry import load_kernel
from constrint.model import Var
from constrint.select import rank
from constrint.tune.compile import build_triton
from tests.support.gemm import DESCRIPTOR, POINTER, broken_rules, gemm, product, use_of
from tests.support.needs import needs_triton

LAYOUTS = [
    {name: 1 for name, value in zip(("transpose_a", "transpose_b"), values, strict=True) if value}
    for values in combinations((0, 1), repeat=2)
]
CDNA4 = {"group_m": 1, "waves_per_eu": 0, "kpack": 1, "xcd_chunk": 0, "split_k": 1, "persistent": 0}

#: Bytes that Triton 3.9 took on gfx950: type, transposed A, transposed B, tile, warps, stages, instruction, bytes.
#: The first one was the first choice for 64 x 8192 x 8192 although there are 163,840 bytes.
TAKEN = [
    ("bf16", 0, 1, (64, 256, 128), 16, 2, 16, 168_896),
    ("bf16", 1, 1, (16, 256, 32), 8, 1, 16, 16_384),
    ("fp8", 1, 0, (16, 64, 256), 4, 4, 16, 82_928),
    ("fp8", 1, 0, (16, 64, 256), 8, 4, 16, 83_168),
    ("int8", 1, 1, (16, 32, 64), 4, 3, 16, 9_408),
    ("fp8", 1, 1, (16, 256, 256), 16, 2, 16, 143_440),
]


@pytest.mark.parametrize(("dtype", "turned_a", "turned_b", "tile", "warps", "stages", "rows", "taken"), TAKEN)
def test_padding_of_operands_in_any_layout_is_stated_to_the_byte(
    dtype: str, turned_a: int, turned_b: int, tile: tuple[int, ...], warps: int, stages: int, rows: int, taken: int
) -> None:
    gpu, workload = load_gpu("mi355x"), gemm(4096, 4096, 4096, dtype, transpose_a=turned_a, transpose_b=turned_b)
    config = dict(zip(("tile_m", "tile_n", "tile_k"), tile, strict=True)) | CDNA4
    config |= {"num_warps": warps, "num_stages": stages, "matrix_instr_nonkdim": rows}
    problem = POINTER.problem(gpu, workload)
    use = use_of(POINTER, gpu, workload, problem)
    assert use.smem_stated.value(config) == use.smem_needed.value(config) >= taken
    assert stages == 1 or use.smem_stated.value(config) == taken
    assert ("smem" in broken_rules(problem, config)) is (taken > gpu.sm.max_smem_bytes_per_block)


def test_fp8_that_mma_sync_widens_takes_twice_the_buffer_where_a_runs_across_k() -> None:
    """Found by the attack on sm_100 with seed 33: 139,264 bytes were taken where 135,168 were stated."""
    gpu, workload = load_gpu("b200"), gemm(48, 784, 1200, "fp8", transpose_a=1, transpose_b=1)
    config = {"tile_m": 16, "tile_n": 128, "tile_k": 256, "num_warps": 8, "num_stages": 5, "split_k": 1}
    problem = POINTER.problem(gpu, workload)
    assert use_of(POINTER, gpu, workload, problem).smem_stated.value(config | {"persistent": 0}) == 139_264


@pytest.mark.parametrize("options", [{}, {"bias": 1}, {"source": 1}, {"wide_output": 1}], ids=str)
@pytest.mark.parametrize(("name", "dtype"), [("mi355x", "bf16"), ("mi355x", "fp8"), ("b200", "int8"), ("b200", "bf16")])
def test_the_first_choice_is_never_stated_over_the_limit(name: str, dtype: str, options: dict[str, int]) -> None:
    gpu = load_gpu(name)
    limit = gpu.sm.max_smem_bytes_per_block
    for layout, sizes in zip(LAYOUTS, [(64, 8192, 8192), (4096, 4096, 4096)] * 2, strict=True):
        workload = gemm(*sizes, dtype, **layout, **options)
        first = rank(load_kernel("gemm"), gpu, workload, top=1).candidates[0]
        assert first.resources is None or first.resources.smem_bytes <= limit, workload
        program = decide(request_of(gpu, product(*sizes, dtype, **layout, **options))).program
        spec, config = (
            {each.full_name: each for each in (POINTER, DESCRIPTOR)}.get(program.name),
            program.steps[-1].config,
        )
        if spec is not None:
            use = spec.use(gpu, workload, {parameter: Var(parameter) for parameter in config})
            assert use.smem_stated.value(config) <= limit, workload


@needs_triton
def test_what_certain_rules_allow_on_gfx950_takes_what_is_stated_and_fits() -> None:
    counts, finds = attack("gfx950", 4, 3)
    assert finds == []
    assert counts["compiled"] == 4
    assert counts["exact"] >= 3


@needs_triton
@pytest.mark.parametrize(("name", "dtype", "rows"), [("mi300x", "bf16", 4), ("mi355x", "fp8", 8)])
def test_triton_fills_a_tile_of_few_rows_up_to_a_whole_instruction(name: str, dtype: str, rows: int) -> None:
    gpu, workload = load_gpu(name), gemm(rows, 4096, 4096, dtype, transpose_b=1)
    config = {"tile_m": rows, "tile_n": 64, "tile_k": 128, "num_warps": 4, "num_stages": 2} | CDNA4
    config |= {"matrix_instr_nonkdim": 16}
    problem = POINTER.problem(gpu, workload)
    config = {parameter: config[parameter] for parameter in problem.names}
    assert not broken_rules(problem, config)
    inputs = POINTER.inputs(gpu, workload)
    (launch,) = POINTER.launches(gpu, workload, config, inputs, POINTER.outputs(gpu, workload, inputs))
    assert isinstance(launch, TritonLaunch)
    kernel = build_triton(gpu, launch.source())
    assert kernel.taken.smem_bytes == use_of(POINTER, gpu, workload, problem).smem_stated.value(config)
    # A wave has 16 of the 64 columns; no vector instruction multiplies.
    assert "v_mfma_f32_16x16x" in kernel.asm["amdgcn"]
    assert "v_dot" not in kernel.asm["amdgcn"]
