"""Ranking across kernels: the union of what each kernel offers alone, ties in the operation's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from constrint.errors import InfeasibleError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.model import Var, const
from constrint.model.constraint import ESTIMATED
from constrint.select import BlockUse, Candidate, CostColumns, KernelSpec, Operation, Param, Rule, Size, Workload, rank
from constrint.select.limits import BROKEN_CHANCE, BROKEN_SHARE, LAPSE, Spilling, slowdown
from constrint.select.rank import TIE, predict, rank_requests, requests
from tests.support.gemm import KERNELS, able_kernels, gemm, gemm_operation

H200 = load_gpu("h200")
ASKED = [gemm(4096, 4096, 4096), gemm(64, 8192, 8192), gemm(1000, 1000, 1000, "fp8"), gemm(4096, 4096, 4096, bias=1)]


def same(candidate: Candidate) -> tuple[object, ...]:
    return candidate.kernel, tuple(candidate.config.items()), candidate.cost.seconds, candidate.num_variants


@pytest.mark.parametrize("workload", ASKED, ids=str)
def test_the_merged_ranking_is_the_union_of_the_kernels_own(workload: Workload) -> None:
    merged = rank(gemm_operation(), H200, workload, top=30)
    alone = {}
    for spec in able_kernels(H200, workload):
        with suppress(InfeasibleError):
            alone[spec.full_name] = rank(spec, H200, workload, top=30)
    assert len(alone) >= 2
    union = [candidate for ranking in alone.values() for candidate in ranking.candidates]
    assert {same(candidate) for candidate in merged.candidates} <= {same(candidate) for candidate in union}
    least = sorted(candidate.cost.seconds for candidate in union)[:30]
    found = [candidate.cost.seconds for candidate in merged.candidates]
    np.testing.assert_allclose(sorted(found), least, rtol=2 * TIE)
    for name, ranking in alone.items():
        # Each kernel's candidates keep the order that they have alone.
        own = [same(candidate) for candidate in merged.candidates if candidate.kernel == name]
        assert own == [same(candidate) for candidate in ranking.candidates][: len(own)]
    assert merged.num_valid == sum(ranking.num_valid for ranking in alone.values())
    problems = [spec.problem(H200, workload) for spec in able_kernels(H200, workload)]
    assert merged.num_product == sum(prod(d.size for d in problem.variables.values()) for problem in problems)
    assert merged.roofline_s == min(ranking.roofline_s for ranking in alone.values())


def test_every_candidate_names_the_kernel_whose_parameters_it_has() -> None:
    params = {spec.full_name: [p.name for p in spec.params(H200, ASKED[0])] for spec in KERNELS}
    candidates = rank(gemm_operation(), H200, ASKED[0], top=8_000).candidates
    assert {candidate.kernel for candidate in candidates} == set(params)
    for candidate in candidates:
        assert list(candidate.config) == params[candidate.kernel]


def test_a_named_kernel_is_ranked_alone() -> None:
    for spec in KERNELS:
        ranking = rank(spec, H200, ASKED[0], top=5)
        assert [space.kernel for space in ranking.spaces] == [spec.full_name]
        assert {candidate.kernel for candidate in ranking.candidates} == {spec.full_name}
        assert ranking.operation.name == spec.full_name


class Fake(KernelSpec):
    """A kernel of a few configurations whose times are given."""

    operation, summary = "fake", "times that are given"
    sizes, dtypes = (Size("n", 64, "elements"),), ("fp32", "fp16")

    def __init__(self, name: str, seconds: Mapping[int, float], refusal: str = "") -> None:
        self.name, self.seconds, self.refusal = name, seconds, refusal

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return (Param("tile", tuple(self.seconds), "which", "those that are given"),)

    def rules(self, gpu: GpuModel, workload: Workload, v: Any) -> Iterator[Rule]:
        yield from ()

    def use(self, gpu: GpuModel, workload: Workload, v: Any) -> BlockUse:
        return BlockUse(const(4), const(32), const(0))

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        if self.refusal:
            raise UnsupportedError(f"{self.full_name}: {self.refusal}.")

    def cost(self, gpu: GpuModel, workload: Workload, columns: Any, blocks_per_sm: Any) -> CostColumns:
        seconds = np.array([self.seconds[tile] for tile in columns["tile"].tolist()])
        return CostColumns(seconds, {"DRAM": seconds})


def ranked(*kernels: Fake, top: int = 10) -> list[tuple[str, int]]:
    ranking = rank(Operation("fake", kernels), H200, top=top)
    return [(candidate.kernel.removeprefix("fake."), candidate.config["tile"]) for candidate in ranking.candidates]


def test_equal_times_come_in_the_operations_order_and_then_in_that_of_preferred_values() -> None:
    a, b = Fake("a", {2: 1e-5, 1: 1e-5}), Fake("b", {1: 1e-5, 2: 1e-5})
    assert ranked(a, b) == [("a", 2), ("a", 1), ("b", 1), ("b", 2)]
    assert ranked(b, a) == [("b", 1), ("b", 2), ("a", 2), ("a", 1)]
    assert ranked(a, b, top=3) == [("a", 2), ("a", 1), ("b", 1)]


def test_faster_configurations_come_first_whatever_their_kernel() -> None:
    a, b = Fake("a", {1: 3e-5, 2: 1e-5}), Fake("b", {1: 2e-5, 2: 4e-5})
    assert ranked(a, b) == ranked(b, a) == [("a", 2), ("b", 1), ("a", 1), ("b", 2)]


def test_differences_far_below_the_models_error_are_ties() -> None:
    # Both lie on the same step of the logarithmic grid of times.
    base = float(np.exp(TIE * (np.floor(np.log(1e-5) / TIE) + 0.5)))
    a, b = Fake("a", {1: base * (1 + TIE / 8)}), Fake("b", {1: base})
    assert ranked(a, b) == [("a", 1), ("b", 1)]
    assert ranked(b, a) == [("b", 1), ("a", 1)]


def test_kernels_that_cannot_take_the_workload_are_left_out_with_their_reason() -> None:
    able, unable = Fake("able", {1: 1e-5}), Fake("unable", {1: 1e-6}, refusal="it is for other sizes")
    ranking = rank(Operation("fake", (unable, able)), H200)
    assert [(space.kernel, space.num_valid, space.refusal) for space in ranking.spaces] == [
        ("fake.unable", 0, "fake.unable: it is for other sizes."),
        ("fake.able", 1, ""),
    ]
    assert [candidate.kernel for candidate in ranking.candidates] == ["fake.able"]


def test_where_no_kernel_takes_the_workload_the_most_general_one_says_why() -> None:
    first, last = Fake("first", {1: 1e-5}, refusal="one reason"), Fake("last", {1: 1e-5}, refusal="another reason")
    with pytest.raises(UnsupportedError, match=r"fake\.last: another reason"):
        rank(Operation("fake", (first, last)), H200)


def test_a_kernel_without_a_solution_leaves_the_others() -> None:
    a, b = Fake("a", {1: 1e-5}), Fake("b", {2: 2e-5})
    operation = Operation("fake", (a, b))
    able, refusals = requests(operation, H200, operation.default_workload(H200))
    able[0].problem.add(Var("tile") == 2, because="asked for")
    ranking = rank_requests(operation, able, refusals)
    assert [candidate.kernel for candidate in ranking.candidates] == ["fake.b"]
    assert [space.num_valid for space in ranking.spaces] == [0, 1]
    able[1].problem.add(Var("tile") == 1, because="asked for")
    with pytest.raises(InfeasibleError, match=r"(?s)no config of 'fake' fits.*fake\.a: .*fake\.b: "):
        rank_requests(operation, able, refusals)


def test_a_size_out_of_range_is_refused_for_all_kernels() -> None:
    with pytest.raises(UsageError, match="n must be between 1 and"):
        rank(Operation("fake", (Fake("a", {1: 1e-5}),)), H200, Workload("fake", {"n": 0}, "fp32"))


class Spiller(Fake):
    """A kernel whose tile 1 is estimated to need 100 registers, 2 twice and 3 three times as many; 0 is disliked."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        super().__init__("spiller", seconds)

    def rules(self, gpu: GpuModel, workload: Workload, v: Any) -> Iterator[Rule]:
        yield Rule(v["tile"] != 0, "disliked", "it was seen to spill", ESTIMATED)

    def use(self, gpu: GpuModel, workload: Workload, v: Any) -> BlockUse:
        return BlockUse(const(4), 100 * v["tile"], const(0), spilling=Spilling.of(100, 80, 20))


