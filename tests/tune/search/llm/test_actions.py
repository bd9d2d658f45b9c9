"""Macro actions move one parameter that a kernel declares, or that its name tells, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from constrint.errors import UsageError
from constrint.kernels.registry import list_kernels, load_kernel
from constrint.select import Operation
from constrint.select.candidates import Candidates
from constrint.tune.search.llm.actions import ACTIONS, actions_of, applied_to_config, applied_to_strategy
from constrint.tune.search.llm.facts import kernel_facts
from constrint.tune.search.llm.records import ActionProposal, SpaceProposal, StrategyProposal, Values
from tests.tune.search.llm.kernels import GPU, TOY, product_resolver
from tests.tune.search.spaces import ToySpec, task_of

START = {"tile_m": 64, "tile_n": 64, "num_stages": 3}


def values_of(space: SpaceProposal) -> dict[str, int]:
    assert all(len(part.values) == 1 for part in space.values)
    return {part.parameter: part.values[0] for part in space.values}


@pytest.mark.parametrize(
    ("action", "changed"),
    [
        (ActionProposal(kernel=TOY.name, action="tile"), {"tile_m": 128}),
        (ActionProposal(kernel=TOY.name, action="tile", direction="less"), {"tile_m": 32}),
        (ActionProposal(kernel=TOY.name, action="tile", parameter="tile_n", value=32), {"tile_n": 32}),
        (ActionProposal(kernel=TOY.name, action="pipeline"), {"num_stages": 4}),
    ],
)
def test_an_action_moves_one_parameter_of_a_configuration(action: ActionProposal, changed: dict[str, int]) -> None:
    assert values_of(applied_to_config(action, START, TOY)) == START | changed


def test_an_action_that_can_go_no_further_says_so() -> None:
    action = ActionProposal(kernel=TOY.name, action="pipeline")
    with pytest.raises(UsageError, match="num_stages has its largest value already: 4"):
        applied_to_config(action, START | {"num_stages": 4}, TOY)
    same = ActionProposal(kernel=TOY.name, action="pipeline", value=3)
    with pytest.raises(UsageError, match="num_stages is 3 already"):
        applied_to_config(same, START, TOY)


def test_an_action_changes_one_constraint_of_a_strategy() -> None:
    strategy = StrategyProposal(
        name="small",
        text="small tiles",
        kernel=TOY.name,
        values=(Values(parameter="tile_m", values=(32, 64)), Values(parameter="num_stages", values=(3,))),
    )
    action = ActionProposal(kernel=TOY.name, action="tile", strategy="small")
    moved = applied_to_strategy(action, strategy, TOY)
    assert {part.parameter: part.values for part in moved.values} == {"tile_m": (128,), "num_stages": (3,)}
    assert moved.parents == ("small",)


def test_names_tell_what_a_kernel_does_not_declare() -> None:
    kernels = {kernel.name: kernel.actions for kernel in product_resolver().facts.kernels}
    assert kernels["gemm.pointer"] == {
        "tile": ("tile_m", "tile_n", "tile_k"),
        "fuse": ("persistent",),
        "pipeline": ("num_stages",),
        "reorder": ("group_m",),
        "vectorise": ("num_warps",),
        "split": ("split_k",),
    }


def test_what_a_kernel_declares_comes_before_its_names() -> None:
    class Declaring(ToySpec):
        actions: ClassVar[Mapping[str, tuple[str, ...]]] = {"fuse": ("knob",), "tile": ("warps", "tile", "gone")}

    assert actions_of(Declaring(), ["tile", "warps", "order", "knob"]) == {
        "tile": ("warps", "tile"),
        "fuse": ("knob",),
        "reorder": ("order",),
    }


@pytest.mark.parametrize("name", [name for name in list_kernels() if "." not in name])
def test_every_parameter_of_every_kernel_is_moved_by_one_action(name: str) -> None:
    operation = load_kernel(name)
    # Other tests register kernels of their own, whose parameters no action moves.
    for spec in (spec for spec in operation.implementations if spec.home.startswith("constrint.")):
        workload = spec.default_workload(GPU)
        names = [param.name for param in spec.params(GPU, workload)]
        moved = [name for names in actions_of(spec, names).values() for name in names]
        assert sorted(moved) == sorted(names), spec.full_name
        assert set(actions_of(spec, names)) <= set(ACTIONS)


def test_a_resolver_starts_actions_from_the_best_or_from_a_strategy_it_knows() -> None:
    resolver = product_resolver()
    best = resolver.facts.ranking[0]
    action = ActionProposal(kernel=best.kernel, action="reorder", direction="less")
    (moved,) = resolver.resolve(action, 5, best=best).configs
    assert {n for n in best.config if moved.config[n] != best.config[n]} == {"group_m"}
    (nowhere,) = resolver.resolve(action, 5).refusals
    assert "say which `config` to start from" in nowhere.message
    (unknown,) = resolver.resolve(ActionProposal(kernel=best.kernel, action="tile", strategy="mine"), 1).refusals
    assert "has no strategy 'mine'" in unknown.message
    mine = StrategyProposal(
        name="mine", text="", kernel=best.kernel, values=(Values(parameter="tile_m", values=(64,)),)
    )
    assert resolver.resolve(mine, 1).configs
    (larger,) = resolver.resolve(ActionProposal(kernel=best.kernel, action="tile", strategy="mine"), 1).configs
    assert larger.config["tile_m"] > 64, "the next one that the kernel's tiles have"


def test_facts_of_a_small_kernel_name_its_rules_with_reasons() -> None:
    task = task_of(Operation("toy", (ToySpec(),)))
    facts = kernel_facts(Candidates.of(task.operation, GPU, task.workload).kernels[0])
    assert [(rule.rule, rule.because, rule.is_certain) for rule in facts.rules] == [
        ("warps <= tile", "no warp is without work", True)
    ]
    assert facts.num_valid == 2 * 2 * (1 + 2 + 3 + 4 + 4 + 4)
