"""Time is taken by the clock of another process, on inputs drawn anew, and outputs are checked after it.

The protocol runs here in Triton's interpreter on a small task of a user; no time is asserted.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from constrint.hwmodels import load_gpu
from constrint.propose import GateSettings, find_task, wire
from constrint.propose.examination import Examination, Failing
from constrint.propose.honesty import floor_s
from constrint.propose.timing import Timed, time_candidate
from constrint.tune.floor import impossible
from constrint.tune.search.llm.records import SourceProposal
from tests.support.forked_worker import ForkedWorker, OpenWorker
from tests.support.needs import needs_triton

pytestmark = needs_triton
GPU = load_gpu("h200")
#: A softmax that is timed at sizes that the interpreter takes no time for.
TASK = """
from constrint.propose import Extent, register_task
from constrint.propose.tasks import Softmax


class Small(Softmax):
    name = "SMALL"
    extents = (Extent("m", "rows", 64, 8, timed=4), Extent("n", "columns", 64, 8, timed=50))
    timed_dtype = "fp32"

    def flops(self, sizes):
        return FLOPS


register_task(Small())
"""
HONEST = """
import torch
import triton
import triton.language as tl

@triton.jit
def rows(y, x, n, x_row, x_column, tile: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, tile)
    values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=float("-inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * n + at, weights / tl.sum(weights, axis=0), mask=at < n)

def run(y, x):
    rows[(x.shape[0],)](y, x, x.shape[1], x.stride(0), x.stride(1), triton.next_power_of_2(x.shape[1]))
"""
#: Three rounds are right; then it rests.
RESTS = HONEST.replace(
    "def run(y, x):\n", "calls = [0]\ndef run(y, x):\n    calls[0] += 1\n    if calls[0] > 24: return\n"
)
#: It makes its own process answer that all calls are done, before any of them was made.
ANSWERS_EARLY = f"""{HONEST}
import sys
_wire = sys.modules["constrint.propose.wire"]
_server = sys.modules["constrint.propose.worker.serve"].Server
_server._run = lambda self, request: _wire.Acknowledged()
"""
#: The same, and it hides from what looks at its process.
HIDES = f"""{ANSWERS_EARLY}
_guard = sys.modules["constrint.propose.worker.watch"].Guard
_guard.patched = lambda self: ()
_sample = _server._sample
def _lie(self, request):
    self._launches.count = 1000
    return _sample(self, request)
_server._sample = _lie
"""


#: At the sizes of the timing it is wrong, or lets PyTorch work, or writes its input.
AT_TIMED = HONEST + "    if x.shape[0] == 4 and x.shape[1] == 50:\n        ACT\n"


def timed(folder: Path, name: str, source: str, flops: str = "1.0", is_open: bool = False) -> Timed:
    file = folder / f"{name}.py"
    file.write_text(TASK.replace("SMALL", name).replace("FLOPS", flops))
    # What hides in Python needs all of it, which a candidate is not given.
    kind = OpenWorker if is_open else ForkedWorker
    with kind(is_interpreted=True) as candidate, ForkedWorker(is_interpreted=True) as baseline:
        candidate.ask(wire.Load(source=source, entry="run"), wire.Acknowledged, 60)
        baseline.ask(wire.LoadPlain(task=str(file)), wire.Acknowledged, 60)
        return time_candidate(str(file), GPU, (candidate, baseline), "cpu", 60)  # type: ignore[arg-type]


def test_an_honest_candidate_is_timed_beside_plain_pytorch(tmp_path: Path) -> None:
    found = timed(tmp_path, "honest_small", HONEST)
    assert found.problem == ""
    assert found.seconds > found.floor_s > 0
    assert found.baseline_s > 0
    assert "plain PyTorch" in found.text


def test_a_time_below_the_physical_floor_is_refused(tmp_path: Path) -> None:
    """The same candidate, for a task that would take the GPU a day."""
    found = timed(tmp_path, "endless_small", HONEST, flops="1e19")
    assert "is less than the" in found.problem
    assert "H200-SXM needs for its bytes and operations" in found.problem


def test_right_for_the_first_calls_only_is_seen_after_timing(tmp_path: Path) -> None:
    problem = timed(tmp_path, "resting_small", RESTS, is_open=True).problem
    assert problem.startswith("when it was timed: ")
    assert "8 calls launched 0 kernels" in problem or "launched no kernel" in problem


def test_an_answer_before_the_work_is_done_is_seen(tmp_path: Path) -> None:
    assert "Server._run, which belongs to who" in timed(tmp_path, "early_small", ANSWERS_EARLY, is_open=True).problem


def test_an_answer_before_the_work_is_seen_by_the_outputs_alone(tmp_path: Path) -> None:
    """Nothing that the candidate's process says of itself is needed: the poison is still there."""
    problem = timed(tmp_path, "hiding_small", HIDES, is_open=True).problem
    assert "not finite or were not written (after timing)" in problem


@pytest.mark.parametrize(
    ("act", "says"),
    [
        ("y.zero_()", "off by"),
        ("z = torch.softmax(x, dim=1)", "PyTorch did work in its place: aten._softmax"),
        ("x.zero_()", "it wrote its input x"),
        ("return y", "right"),
    ],
)
def test_a_timed_call_is_watched_and_compared_as_any_other(tmp_path: Path, act: str, says: str) -> None:
    """The candidate has PyTorch's own tensors here, which a candidate has not."""
    problem = timed(
        tmp_path, f"watched_{says[-4:]}".replace(" ", "_"), AT_TIMED.replace("ACT", act), is_open=True
    ).problem
    assert says in problem if act != "return y" else not problem


@pytest.mark.parametrize(("act", "is_found"), [("y.zero_()", True), ("pass", False)])
def test_the_sizes_of_the_timing_are_among_the_checked_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, is_found: bool
) -> None:
    monkeypatch.setattr("constrint.propose.examination.SandboxWorker", ForkedWorker)
    name = f"checked_{act[:4]}"
    (tmp_path / "task.py").write_text(TASK.replace("SMALL", name).replace("FLOPS", "1.0"))
    source = AT_TIMED.replace("ACT", act)
    proposal = SourceProposal(task=str(tmp_path / "task.py"), language="triton", source=source)
    examination = Examination(proposal, GPU, GateSettings(allow_unsandboxed=True, device="cpu", seed=3))
    try:
        with pytest.raises(Failing, match="at the sizes of the timing: y is off by") if is_found else nullcontext():
            examination.right()
    finally:
        examination.close()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-12, math.nan, math.inf, -math.inf])
def test_a_time_that_no_call_takes_is_not_believed(seconds: float) -> None:
    task = find_task("softmax")
    least = floor_s(task, task.timed_sizes, task.timed_dtype, GPU)
    assert "the work was not done" in impossible(seconds, least, GPU)
    assert impossible(2 * least, least, GPU) == ""


def test_a_task_without_operations_that_fits_the_caches_has_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    task = find_task("softmax")
    monkeypatch.setattr(task, "flops", lambda sizes: 0.0)
    assert floor_s(task, {"m": 1, "n": 1}, "fp32", GPU) > 0
    stated = msgspec.structs.replace(GPU.memory.l2, bandwidth_bytes_per_s=1e12)
    known = msgspec.structs.replace(GPU, memory=msgspec.structs.replace(GPU.memory, l2=stated))
    assert floor_s(task, {"m": 1000, "n": 1000}, "fp32", known) == pytest.approx(8e6 / 2e12)