#: The chances of its tiles to spill: of 255 registers, by the curve; of the tile 0, by the rule that it breaks.
CHANCES = {tile: LAPSE + (1 - LAPSE) / (1 + (100 * tile / 255) ** -8) for tile in (1, 2, 3)} | {0: BROKEN_CHANCE}


def factor(tile: int) -> float:
    """How many times as long a tile is expected to take as if it were sure not to spill."""
    share = 100 * tile / 255 if tile else BROKEN_SHARE
    return float(slowdown(H200, CHANCES[tile], share))


def test_what_may_spill_stays_in_the_space_and_is_ranked_by_the_time_that_is_expected() -> None:
    spiller = Spiller(dict.fromkeys((3, 0, 2, 1), 1e-5))
    ranking = rank(spiller, H200)
    assert [candidate.config["tile"] for candidate in ranking.candidates] == sorted(
        CHANCES, key=lambda t: (factor(t), -t)
    )
    assert ranking.candidates[-1].cost.seconds > 1.1e-5
    assert ranking.num_valid == 4
    for candidate in ranking.candidates:
        assert candidate.resources is not None
        chance = CHANCES[candidate.config["tile"]]
        assert candidate.resources.spill_chance == pytest.approx(chance, rel=1e-6)
        assert candidate.cost.seconds == pytest.approx(1e-5 * factor(candidate.config["tile"]), rel=1e-6)
        # No more registers are given to a thread than there are.
        assert candidate.resources.registers_per_thread == min(255, 100 * candidate.config["tile"])


def test_what_is_all_but_sure_to_spill_comes_first_where_it_is_that_much_faster() -> None:
    worth = 1e-5 / factor(3)
    for seconds, first in ((0.95 * worth, 3), (1.05 * worth, 1)):
        ranking = rank(Spiller({1: 1e-5, 3: seconds}), H200)
        assert ranking.candidates[0].config["tile"] == first


def test_strict_leaves_out_what_may_spill() -> None:
    operation = Operation("fake", (Spiller(dict.fromkeys((3, 0, 2, 1), 1e-5)),))
    (request,), refusals = requests(operation, H200, operation.default_workload(H200))
    ranking = rank_requests(operation, [replace(request, problem=request.problem.strict())], refusals)
    # The tile 2 spills once in eight times, and one in ten is kept.
    assert [candidate.config["tile"] for candidate in ranking.candidates] == [1]


def test_predicted_times_of_given_configurations_are_those_of_the_ranking() -> None:
    spiller = Spiller(dict.fromkeys((3, 0, 2, 1), 1e-5))
    ranking = rank(spiller, H200)
    columns = {"tile": np.array([candidate.config["tile"] for candidate in ranking.candidates])}
    seconds = predict(spiller, H200, ranking.workload, columns).seconds
    np.testing.assert_allclose(seconds, [candidate.cost.seconds for candidate in ranking.candidates], rtol=1e-12)
