"""`record_what_fits`: a kernel that spills or does not fit is passed over before it is launched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

from constrint.choose import Decision, Request, decide, forget
from constrint.errors import DoesNotFitError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.look import SpilledError
from constrint.kernels.launch.policy import record_what_fits
from constrint.select.candidate import CompiledKernel
from constrint.select.workload import Workload
from tests.support.decisions import begin_anew

SIZES = {"m": 1000, "n": 1024, "k": 768}
REQUESTS = {
    "gated.cuda": Workload("gated", SIZES, "bf16", {"transpose_b": 1}),
    "scaled_gemm": Workload("scaled_gemm", SIZES, "fp8", {}),
    "quantised_gemm": Workload("quantised_gemm", {**SIZES, "m": 8}, "bf16", {"bits": 4, "group": 128}),
    "grouped": Workload("grouped", {**SIZES, "experts": 4}, "bf16", {"transpose_b": 1}),
}


@pytest.mark.filterwarnings("ignore:.*does not fit H200-SXM after all:RuntimeWarning")
@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        *((operation, "spills") for operation in REQUESTS),
        # A block of the quantised kernel takes some kilobytes: no device refuses it for those.
        *((operation, "does not fit") for operation in REQUESTS if operation != "quantised_gemm"),
    ],
)
def test_the_next_decision_runs_and_stays(operation: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)
    kernel = "cuda" if operation == "grouped" else ""
    request = Request(operation, REQUESTS[operation], load_gpu("h200"), kernel=kernel)
    seen: list[tuple[dict[str, int], bool]] = []

    def record(chosen: Decision, may_spill: bool) -> Any:
        seen.append((dict(chosen.config), may_spill))
        if len(seen) > 1:
            return "recorded"
        if fault == "spills":
            raise SpilledError(CompiledKernel("sm_90a", "3.6", 1000, 255, 0, 400, ""))
        raise DoesNotFitError("too much", name="shared memory", required=233_000, limit=232_448)

    try:
        made: Any = record_what_fits(decide(request), record)
        assert made == "recorded"
        first, second = seen
        assert first[0] != second[0]
        assert not second[1], "a kernel that spills is accepted only where nothing else is left"
        assert dict(decide(request).config) == second[0], "later calls begin with what ran"
    finally:
        forget()


def test_a_named_configuration_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)
    gpu = load_gpu("h200")
    config = decide(Request("gated.cuda", REQUESTS["gated.cuda"], gpu)).config
    decision = decide(Request("gated.cuda", REQUESTS["gated.cuda"], gpu, config=config))
    seen: list[bool] = []

    def record(chosen: Decision, may_spill: bool) -> Any:
        seen.append(may_spill)
        assert chosen.config == config
        return "recorded"

    made: Any = record_what_fits(decision, record)
    assert made == "recorded"
    assert seen == [True]
    forget()
