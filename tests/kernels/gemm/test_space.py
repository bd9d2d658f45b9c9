"""The GEMM's parameter spaces on every modelled GPU: solved exactly, checked by evaluation, ranked correctly."""

from __future__ import annotations

import numpy as np
import pytest

from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import list_gpus, load_gpu
from constrint.kernels.gemm.pointer.cost import alternates
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import ELEMENT_BYTES, unit
from constrint.kernels.registry import list_kernels, load_kernel, load_spec
from constrint.model import Constraint, Domain, Problem, Var
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.select import Workload, rank
from constrint.select.rank import predict, rank_requests, requests
from constrint.solve import brute_force, enumerate_space
from tests.support.gemm import (
    CUDA,
    DESCRIPTOR,
    KERNELS,
    POINTER,
    able_kernels,
    gemm,
    gemm_operation,
    use_of,
)
from tests.support.ranking import check_ranking

BY_NAME = {spec.full_name: spec for spec in KERNELS}


def test_registry_knows_the_kernels_and_the_nearest_name() -> None:
    assert "gemm" in list_kernels()
    others = ("library", "skinny", "fp32", "prepared", "cdna")
    known = [spec for spec in load_kernel("GEMM").implementations if spec.name not in others]
    assert known == list(KERNELS)
    assert load_kernel("gemm.Pointer").implementations == (POINTER,)
    assert load_spec("gemm.descriptor") is DESCRIPTOR
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'gem'. Nearest: gem"):
        load_kernel("gem")
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'gemm.point'. Nearest: gemm.pointer"):
        load_kernel("gemm.point")


@pytest.mark.parametrize("name", list_gpus())
def test_every_candidate_satisfies_every_rule_and_fits_the_gpu(name: str) -> None:
    gpu = load_gpu(name)
    ranking = rank(gemm_operation(), gpu, top=12)
    assert 0 < ranking.num_valid < ranking.num_product
    check_ranking(gpu, ranking, BY_NAME)


@pytest.mark.parametrize(
    ("spec", "name", "n"),
    [(POINTER, name, 77) for name in ("h200", "mi300x", "7900xtx", "b200", "t4")]
    + [(DESCRIPTOR, name, 77) for name in ("h200", "b200")],
    ids=lambda value: value.full_name if isinstance(value, GemmSpec) else str(value),
)
def test_space_is_the_one_that_brute_force_finds(spec: GemmSpec, name: str, n: int) -> None:
    gpu = load_gpu(name)
    workload = gemm(300, n, 1000, "fp16")
    problem = spec.problem(gpu, workload)
    small = {
        "group_m": [1, 4],
        "split_k": [1, 2],
        "tile_m": [16, 64, 256],
        "tile_n": [16, 96, 128],
        "tile_k": [16, 128],
        "waves_per_eu": [0, 2],
        "num_stages": [1, 3],
        "num_warps": [1, 4, 16],
    }
    for parameter, values in small.items():
        if parameter in problem.variables:
            offered = [value for value in values if value in problem.variables[parameter]]
            problem = problem.with_domain(parameter, Domain.from_values(offered))
    space = enumerate_space(problem)
    expected = {tuple(row.items()) for row in brute_force(problem)}
    assert space.size == len(expected)
    assert {tuple(row.items()) for row in space} == expected


@pytest.mark.parametrize("spec", [DESCRIPTOR, POINTER], ids=lambda spec: spec.full_name)
def test_no_tile_is_wider_than_the_power_of_two_that_holds_the_size(spec: GemmSpec) -> None:
    for n, widest in ((16, 16), (17, 32), (90, 128), (100, 128), (130, 256), (200, 256), (257, 384), (5000, 384)):
        space = enumerate_space(spec.problem(load_gpu("h200"), gemm(4096, n, 4096)))
        columns, _ = space.project(["tile_n"])
        # Only tiles in two parts are wider than 256.
        assert columns["tile_n"].max() == (widest if spec is DESCRIPTOR else min(widest, 256))


