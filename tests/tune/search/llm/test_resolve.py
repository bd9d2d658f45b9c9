"""A proposed space AND the kernel's rules: preferences order, the rest leaves out, and nothing left is explained."""

from __future__ import annotations

import re

import pytest

from constrint.select import candidates as select_candidates
from constrint.select.candidates import KernelCandidates
from constrint.select.rank import requests
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.records import Preference, ProposalRefusal, Restriction, SpaceProposal, Values
from constrint.tune.search.llm.resolve import Intersection, Resolver, intersect, penalties
from tests.tune.search.llm.kernels import product_candidates, product_resolver, product_task

POINTER = "gemm.pointer"


def pointer() -> KernelCandidates:
    candidates = product_candidates()
    return candidates.kernels[candidates.by_name[POINTER]]


def space(*rules: str, prefer: str = "", **values: tuple[int, ...]) -> SpaceProposal:
    return SpaceProposal(
        kernel=POINTER,
        values=tuple(Values(parameter=name, values=some) for name, some in values.items()),
        rules=tuple(Restriction(rule=rule, because="somebody said so") for rule in rules),
        preferences=(Preference(rule=prefer),) if prefer else (),
    )


def left(proposed: SpaceProposal, kernel: KernelCandidates | None = None) -> Intersection:
    found = intersect(proposed, kernel or pointer())
    assert isinstance(found, Intersection)
    return found


def refusal(proposed: SpaceProposal) -> str:
    found = intersect(proposed, pointer())
    assert isinstance(found, ProposalRefusal)
    return found.message


def configs(found: Intersection) -> set[tuple[int, ...]]:
    columns = [column[found.rows].tolist() for column in found.kernel.columns.values()]
    return set(zip(*columns, strict=True))


def test_what_is_left_is_exactly_what_satisfies_both() -> None:
    found = left(space("tile_m * tile_n <= 8192", num_stages=(3, 4)))
    kernel = pointer()
    wanted = (kernel.columns["tile_m"].astype(int) * kernel.columns["tile_n"] <= 8192) & (
        (kernel.columns["num_stages"] == 3) | (kernel.columns["num_stages"] == 4)
    )
    assert sorted(found.rows.tolist()) == wanted.nonzero()[0].tolist()


def test_preferences_order_and_leave_nothing_out() -> None:
    plain, preferring = left(space("tile_k == 64")), left(space("tile_k == 64", prefer="num_stages == 5"))
    assert configs(plain) == configs(preferring)
    stages = preferring.kernel.columns["num_stages"][preferring.rows]
    first = int((stages == 5).sum())
    assert 0 < first < len(stages)
    assert (stages[:first] == 5).all()
    assert plain.rows[0] != preferring.rows[0]
    # Among equals the model decides.
    assert (preferring.kernel.seconds[preferring.rows[:first]].argmin()) == 0


def test_weights_of_preferences_add_up() -> None:
    kernel = pointer()
    wishes = (Preference(rule="tile_m == 128", weight=5), Preference(rule="tile_n == 128", weight=2))
    rows = left(space()).rows[:500]
    missed = penalties(wishes, kernel, rows)
    for row, weight in zip(rows.tolist(), missed.tolist(), strict=True):
        config = kernel.config(row)
        assert weight == 5 * (config["tile_m"] != 128) + 2 * (config["tile_n"] != 128)


def test_a_space_too_large_to_list_is_solved_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    proposed = space("tile_m * tile_n <= 1024", tile_k=(64, 128), group_m=(8,))
    task = product_task()
    monkeypatch.setattr(select_candidates, "MOST_LISTED", 5_000)
    request = next(r for r in requests(task.operation, task.gpu, task.workload)[0] if r.spec.full_name == POINTER)
    large = KernelCandidates.of(request)
    assert large.space is not None
    found = left(proposed, large)
    assert configs(found) == configs(left(proposed))
    # Preferences hold there as well.
    wished = left(space("tile_m * tile_n <= 1024", prefer="num_stages == 5", tile_k=(64, 128), group_m=(8,)), large)
    assert wished.kernel.config(int(wished.rows[0]))["num_stages"] == 5


def test_nothing_left_is_explained_by_a_minimal_conflict_and_its_cheapest_change() -> None:
    message = refusal(space("num_stages >= 5", tile_m=(256,), tile_n=(256,), tile_k=(64,)))
    assert f"no configuration of {POINTER} is left" in message
    assert "cannot hold together" in message
    change = re.search(r"The cheapest change: it fits if (\w+) = (\d+)\.", message)
    assert change is not None, message
    # The change that it names is enough.
    values = {"tile_m": 256, "tile_n": 256, "tile_k": 64} | {change[1]: int(change[2])}
    assert len(left(space("num_stages >= 5", *(f"{name} == {value}" for name, value in values.items()))).rows)


def test_a_rule_of_the_hardware_is_never_what_is_relaxed() -> None:
    message = refusal(space("tile_m * tile_n >= 65536"))
    assert "register_file" in message
    assert "fits if the bound of tile_m * tile_n >= 65536 were 32768" in message.partition("cheapest change")[2]
    assert len(left(space("tile_m * tile_n >= 32768")).rows)


def test_a_rule_beyond_all_limits_is_refused() -> None:
    assert "would need about" in refusal(space("tile_m ** tile_n ** tile_k > 1"))
    assert "would need about" in refusal(space("2 ** 2 ** 2 ** 2 ** 2 ** 2 > tile_m"))


def test_values_that_the_caller_fixed_hold_in_every_proposal() -> None:
    task = product_task()
    fixed = SearchTask(task.operation, task.gpu, task.workload, fixed={"tile_m": 64})
    resolver = Resolver(fixed)
    assert {c.config["tile_m"] for c in resolver.resolve(space("tile_n == 64"), 5).configs} == {64}
    (wrong,) = resolver.resolve(space("tile_m == 128"), 5).refusals
    assert "tile_m was fixed to 64" in wrong.message


def test_nothing_is_proposed_twice_and_what_was_tried_is_left_out() -> None:
    resolver = product_resolver()
    proposed = space(tile_m=(128,), tile_n=(256,), tile_k=(64,), num_stages=(3,), num_warps=(8,), split_k=(1,))
    number = len(left(proposed).rows)
    first = resolver.resolve(proposed, number - 1).configs
    assert len(first) == number - 1
    assert len(resolver.resolve(proposed, number).configs) == 1
    assert "tried before" in resolver.resolve(proposed, 1).refusals[0].message
