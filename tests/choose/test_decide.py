"""`decide` and `refuse` for a kernel whose whole space is ranked: memory, disk, refusals, JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from constrint import cache
from constrint.choose import (
    REGISTERS,
    Decision,
    Evidence,
    Refusal,
    Request,
    candidates,
    decide,
    forget,
    refuse,
)
from constrint.errors import ConstrintError, InfeasibleError, UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import Workload, rank
from tests.support.decisions import begin_anew

H200 = load_gpu("h200")
KERNEL = "lstm.triton"
WORKLOAD = Workload("lstm", {"batch": 16, "time": 1024, "heads": 1, "head_dim": 512}, "bf16")
REQUEST = Request(KERNEL, WORKLOAD, H200)


@pytest.fixture(autouse=True)
def _new(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)


def spilled(decision: Decision, spill_bytes: int = 8) -> Refusal:
    return Refusal(decision.kernel, dict(decision.config), REGISTERS, spill_bytes, 0)


def test_the_first_of_the_ranking_is_decided_and_remembered() -> None:
    decision = decide(REQUEST)
    best = rank(load_spec(KERNEL), H200, WORKLOAD, top=1).candidates[0]
    assert (decision.kernel, decision.config, decision.seconds) == (KERNEL, best.config, best.cost.seconds)
    assert decision.program.evidence is Evidence.MODELLED
    assert decide(Request(KERNEL, WORKLOAD, H200)) is decision
    forget()
    assert decide(REQUEST) is not decision


def test_fixed_values_hold_and_a_conflict_names_their_reason() -> None:
    free = decide(REQUEST).config["num_warps"]
    other = next(value for value in (4, 8, 2, 1) if value != free)
    assert decide(Request(KERNEL, WORKLOAD, H200, fixed={"num_warps": other})).config["num_warps"] == other
    with pytest.raises(InfeasibleError, match="the other direction has them"):
        decide(Request(KERNEL, WORKLOAD, H200, fixed={"num_warps": 3}, because="the other direction has them"))


def test_models_of_the_same_name_are_told_apart() -> None:
    decide(REQUEST)
    twin = load_gpu(str(Path(cache.__file__).parent / "hwmodels" / "data" / "nvidia" / "h200-sxm.yaml"))
    assert twin is not H200
    assert decide(Request(KERNEL, WORKLOAD, twin)).gpu is twin


def test_a_refusal_is_remembered_and_followed() -> None:
    first = decide(REQUEST)
    second = refuse(first, spilled(first))
    assert second.config != first.config
    assert decide(REQUEST) is second
    forget()
    assert decide(REQUEST).config == second.config
    assert decide(Request(KERNEL, WORKLOAD, H200, fixed={"num_warps": first.config["num_warps"]})).gpu is H200


def test_what_spills_stays_where_there_is_nothing_else() -> None:
    whole = decide(REQUEST)
    request = Request(KERNEL, WORKLOAD, H200, fixed=dict(whole.config))
    only = decide(request)
    with pytest.raises(InfeasibleError):
        refuse(only, spilled(only))
    assert decide(request).config == whole.config
    with pytest.raises(InfeasibleError):
        refuse(only, Refusal(KERNEL, dict(only.config), "shared memory", 1 << 20, 1))
    with pytest.raises(InfeasibleError):
        decide(request)


def test_without_a_model_nothing_is_chosen_again() -> None:
    decision = Decision(Request(KERNEL, WORKLOAD, None), decide(REQUEST).program)
    with pytest.raises(ConstrintError, match="without a hardware model"):
        refuse(decision, spilled(decision))
    with pytest.raises(UsageError, match="without a hardware model"):
        decide(Request(KERNEL, WORKLOAD, None))


def test_an_implementation_is_named_in_either_way() -> None:
    named = Request("lstm", WORKLOAD, H200, kernel="triton")
    assert [spec.full_name for spec in candidates.implementations(named)] == [KERNEL]
    with pytest.raises(UnknownNameError, match=r"lstm\.triton"):
        candidates.implementations(Request("lstm", WORKLOAD, H200, kernel="tritom"))


def test_a_step_of_a_decision_is_a_decision_of_its_own() -> None:
    decision = decide(REQUEST)
    part = decision.of("product")
    assert part.request.key == REQUEST.key
    assert (part.kernel, part.config, part.workload) == (KERNEL, decision.config, WORKLOAD)
    with pytest.raises(KeyError):
        decision.of("backward")


def test_refusing_a_step_drops_every_decision_that_has_it() -> None:
    decision = decide(REQUEST)
    layer = Decision(Request("lstm", WORKLOAD, H200, detail="layer"), decision.program)
    memory = sys.modules["constrint.choose.decide"]._MEMORY
    memory[layer.request.key] = layer
    refuse(decision, spilled(decision))
    assert layer.request.key not in memory


def test_json_keeps_everything_but_the_request() -> None:
    decision = decide(REQUEST)
    plain = json.loads(json.dumps(decision.to_plain()))
    assert Decision.from_plain(plain, REQUEST) == decision


def test_the_disk_answers_the_next_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    first = decide(REQUEST)
    begin_anew(monkeypatch)
    monkeypatch.setattr(candidates, "rank_requests", None)
    assert decide(REQUEST) == first
    # What this process refused is not taken from the disk.
    monkeypatch.undo()
    begin_anew(monkeypatch)
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    assert refuse(first, spilled(first)).config != first.config
    begin_anew(monkeypatch)
    assert decide(REQUEST) == first


def test_decisions_of_a_device_are_not_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    decide(Request(KERNEL, WORKLOAD, H200, device="cuda:0"))
    assert not list(tmp_path.rglob("decisions/*"))
