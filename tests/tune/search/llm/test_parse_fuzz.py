"""Whatever a proposer writes is answered, and whatever is taken from it can run."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from constrint.solve import why_not
from constrint.tune.search.llm.parse import parse_reply
from constrint.tune.search.llm.records import Preference, Restriction, SpaceProposal, Values
from constrint.tune.search.llm.resolve import Resolved
from tests.tune.search.llm.kernels import GPU, TOY, product_resolver, product_task

WORDS = (
    "tile_m tile_n num_stages 3 64 + * ** // % ( ) == <= and or not in { } , .. divides -> min pow2 element true none"
)
MARKS = ["none", '"x"', "`y`", "\n", ";"]
RULES = st.lists(st.sampled_from(WORDS.split() + MARKS), max_size=12).map(" ".join) | st.text(max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | RULES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("values", "rules", "preferences", "action", "config", "parameter", "because", "source")
PROPOSALS = st.fixed_dictionaries(
    {"type": st.sampled_from(["space", "strategy", "action", "source"]), "kernel": st.just("toy.fast")},
    optional=dict.fromkeys(FIELDS, JSON),
)


@given(st.text() | st.text(alphabet='{}[]":,\\`jsonproals\n0'))
@example("```json\n```")
@example('{"proposals": [{"type": "space", "kernel": "toy.fast", "rules": [{"rule": "2**2**2**2**2**2 > tile_m"}]}]}')
def test_any_text_is_answered(text: str) -> None:
    found = parse_reply(text, [TOY])
    assert found.proposals or found.refusals or '"proposals"' in text


@given(st.lists(PROPOSALS, min_size=1, max_size=3))
def test_any_json_is_answered(proposals: list[dict[str, Any]]) -> None:
    found = parse_reply(json.dumps({"proposals": proposals}), [TOY])
    refused = {refusal.where.partition("]")[0] for refusal in found.refusals}
    assert len(found.proposals) + len(refused) == len(proposals)
    assert all(refusal.message for refusal in found.refusals)


@given(RULES)
@settings(deadline=None)
def test_any_rule_is_refused_or_leaves_what_can_run(rule: str) -> None:
    resolver = product_resolver()
    kernel = resolver.kernel("gemm.pointer").name
    for space in (
        SpaceProposal(kernel=kernel, rules=(Restriction(rule=rule[:400]),)),
        SpaceProposal(kernel=kernel, preferences=(Preference(rule=rule[:400]),)),
    ):
        _check(resolver.resolve(space, 2))


@st.composite
def spaces(draw: st.DrawFn) -> SpaceProposal:
    kernel = draw(st.sampled_from([kernel for kernel in product_resolver().facts.kernels if kernel.params]))
    chosen = draw(st.lists(st.sampled_from(kernel.params), unique_by=lambda param: param.name, max_size=4))
    values = []
    for param in chosen:
        some = draw(st.lists(st.sampled_from(param.values), min_size=1, max_size=3, unique=True))
        values.append(Values(parameter=param.name, values=tuple(some)))
    names = [param.name for param in kernel.params]
    one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    rules = draw(st.lists(st.sampled_from([f"{one} <= {other}", f"{one} * {other} > 64", f"{one} != 8"]), max_size=2))
    return SpaceProposal(kernel=kernel.name, values=tuple(values), rules=tuple(Restriction(rule=r) for r in rules))


@given(spaces())
@settings(deadline=None, max_examples=60)
def test_no_proposal_leads_to_a_configuration_that_breaks_a_certain_rule(space: SpaceProposal) -> None:
    found = product_resolver().resolve(space, 3)
    _check(found)
    for choice in found.configs:
        assert all(choice.config[part.parameter] in part.values for part in space.values)


def _check(found: Resolved) -> None:
    assert found.configs or found.refusals
    for choice in found.configs:
        task = product_task()
        problem = task.operation.spec(choice.kernel).problem(GPU, task.workload)
        assert not why_not(problem, choice.config)
