"""What a report says, against what the library says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_facts

from constrint.answers.facts import CandidateFacts
from constrint.answers.question import Question, StatedProblem
from constrint.hwmodels import load_gpu, occupancy
from constrint.hwmodels.bank_accesses import check_tile, tile_access
from constrint.kernels.registry import load_kernel
from constrint.model import Var
from constrint.report import Means, Report, gather
from constrint.report.banks import bank_facts
from constrint.report.heat import telling_axes
from constrint.report.measured import in_order, measured_facts, of_config, published
from constrint.select import Workload
from constrint.select.candidate import CompiledKernel
from constrint.select.compiled import CompileJob
from constrint.select.layouts import parse_layout
from constrint.select.rank import rank, requests
from constrint.solve import count, pruning
from tests.support.reports import measured_record as record


def question(gpu_name: str, kernel: str, **sizes: int) -> Question:
    """A workload of a kernel on a GPU; sizes that are not named have their defaults."""
    gpu, operation = load_gpu(gpu_name), load_kernel(kernel)
    usual = operation.default_workload(gpu)
    workload = Workload(usual.operation, {**usual.sizes, **sizes}, usual.dtype)
    able, refusals = requests(operation, gpu, workload)
    problems = tuple(StatedProblem(str(workload), request.problem, (), request) for request in able)
    return Question(str(workload), problems, operation, refusals, arguments=("--gpu", gpu_name), gpu=gpu)


def candidate(config: dict[str, int]) -> CandidateFacts:
    return replace_facts(gathered("h200", "gemm.descriptor").gpus[0].candidates[0], config=config)


@cache
def gathered(gpu_name: str, kernel: str) -> Report:
    return gather([question(gpu_name, kernel)], Means(top=5), "constrint report")


def test_candidates_are_those_of_the_ranking() -> None:
    facts = gathered("mi300x", "gemm").gpus[0]
    gpu, operation = load_gpu("mi300x"), load_kernel("gemm")
    ranked = rank(operation, gpu, operation.default_workload(gpu), top=5)
    assert [dict(c.config) for c in facts.candidates] == [dict(c.config) for c in ranked.candidates]
    assert [c.modelled.seconds for c in facts.candidates] == [c.cost.seconds for c in ranked.candidates]
    assert [c.modelled.parts_s for c in facts.candidates] == [dict(c.cost.parts_s) for c in ranked.candidates]
    assert (facts.num_product, facts.num_valid) == (ranked.num_product, ranked.num_valid)


def test_heat_map_has_the_best_time_of_every_cell() -> None:
    facts = gathered("h200", "gemm.descriptor").gpus[0]
    heat = facts.kernels[0].heat
    assert heat is not None
    assert (heat.y, heat.x) == ("tile_m", "tile_n")
    timed = [cell for cell in heat.cells if cell.seconds is not None]
    assert min(cell.seconds or 1.0 for cell in timed) == pytest.approx(facts.candidates[0].modelled.seconds)
    assert sum(cell.num_valid for cell in heat.cells) == facts.num_valid
    for cell in timed:
        assert (cell.config["tile_m"], cell.config["tile_n"]) == (cell.y, cell.x)


def test_excluded_cells_name_a_rule_with_its_numbers_and_its_reason() -> None:
    heat = gathered("h200", "gemm.descriptor").gpus[0].kernels[0].heat
    assert heat is not None
    excluded = [cell for cell in heat.cells if cell.seconds is None]
    assert excluded
    for cell in excluded:
        assert cell.num_valid == 0
        assert cell.broken[0].seen.endswith("is false")
        assert all(broken.because and f"tile_m == {cell.y}" != broken.rule for broken in cell.broken)


@pytest.mark.parametrize("kernel", ["lstm.triton", "gemm.descriptor"])
def test_axes_are_the_pair_that_tells_most_or_tile_sizes_that_tell_nearly_as_much(kernel: str) -> None:
    asked = question("h200", kernel).requests[0]
    axes = telling_axes(asked)
    assert axes is not None
    pairs = [telling_axes(asked, (one, other)) for one in asked.problem.variables for other in asked.problem.variables]
    most = max(pair.share for pair in pairs if pair is not None and pair.x != pair.y)
    assert axes.share == pytest.approx(most) or axes.share >= most / 2


def test_rules_lead_from_the_full_product_to_what_is_valid() -> None:
    kernel = next(k for k in gathered("mi300x", "gemm").gpus[0].kernels if k.kernel == "gemm.pointer")
    (asked,) = question("mi300x", "gemm.pointer").requests
    prune = [rule for rule in kernel.rules if rule.prunes]
    left = [rule.left for rule in prune]
    assert left == sorted(left, reverse=True, key=lambda number: number or 0)
    assert left[-1] == kernel.num_valid == count(asked.problem)
    told = {f.constraint.name: (f.removes_alone, f.removes_only) for f in pruning(asked.problem)}
    assert {rule.name: (rule.removes_alone, rule.removes_only) for rule in prune} == told
    assert {rule.name for rule in kernel.rules if not rule.prunes} == {"spills", "waves_per_eu"}


@pytest.mark.parametrize(("gpu_name", "kernel"), [("mi300x", "gemm"), ("h200", "gemm.descriptor"), ("7900xtx", "lstm")])
def test_curves_fall_where_occupancy_falls(gpu_name: str, kernel: str) -> None:
    gpu, facts = load_gpu(gpu_name), gathered(gpu_name, kernel).gpus[0]
    assert {curve.resource for curve in facts.curves} == {"registers", "smem"}
    for curve in facts.curves:
        used: dict[str, Any] = {
            "registers_per_thread": 1,
            "smem_bytes_per_block": 0,
            "threads_per_block": curve.threads_per_block,
        }
        name = "registers_per_thread" if curve.resource == "registers" else "smem_bytes_per_block"
        ends = np.array([step.up_to for step in curve.steps])
        at_end, beyond = (occupancy(gpu, **{**used, name: ends + more}).blocks_per_sm for more in (0, 1))
        assert at_end.tolist() == [step.blocks_per_sm for step in curve.steps]
        assert (beyond < at_end)[:-1].all()


def test_candidates_lie_under_what_each_resource_alone_leaves() -> None:
    facts = gathered("h200", "gemm.descriptor").gpus[0]
    for candidate in facts.candidates:
        of_it = [c for c in facts.curves if c.threads_per_block == candidate.threads_per_block]
        for curve in of_it:
            figures = candidate.figures
            amount = figures.registers_per_thread if curve.resource == "registers" else figures.smem_bytes
            step = next(step for step in curve.steps if (amount or 0) <= step.up_to)
            assert (figures.warps_per_sm or 0) <= step.warps_per_sm


def compiler(registers: Mapping[int, int]) -> object:
    """Compiles nothing: says so many registers for the candidates in their order, and refuses the others."""

    def compile_all(asked: Sequence[CompileJob]) -> list[CompiledKernel | str]:
        return [
            CompiledKernel("gfx942", "3.9.0", 32768, registers[at], 0, 0, "mfma") if at in registers else "refused"
            for at in range(len(asked))
        ]

    return compile_all


def test_what_a_compiler_says_stands_beside_the_model_and_decides_the_order() -> None:
    means = Means(top=3, num_compiled=2, compile_all=compiler({1: 128}))  # type: ignore[arg-type]
    first, second, third = gather([question("mi300x", "gemm")], means, "").gpus[0].candidates
    assert first.place_modelled == 2
    assert first.compiled is not None
    assert first.compiled.figures.registers_per_thread == 128
    assert first.modelled.registers_per_thread != 128
    assert second.compiled is None
    assert third.place_modelled == 1
    assert third.compiled is not None
    assert third.compiled.problem == "refused"


def test_measurements_are_the_best_of_each_configuration_with_where_they_are_from() -> None:
    records = [
        record({"tile_m": 1}, 3e-4),
        record({"tile_m": 1}, 2e-4),
        record({"tile_m": 2}, 1e-4, source_hash="before"),
        record({"tile_m": 3}, 1e-4, outcome="wrong_result"),
    ]
    found = in_order(measured_facts(records, "my.sqlite", lambda kernel: "now"))
    assert [(one.median_s, one.is_stale) for one in found] == [(2e-4, False), (1e-4, True)]
    assert found[0].source == "my.sqlite"
    assert found[0].id == records[1].id
    assert of_config(found, "gemm.pointer", {"tile_m": 1}) is found[0]
    assert of_config(found, "gemm.pointer", {"tile_m": 9}) is None


def test_published_winners_are_those_of_the_workload() -> None:
    gpu, operation = load_gpu("h200"), load_kernel("lstm")
    workload = operation.default_workload(gpu)
    found = list(published(operation, gpu.name, workload))
    assert found
    assert all(one.source.startswith("tuned-h200-sxm.json") for one in found)
    other = Workload(workload.operation, {**workload.sizes, "batch": 17}, workload.dtype)
    assert not list(published(operation, gpu.name, other))


def test_nothing_fits_is_told_with_the_rules_in_conflict() -> None:
    asked = question("h200", "gemm.descriptor")
    request = asked.requests[0]
    problem = request.problem.copy()
    problem.add(Var("tile_m") * Var("tile_n") >= 65536, because="a large tile was asked for")
    stated = StatedProblem("", problem, (), replace(request, problem=problem))
    kernel = gather([replace(asked, problems=(stated,))], Means(), "").gpus[0].kernels[0]
    assert kernel.num_valid == 0
    assert {broken.because for broken in kernel.conflict} >= {"a large tile was asked for"}
    assert any(broken.seen.endswith("is false") for broken in kernel.conflict)
    assert [rule.left for rule in kernel.rules if rule.prunes][-1] == 0


@pytest.mark.parametrize(("name", "read"), [("mi355x", "mfma_"), ("h200", "wgmma"), ("a100", "ldmatrix")])
def test_the_banks_are_those_of_the_best_tile_and_the_solved_layout_has_no_conflict(name: str, read: str) -> None:
    gpu, config = load_gpu(name), {"tile_m": 64, "tile_k": 64, "matrix_instr_nonkdim": 16}
    facts = bank_facts(gpu, "bf16", [candidate(config)])
    assert facts is not None
    assert facts.access.startswith(read)
    plain, solved = facts.layouts
    assert (plain.layout, solved.degree) == ("none", 1)
    assert solved.num_bytes == plain.num_bytes == 64 * 64 * 2
    access = tile_access(gpu, facts.access, check_tile(64, 64, "bf16"))
    for each in facts.layouts:
        layout = parse_layout(each.layout, check_tile(64, 64, "bf16"))
        assert each.degree == layout.conflicts(gpu, access).degree.max() == max(map(len, each.served))
    assert plain.degree > 1


def test_without_a_tile_or_a_source_no_banks_are_drawn() -> None:
    assert bank_facts(load_gpu("h200"), "bf16", [candidate({"tile_m": 64})]) is None
    assert bank_facts(load_gpu("rx-7900-xtx"), "bf16", [candidate({"tile_m": 64, "tile_k": 64})]) is None