RANKED = [("h200", gemm(512, 512, 512)), ("mi300x", gemm(16, 4096, 4096)), ("h200", gemm(8192, 8192, 1024))]


def priced_in_full(spec: GemmSpec, name: str, workload: Workload) -> list[float]:
    """Predicted time of every configuration with its best order of blocks, in ascending order."""
    gpu = load_gpu(name)
    problem = spec.problem(gpu, workload)
    names = [n for n in problem.variables if n not in spec.free_params]
    columns, _ = enumerate_space(problem).project(names)
    seconds = predict(spec, gpu, workload, columns).seconds
    core = [n for n in names if n not in spec.order_params]
    best: dict[tuple[int, ...], float] = {}
    for key, value in zip(zip(*(columns[n].tolist() for n in core), strict=True), seconds.tolist(), strict=True):
        best[key] = min(value, best.get(key, np.inf))
    return sorted(best.values())


@pytest.mark.parametrize(("name", "workload"), RANKED)
def test_ranking_equals_pricing_every_valid_config(name: str, workload: Workload) -> None:
    """The pruned search for the best rows must find what pricing the whole spaces finds."""
    able = able_kernels(load_gpu(name), workload)
    assert len(able) == (len(KERNELS) if name == "h200" else 1)
    every = sorted(seconds for spec in able for seconds in priced_in_full(spec, name, workload))
    ranking = rank(gemm_operation(), load_gpu(name), workload, top=25)
    found = sorted(c.cost.seconds for c in ranking.candidates)
    np.testing.assert_allclose(found, every[:25], rtol=6e-4)


def test_variants_add_up_to_the_valid_configs() -> None:
    for name, num_kernels in (("mi300x", 1), ("h200", 3)):
        ranking = rank(gemm_operation(), load_gpu(name), gemm(64, 64, 64), top=100_000)
        assert sum(c.num_variants for c in ranking.candidates) == ranking.num_valid
        for space in ranking.spaces:
            own = [c.num_variants for c in ranking.candidates if c.kernel == space.kernel]
            assert sum(own) == space.num_valid
        assert sum(space.num_valid > 0 for space in ranking.spaces) == num_kernels


def test_more_work_never_takes_less_time_and_never_beats_the_roofline() -> None:
    for name in ("h200", "mi300x", "rtx-4090"):
        gpu = load_gpu(name)
        times = [rank(gemm_operation(), gpu, gemm(4096, 4096, k), top=1) for k in (256, 1024, 4096, 16384)]
        seconds = [r.candidates[0].cost.seconds for r in times]
        assert seconds == sorted(seconds)
        assert all(r.candidates[0].cost.seconds >= r.roofline_s for r in times)


def test_skinny_products_are_bound_by_memory_and_square_ones_by_arithmetic() -> None:
    for kernel in (POINTER, DESCRIPTOR):
        square, skinny = (
            rank(kernel, load_gpu("h200"), gemm(*sizes), top=1).candidates[0].cost.bound_by
            for sizes in ((8192, 8192, 8192), (16, 16384, 16384))
        )
        assert square in ("matrix units", "L2 port")
        assert skinny in ("DRAM", "L2 port")


