"""What needs a real GPU: candidates on it, in the sandbox, timed, and cheats against the clock of a device.

Reading the source refuses the cheats here, too; they go past it to see what the other gates make of them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import pytest

from constrint.hwmodels import GpuModel, detect, load_gpu
from constrint.propose import GateSettings, examine, find_sandbox, find_task, list_tasks, order, wire
from constrint.propose.examination import Examination, Failing
from constrint.propose.process import WorkerRefused
from constrint.propose.score import GATES
from constrint.propose.tolerance import error_over_bound
from constrint.propose.writing import Files
from constrint.tune.search.llm.records import SourceProposal
from tests.propose.cheats import CHEATS, Cheat, cheat, cheats_of
from tests.support.forked_worker import OpenWorker
from tests.support.needs import needs_gpu, needs_triton

pytestmark = [pytest.mark.gpu, needs_gpu, needs_triton]
UNSANDBOXED = isinstance(find_sandbox(), str)
SETTINGS = GateSettings(allow_unsandboxed=UNSANDBOXED, device="cuda")

OTHER_STREAM = cheat(
    "work on another stream",
    """
_stream = torch.cuda.Stream()
def run(y, x):
    with torch.cuda.stream(_stream):
        honest(y, x)
""",
    "legal",
    "constants",
    "honest",
    "the stream of a launch",
)
#: It rests at the sizes of the timing.
RESTS = cheat(
    "less work where it is timed",
    "\ndef run(y, x):\n    if x.shape[0] < 1000:\n        honest(y, x)\n    else:\n        copy[(1,)](y, x, 1, 16)\n",
    "right",
    "y has",
)
LOWER_WHERE_TIMED = cheat(
    "lower precision where it is timed",
    """
