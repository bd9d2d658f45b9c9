"""The GEMM's parameter space on every modelled GPU: solved exactly, checked by evaluation, ranked correctly."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import list_gpus, load_gpu, occupancy
from constrint.kernels.gemm import resources
from constrint.kernels.gemm.spec import SPEC
from constrint.kernels.registry import list_kernels, load_kernel
from constrint.model import Domain
from constrint.select import Workload, rank
from constrint.solve import brute_force, enumerate_space


def gemm(m: int, n: int, k: int, dtype: str = "bf16") -> Workload:
    return Workload("gemm", {"m": m, "n": n, "k": k}, dtype)


def test_registry_knows_the_kernel_and_the_nearest_name() -> None:
    assert "gemm" in list_kernels()
    assert load_kernel("GEMM") is SPEC
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'gem'. Nearest: gemm"):
        load_kernel("gem")


@pytest.mark.parametrize("name", list_gpus())
def test_every_candidate_satisfies_every_rule_and_fits_the_gpu(name: str) -> None:
    gpu = load_gpu(name)
    ranking = rank(SPEC, gpu, top=12)
    assert 0 < ranking.num_valid < ranking.num_product
    seconds = [c.cost.seconds for c in ranking.candidates]
    # Times within half a per mille are ties, which the order of preferred values settles.
    assert all(later >= 0.9985 * earlier for earlier, later in pairwise(seconds))
    for candidate in ranking.candidates:
        config = dict(candidate.config)
        assert list(config) == list(ranking.problem.variables)
        assert all(config[n] in d for n, d in ranking.problem.variables.items())
        broken = [c.name for c in ranking.problem.constraints if not c.holds(config)]
        assert not broken
        use = candidate.resources
        fits = occupancy(
            gpu,
            threads_per_block=use.threads,
            registers_per_thread=use.registers_per_thread,
            smem_bytes_per_block=use.smem_bytes,
        )
        assert fits.blocks_per_sm == use.blocks_per_sm >= 1
        assert use.smem_bytes <= gpu.sm.max_smem_bytes_per_block
        assert 0 < candidate.cost.roofline_share <= 1
        assert candidate.num_variants >= 1


@pytest.mark.parametrize("name", ["h200", "mi300x", "7900xtx", "b200", "t4"])
def test_space_is_the_one_that_brute_force_finds(name: str) -> None:
    gpu = load_gpu(name)
    workload = gemm(300, 77, 1000, "fp16")
    problem = SPEC.problem(gpu, workload)
    small = {
        "group_m": [1, 4],
        "split_k": [1, 2],
        "tile_m": [16, 64, 256],
        "tile_n": [16, 96, 128],
        "tile_k": [16, 128],
    }
    for parameter, values in (small | {"waves_per_eu": [0, 2], "num_stages": [1, 3], "num_warps": [1, 4, 16]}).items():
        if parameter in problem.variables:
            offered = [value for value in values if value in problem.variables[parameter]]
            problem = problem.with_domain(parameter, Domain.from_values(offered))
    space = enumerate_space(problem)
    expected = {tuple(row.items()) for row in brute_force(problem)}
    assert space.size == len(expected)
    assert {tuple(row.items()) for row in space} == expected


def test_no_tile_is_wider_than_the_power_of_two_that_holds_the_size() -> None:
    for n, widest in ((16, 16), (17, 32), (90, 128), (100, 128), (130, 256), (200, 256), (257, 384), (5000, 384)):
        columns, _ = enumerate_space(SPEC.problem(load_gpu("h200"), gemm(4096, n, 4096))).project(["tile_n"])
        assert columns["tile_n"].max() == widest


@pytest.mark.parametrize(("name", "workload"), [("h200", gemm(512, 512, 512)), ("mi300x", gemm(16, 4096, 4096))])
def test_ranking_equals_pricing_every_valid_config(name: str, workload: Workload) -> None:
    """The pruned search for the best rows must find what pricing the whole space finds."""
    from constrint.select.rank import predict

    gpu = load_gpu(name)
    problem = SPEC.problem(gpu, workload)
    names = [n for n in problem.variables if n not in SPEC.free_params]
    columns, _ = enumerate_space(problem).project(names)
    seconds = predict(SPEC, gpu, workload, problem, columns).seconds
    core = [n for n in names if n not in SPEC.order_params]
    best: dict[tuple[int, ...], float] = {}
    for key, value in zip(zip(*(columns[n].tolist() for n in core), strict=True), seconds.tolist(), strict=True):
        best[key] = min(value, best.get(key, np.inf))
    ranking = rank(SPEC, gpu, workload, top=25)
    np.testing.assert_allclose(
        sorted(c.cost.seconds for c in ranking.candidates), sorted(best.values())[:25], rtol=6e-4
    )


def test_variants_add_up_to_the_valid_configs() -> None:
    ranking = rank(SPEC, load_gpu("mi300x"), gemm(64, 64, 64), top=100_000)
    assert sum(c.num_variants for c in ranking.candidates) == ranking.num_valid


def test_more_work_never_takes_less_time_and_never_beats_the_roofline() -> None:
    for name in ("h200", "mi300x", "rtx-4090"):
        gpu = load_gpu(name)
        times = [rank(SPEC, gpu, gemm(4096, 4096, k), top=1) for k in (256, 1024, 4096, 16384)]
        seconds = [r.candidates[0].cost.seconds for r in times]
        assert seconds == sorted(seconds)
        assert all(r.candidates[0].cost.seconds >= r.roofline_s for r in times)


def test_skinny_products_are_bound_by_memory_and_square_ones_by_arithmetic() -> None:
    gpu = load_gpu("h200")
    assert rank(SPEC, gpu, gemm(8192, 8192, 8192), top=1).candidates[0].cost.bound_by in ("matrix units", "L2 port")
    assert rank(SPEC, gpu, gemm(16, 16384, 16384), top=1).candidates[0].cost.bound_by in ("DRAM", "L2 port")


def test_matrix_instruction_depth_is_respected() -> None:
    for name, dtype, least in (("h200", "int8", 32), ("h200", "fp8", 32), ("mi300x", "fp8", 16), ("h200", "bf16", 16)):
        space = enumerate_space(SPEC.problem(load_gpu(name), gemm(1024, 1024, 1024, dtype)))
        columns, _ = space.project(["tile_k"])
        assert columns["tile_k"].min() == least


@pytest.mark.parametrize(
    ("workload", "error", "text"),
    [
        (gemm(0, 64, 64), UsageError, "m must be between 1 and"),
        (gemm(-3, 64, 64), UsageError, "got -3"),
        (gemm(10**12, 64, 64), UsageError, "got 1000000000000"),
        (gemm(2**31 - 1, 4096, 4096), InfeasibleError, "does not fit MI300X"),
        (gemm(64, 64, 64, "fp4"), UnknownNameError, "unknown dtype 'fp4'"),
    ],
)
def test_bad_workloads_are_refused_with_the_reason(workload: Workload, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        rank(SPEC, load_gpu("mi300x"), workload)


def test_a_dtype_the_gpu_lacks_names_those_it_has() -> None:
    with pytest.raises(UnsupportedError, match=r"V100-SXM2 has no matrix instruction for bf16.*fp16"):
        rank(SPEC, load_gpu("v100"), gemm(64, 64, 64))


def test_infeasible_request_carries_a_minimal_conflict_with_reasons() -> None:
    from constrint.model import Var

    gpu, workload = load_gpu("mi300x"), gemm(4096, 4096, 4096)
    problem = SPEC.problem(gpu, workload)
    problem.add(Var("tile_m") == 256, because="asked for")
    problem.add(Var("tile_n") == 256, because="asked for")
    problem.add(Var("tile_k") == 256, because="asked for")
    with pytest.raises(InfeasibleError, match="no config of 'gemm' fits MI300X for m=4096") as caught:
        rank(SPEC, gpu, workload, problem=problem)
    conflict = caught.value.conflict
    assert conflict is not None
    assert conflict.minimal
    for member in conflict.members:
        if member.constraint is not None:
            assert enumerate_space(_only(problem, [m.constraint for m in conflict.members if m is not member])).size


def _only(problem, constraints):  # type: ignore[no-untyped-def]
    kept = {id(c) for c in constraints if c is not None}
    return problem.without(*(c for c in problem.constraints if id(c) not in kept))


def test_sub_volta_gpus_are_modelled_without_tensor_cores() -> None:
    gpu = load_gpu("t4")
    assert resources.unit(gpu, "fp16").kind == "fma"
    ranking = rank(SPEC, gpu, top=1)
    assert any("no tensor-core code" in line for line in ranking.assumptions)
    assert ranking.roofline_s > 2 * 4096**3 / 9e12