def test_matrix_instruction_depth_is_respected() -> None:
    for name, dtype, least in (("h200", "int8", 32), ("h200", "fp8", 32), ("mi300x", "fp8", 16), ("h200", "bf16", 16)):
        gpu, workload = load_gpu(name), gemm(4096, 4096, 4096, dtype)
        for spec in able_kernels(gpu, workload):
            columns, _ = enumerate_space(spec.problem(gpu, workload)).project(["tile_k"])
            assert columns["tile_k"].min() == (128 // ELEMENT_BYTES[dtype] if spec is CUDA else least)


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
        rank(gemm_operation(), load_gpu("mi300x"), workload)


def test_a_dtype_the_gpu_lacks_names_those_it_has() -> None:
    with pytest.raises(UnsupportedError, match=r"V100-SXM2 has no matrix instruction for bf16.*fp16"):
        rank(gemm_operation(), load_gpu("v100"), gemm(64, 64, 64))


def test_infeasible_request_carries_a_minimal_conflict_with_reasons() -> None:
    gpu, workload = load_gpu("mi300x"), gemm(4096, 4096, 4096)
    able, refusals = requests(gemm_operation(), gpu, workload)
    (request,) = able
    assert request.spec is POINTER
    for name in ("tile_m", "tile_n", "tile_k"):
        request.problem.add(Var(name) == 256, because="asked for")
    with pytest.raises(InfeasibleError, match="no config of 'gemm' fits MI300X for m=4096") as caught:
        rank_requests(gemm_operation(), able, refusals)
    conflict = caught.value.conflict
    assert conflict is not None
    assert conflict.minimal
    for member in conflict.members:
        if member.constraint is not None:
            others = [m.constraint for m in conflict.members if m is not member]
            assert enumerate_space(only(request.problem, others)).size


def only(problem: Problem, constraints: list[Constraint | None]) -> Problem:
    kept = {id(constraint) for constraint in constraints if constraint is not None}
    return problem.without(*(c for c in problem.constraints if id(c) not in kept))


def test_an_infeasible_request_says_of_every_kernel_why() -> None:
    gpu, workload = load_gpu("h200"), gemm(4096, 4096, 4096)
    able, refusals = requests(gemm_operation(), gpu, workload)
    for request in able:
        request.problem.add(Var("tile_m") == 16, because="asked for")
        request.problem.add(Var("tile_n") == 256, because="asked for")
        request.problem.add(Var("num_stages") == 6, because="asked for")
        request.problem.add(Var("tile_k") == 256, because="asked for")
    with pytest.raises(InfeasibleError) as caught:
        rank_requests(gemm_operation(), able, refusals)
    lines = str(caught.value).splitlines()
    assert {line.split(":")[0] for line in lines if line.startswith("gemm.")} == set(BY_NAME)


def test_sub_volta_gpus_are_modelled_without_tensor_cores() -> None:
    gpu = load_gpu("t4")
    assert unit(gpu, "fp16").kind == "fma"
    ranking = rank(gemm_operation(), gpu, top=1)
    assert any("no tensor-core code" in line for line in ranking.assumptions)
    # The roofline is the device's, whatever units the kernel uses; what it uses is what binds it.
    assert ranking.roofline_s == pytest.approx(2 * 4096**3 / 65e12)
    best = ranking.candidates[0].cost
    assert best.seconds > 2 * 4096**3 / 8.2e12
    assert best.bound_by == "vector units"
    assert best.parts_s["matrix units"] == 0 < best.parts_s["vector units"]


OPTIONS = [{"bias": 1}, {"source": 1}, {"wide_output": 1}]


def rows_of(problem: Problem, names: list[str]) -> set[tuple[int, ...]]:
    columns, _ = enumerate_space(problem).project(names)
    return {*zip(*(columns[name].tolist() for name in names), strict=True)}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
@pytest.mark.parametrize("name", ["h200", "mi300x", "a100"])
def test_what_the_end_of_a_product_adds_leaves_no_more_configs_that_are_likely_to_fit(
    name: str, options: dict[str, int]
) -> None:
    """Every configuration for the longer end is one for the plain product; what the end takes is estimated."""
    gpu = load_gpu(name)
    for spec in able_kernels(gpu, gemm(4096, 4096, 4096, **options)):
        core = [p.name for p in spec.tile_params(gpu, "bf16") if p.name not in (*spec.order_params, *spec.free_params)]
        plain, longer = (
            spec.problem(gpu, workload) for workload in (gemm(4096, 4096, 4096), gemm(4096, 4096, 4096, **options))
        )
        assert rows_of(longer, core) <= rows_of(plain, core)
        likely, likely_longer = rows_of(plain.strict(), core), rows_of(longer.strict(), core)
        # What is added passes through the pipeline's memory, which may be enough everywhere.
        assert likely_longer <= likely


@pytest.mark.parametrize("name", ["h200", "a100"])
def test_fp32_in_three_passes_leaves_fewer_configs_that_are_likely_to_fit(name: str) -> None:
    gpu = load_gpu(name)
    for spec in able_kernels(gpu, gemm(4096, 4096, 4096, "tf32", three_pass=1)):
        plain, longer = (spec.problem(gpu, gemm(4096, 4096, 4096, "tf32", three_pass=passes)) for passes in (0, 1))
        assert enumerate_space(longer).size <= enumerate_space(plain).size
        assert 0 < enumerate_space(longer.strict()).size < enumerate_space(plain.strict()).size, spec.full_name


def test_every_rule_says_what_it_is_worth_and_estimates_leave_nothing_out() -> None:
    for name in ("h200", "b200", "mi300x", "7900xtx"):
        gpu, workload = load_gpu(name), gemm(4096, 4096, 4096, source=1)
        for spec in able_kernels(gpu, workload):
            problem = spec.problem(gpu, workload)
            assert {rule.kind for rule in problem.constraints} == {CERTAIN, REDUNDANT}
            assert all(rule.because for rule in (*problem.constraints, *problem.estimates))
            if spec is CUDA:
                # Its registers and its shared memory are its own to count.
                assert problem.estimates == ()
                continue
            assert {rule.kind for rule in problem.estimates} == {ESTIMATED}
            assert {"spills", "smem_stated", "sums_beside"} <= {rule.name for rule in problem.estimates}
            assert enumerate_space(problem.strict()).size < enumerate_space(problem).size


def test_a_bias_takes_no_more_than_its_row_where_the_pipeline_is_smaller() -> None:
    gpu = load_gpu("h200")
    small = {"tile_m": 16, "tile_n": 16, "tile_k": 16, "num_stages": 2}
    for spec in KERNELS:
        for tiles, added in (({"tile_n": 128}, 0), (small, 4 * 16 + 1024)):
            smem = []
            for workload in (gemm(4096, 4096, 4096), gemm(4096, 4096, 4096, bias=1)):
                problem = spec.problem(gpu, workload)
                config = {name: next(iter(domain)) for name, domain in problem.variables.items()} | tiles
                smem.append(use_of(spec, gpu, workload, problem).smem_bytes.value(config))
            assert smem[1] == (smem[0] if spec is CUDA else max(smem[0], added))


@pytest.mark.parametrize(
    ("name", "workload", "config"),
    [
        # More waves than instructions, deep slices, odd splits, five stages.
        ("mi355x", gemm(16, 4096, 8192), {"tile_m": 16, "tile_n": 16, "tile_k": 512, "num_warps": 4, "num_stages": 2}),
        ("mi355x", gemm(16, 4096, 8192), {"tile_m": 16, "tile_n": 64, "tile_k": 128, "split_k": 7, "num_stages": 5}),
        ("mi300x", gemm(16, 4096, 8192, "fp8"), {"tile_m": 64, "tile_n": 32, "tile_k": 256, "split_k": 14}),
        ("mi300x", gemm(16384, 4096, 4096), {"tile_m": 128, "tile_n": 128, "tile_k": 64, "group_m": 64}),
        ("a100", gemm(16, 4096, 4096), {"tile_m": 16, "tile_n": 16, "tile_k": 128, "num_warps": 4}),
        # Fewer rows than the instruction has.
        ("mi300x", gemm(8, 4096, 4096, "fp8"), {"tile_m": 8, "tile_n": 64, "tile_k": 128, "num_warps": 4}),
        ("mi355x", gemm(16, 4096, 4096), {"tile_m": 4, "tile_n": 16, "tile_k": 256, "num_warps": 1}),
    ],
)
def test_what_experts_found_best_is_in_the_space(name: str, workload: Workload, config: dict[str, int]) -> None:
    gpu = load_gpu(name)
    problem = POINTER.problem(gpu, workload)
    for parameter, value in config.items():
        problem = problem.with_domain(parameter, Domain.from_values([value]))
    assert enumerate_space(problem).size > 0


@pytest.mark.parametrize("name", ["mi300x", "mi355x"])
def test_tiles_of_fewer_rows_than_the_instruction_are_for_few_rows_and_multiply_as_long(name: str) -> None:
    gpu, workload = load_gpu(name), gemm(4, 4096, 4096)
    (rule,) = (
        each for each in POINTER.problem(gpu, gemm(17, 4096, 4096)).constraints if each.name == "rows_of_instruction"
    )
    assert rule.holds({"tile_m": 16})
    assert not rule.holds({"tile_m": 8}), "three tiles of 8 rows multiply 48"
    assert not any(each.name == "rows_of_instruction" for each in POINTER.problem(gpu, workload).constraints)
    usual = {"tile_n": 64, "tile_k": 128, "num_warps": 4, "num_stages": 2, "split_k": 1, "persistent": 0, "group_m": 8}
    config = usual | {"matrix_instr_nonkdim": 16, "waves_per_eu": 0, "kpack": 1, "xcd_chunk": 0}
    columns = {key: np.full(3, value) for key, value in config.items()} | {"tile_m": np.array([4, 8, 16])}
    each = predict(POINTER, gpu, workload, columns).parts_s["matrix units"] * np.ones(3)
    # But for the power of moving fewer rows of A: the rows alone would make it a quarter and a half.
    assert list(each[:2]) == pytest.approx([each[2]] * 2, rel=0.15)


def test_waves_beyond_one_for_each_instruction_add_no_rate() -> None:
    gpu, workload = load_gpu("mi300x"), gemm(4096, 4096, 4096)
    tile = {"tile_m": 32, "tile_n": 32, "tile_k": 64, "num_stages": 2, "split_k": 1, "persistent": 0, "group_m": 8}
    knobs = {"matrix_instr_nonkdim": 16, "waves_per_eu": 0, "kpack": 1, "xcd_chunk": 0}
    warps = np.array([4, 8, 16])
    columns = {name: np.full(3, value) for name, value in (tile | knobs).items()} | {"num_warps": warps}
    each = predict(POINTER, gpu, workload, columns).parts_s["matrix units"] * np.ones(3)
    assert each[0] <= each[1] <= each[2]


#: Tiles, warps and stages that Triton 3.9 compiled for the MI355X, and whether the loop has a conditional barrier.
COMPILED_TURNS = (
    *(((256, 256, 32, 8, 3), True), ((128, 256, 64, 8, 3), True), ((128, 128, 16, 8, 3), True)),
    *(((256, 256, 128, 8, 2), True), ((256, 256, 64, 8, 2), False), ((256, 256, 32, 8, 4), False)),
    *(((64, 256, 64, 8, 3), False), ((256, 256, 32, 4, 3), False), ((128, 128, 128, 8, 3), False)),
)


def test_waves_take_turns_where_the_compiled_loop_has_a_conditional_barrier() -> None:
    configs, turns = zip(*COMPILED_TURNS, strict=True)
    names = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages")
    columns = dict(zip(names, np.array(configs).T, strict=True))
    assert alternates(load_gpu("mi355x"), columns).tolist() == list(turns)
    assert not np.any(alternates(load_gpu("mi210"), columns))


@pytest.mark.parametrize("gpu", ["h200", "h100", "b200", "a100", "mi300x"])
def test_tiles_of_64_rows_for_fewer_rows_are_in_the_space_as_experts_have_them(gpu: str) -> None:
    spec = load_spec("gemm.pointer")
    (rule,) = (
        each
        for each in spec.problem(load_gpu(gpu), Workload("gemm", {"m": 8, "n": 4096, "k": 4096}, "bf16")).constraints
        if each.name == "tile_m_in_size"
    )
    assert rule.holds({"tile_m": 64})
    assert not rule.holds({"tile_m": 128}), "no expert has more"