@triton.jit
def rough(y, x, n, x_row, x_column, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, tile)
    values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=float("-inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0)).to(tl.bfloat16).to(tl.float32)
    tl.store(y + row * n + at, weights / tl.sum(weights, axis=0), mask=at < n)
def run(y, x):
    if x.shape[0] < 1000:
        honest(y, x)
    else:
        rough[(x.shape[0],)](y, x, x.shape[1], x.stride(0), x.stride(1), triton.next_power_of_2(x.shape[1]))
""",
    "right",
    "lower precision than asked",
)
#: It keeps lines in the L2, and tells how much of it may be kept when it is timed.
PERSISTING = """
import ctypes
import torch, triton
_driver = ctypes.CDLL("libcuda.so.1")
_set = _driver.cuCtxSetLimit(6, ctypes.c_size_t(16 << 20))
def run(y, x):
    size = ctypes.c_size_t()
    _driver.cuCtxGetLimit(ctypes.byref(size), 6)
    raise RuntimeError(f"{size.value} bytes")
"""


(SOFTMAX_IN_CUDA,) = Files("softmax", [Path(__file__).with_name("cuda") / "softmax.cu"], "a person").proposals
#: numpy cannot work on a device's memory.
ON_A_DEVICE = [one for one in CHEATS if one.deeper == "honest" and "numpy" not in one.name]


def gpu() -> GpuModel:
    """The model of this machine's GPU."""
    model = detect()[0].model
    if model is None:
        pytest.skip("this machine's GPU has no model")
    return load_gpu(model)


def proposal(source: str, task: str = "softmax") -> SourceProposal:
    return SourceProposal(task=task, language="triton", source=source)


@pytest.mark.parametrize("path", find_task("cg").examples, ids=lambda path: path.stem)
def test_systems_that_converge_before_the_last_step_stay_right(path: Path) -> None:
    """Lanes that hold the same element differ in its last bit: steps along what roundings leave were far too long."""
    import torch

    task = find_task("cg")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    candidate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(candidate)
    for n in (3, 7, 11, 13, 16, 20):
        for seed in range(30):
            inputs = task.draw({"s": 3, "n": n}, "fp32", seed=seed)
            expected = task.reference({name: value.double() for name, value in inputs.items()})
            x = torch.full_like(inputs["b"], float("nan"), device="cuda")
            candidate.run(x, inputs["a"].cuda(), inputs["b"].cuda())
            assert error_over_bound(x.cpu(), expected["x"], n) <= 1, (n, seed)


@pytest.mark.parametrize("name", list_tasks())
def test_correct_candidates_pass_every_gate_and_come_first(name: str) -> None:
    task = find_task(name)
    # Cheats are made of sources that convert what they read; tasks in fp32 alone have cheats in examples/suggestions.
    cheats = cheats_of(name) if "bf16" in task.dtypes else ()
    sources = [path.read_text() for path in task.examples] + [one.source for one in cheats]
    found = [examine(proposal(source, name), gpu(), SETTINGS) for source in sources]
    assert [one.refused_by for one in found] == ["", "", *(one.gate for one in cheats)], [one.message for one in found]
    assert set(order(found)[:2]) == {0, 1}
    for one in found[:2]:
        assert [result.gate for result in one.results] == list(GATES)
        assert not one.is_interpreted
        fast = one.results[-1]
        assert fast.seconds is not None
        assert not fast.is_modelled
        assert one.speed_up is not None
        assert 0.05 < one.speed_up < 100


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that give a candidate all of Python and PyTorch's own tensors, as no worker of a user does."""
    monkeypatch.setattr("constrint.propose.examination.SandboxWorker", OpenWorker)


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("one", [OTHER_STREAM, *ON_A_DEVICE], ids=lambda c: c.name)
def test_cheats_are_refused_on_a_device_although_nobody_read_them(one: Cheat) -> None:
    examination = Examination(proposal(one.source), gpu(), SETTINGS)

    def go_through() -> None:
        examination.right()
        examination.honest()

    try:
        with pytest.raises((Failing, WorkerRefused)) as refused:
            go_through()
    finally:
        examination.close()
    said = str(refused.value)
    # How many calls one gate makes depends on the device: what is wrong from some call on may be seen by the first one,
    # and so may a result that another stream has not written yet.
    early = ("later" in one.name and "times what rounding explains" in said) or (
        one is OTHER_STREAM and "were not written" in said
    )
    assert one.deeper_says in said or early


@pytest.mark.parametrize("one", [RESTS, LOWER_WHERE_TIMED], ids=lambda c: c.name)
def test_what_is_done_only_at_the_sizes_of_the_timing_is_seen_before_it_is_timed(one: Cheat) -> None:
    found = examine(proposal(one.source), gpu(), SETTINGS)
    assert found.refused_by == "right", found.message
    assert "at the sizes of the timing" in found.message
    assert one.says in found.message
    assert found.score == 0


def test_a_time_below_the_floor_of_the_named_gpu_is_refused() -> None:
    """The same candidate passes for this GPU, and cannot be so fast on one with a hundredth of its bandwidth."""
    here = gpu()
    dram = msgspec.structs.replace(here.memory.dram, bandwidth_bytes_per_s=here.memory.dram.bandwidth_bytes_per_s / 100)
    slow = msgspec.structs.replace(here, memory=msgspec.structs.replace(here.memory, dram=dram))
    found = examine(proposal(find_task("softmax").examples[0].read_text()), slow, SETTINGS)
    assert found.refused_by == "fast"
    assert "is less than the" in found.message


@pytest.mark.usefixtures("opened")
def test_no_lines_of_the_l2_persist_when_it_is_timed() -> None:
    examination = Examination(proposal(PERSISTING), gpu(), SETTINGS)
    task = examination.task
    drawn = wire.Drawn(task="softmax", sizes={"m": 64, "n": 64}, dtype="fp32", seed=1)
    try:
        worker = examination._running()
        worker.ask(wire.Prepare(sets=(drawn,)), wire.Acknowledged, 60)
        with pytest.raises(WorkerRefused, match="RuntimeError: 0 bytes"):
            worker.ask(wire.RunWorker(count=1), wire.Acknowledged, 60)
    finally:
        examination.close()
    assert task.name == "softmax"


def test_a_candidate_in_cuda_passes_every_gate_and_is_timed() -> None:
    found = examine(SOFTMAX_IN_CUDA, gpu(), SETTINGS)
    assert found.refused_by == "", found.message
    assert [result.gate for result in found.results] == list(GATES)
    assert found.speed_up is not None
    assert 0.05 < found.speed_up < 100


@pytest.mark.parametrize(
    ("old", "new", "gate", "says"),
    [
        ("/ sum)", "/ sum * 1.01f)", "right", "y is off by"),
        ("y[blockIdx.x * n + at] =", "y[blockIdx.x * n + at + 1] =", "right", "beside y"),
        ("const X* row = x", "const_cast<X*>(x)[0] = round_to<X>(0);\n    const X* row = x", "right", ""),
    ],
)
def test_what_is_wrong_in_cuda_is_refused(old: str, new: str, gate: str, says: str) -> None:
    assert old in SOFTMAX_IN_CUDA.source
    found = examine(
        msgspec.structs.replace(SOFTMAX_IN_CUDA, source=SOFTMAX_IN_CUDA.source.replace(old, new)), gpu(), SETTINGS
    )
    assert found.refused_by in (gate, "honest"), found.message
    assert says in found.message


def test_scratch_memory_holds_nothing_of_the_call_before() -> None:
    """It leaves its result there, and gives that again where it finds it; the memory is poisoned in every call."""
    source = SOFTMAX_IN_CUDA.source.replace(
        "long long x_column) {",
        "long long x_column, unsigned* kept) {\n    if (kept[0] == 7) return;\n    kept[0] = 7;",
    )
    launch = msgspec.structs.replace(
        SOFTMAX_IN_CUDA.launches[0], arguments=(*SOFTMAX_IN_CUDA.launches[0].arguments, "kept"), grid=("x_size0",)
    )
    proposal = msgspec.structs.replace(SOFTMAX_IN_CUDA, source=source, launches=(launch,), scratch={"kept": "4"})
    found = examine(proposal, gpu(), SETTINGS)
    # Blocks that run at the same time find nothing yet: rows are missing where there are more, at last when timed.
    assert found.refused_by in ("right", "fast"), found.message
    assert "not finite" in found.message
