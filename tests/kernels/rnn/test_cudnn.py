"""cuDNN as an implementation of layers: where it is offered, what is predicted, and what the modules make of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from constrint.choose import Decision, Evidence, Program, Request, decide, forget
from constrint.errors import UnsupportedError, UsageError
from constrint.flashrnn import plan, rnn
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.kernels.rnn import candidates
from constrint.kernels.rnn import measured as known_layers
from constrint.kernels.rnn.candidates import PLANNED_TIME, LayerDetail, ModuleCall, implementations_of
from constrint.kernels.rnn.cudnn import launch, spec
from constrint.kernels.rnn.cudnn.launch import _parts
from constrint.kernels.rnn.cudnn.spec import CudnnLayer, algorithm_of, is_persistent, layer_s, left_out_error
from constrint.kernels.rnn.spec import RnnSpec, predict_s, workload_of
from constrint.select.rank import rank
from tests.support.decisions import begin_anew

ROWS = """# made up: powers, so that interpolation along logarithms is exact
cell,dtype,batch,dim,time,forward_ms,both_ms,projection_forward_ms,projection_both_ms
lstm,fp16,16,256,128,1,3,0,0
lstm,fp16,16,1024,128,4,12,0,0
lstm,fp16,64,256,128,2,6,0,0
lstm,fp16,64,1024,128,8,24,0,0
lstm,fp16,16,256,1024,8,24,0,0
lstm,fp16,16,1024,1024,32,96,0,0
lstm,fp16,20,512,1024,500,900,0,0
gru,fp32,16,256,128,3,8,1,3
gru,fp32,16,512,128,1,2,0.9,1.8
gru,fp32,64,512,128,3,2.9,0,0
"""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measurements of a GPU called `test`."""
    (tmp_path / "test.csv").write_text(ROWS)
    monkeypatch.setattr(spec, "MEASURED", tmp_path)


def seconds(
    dtype: str, batch: int, dim: int, time: int, direction: str = "forward", *, inputs: int = 0
) -> float | None:
    cell = "gru" if dtype == "fp32" else "lstm"
    return layer_s("Test", CudnnLayer(cell, dtype, batch, dim, inputs or dim), time, direction)


@pytest.mark.usefixtures("made_up")
def test_times_are_interpolated_along_units_batch_and_steps() -> None:
    assert seconds("fp16", 16, 256, 128) == pytest.approx(1e-3)
    assert seconds("fp16", 16, 256, 128, "backward") == pytest.approx(2e-3)
    assert seconds("fp16", 16, 512, 128) == pytest.approx(2e-3)
    assert seconds("fp16", 32, 512, 128) == pytest.approx(2e-3 * 2**0.5)
    assert seconds("fp16", 16, 256, 256) == pytest.approx(2e-3)
    assert seconds("fp16", 16, 1024, 4096) == pytest.approx(0.128), "more steps take longer in proportion"
    twice = layer_s("Test", CudnnLayer("gru", "fp32", 16, 256, 256, 2), 128, "forward")
    assert twice == pytest.approx(4e-3), "both directions take twice the time"


@pytest.mark.usefixtures("made_up")
def test_the_projection_is_taken_off_and_leaves_something() -> None:
    assert seconds("fp32", 16, 256, 128) == pytest.approx(2e-3)
    assert seconds("fp32", 16, 256, 128, "backward") == pytest.approx(3e-3)
    assert seconds("fp32", 16, 512, 128) == pytest.approx(spec.LEAST_SHARE * 1e-3)


@pytest.mark.usefixtures("made_up")
def test_a_backward_pass_takes_time_even_where_the_noise_says_otherwise() -> None:
    assert seconds("fp32", 64, 512, 128, "backward") == pytest.approx(spec.LEAST_SHARE * 2.9e-3)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("batch", "dim", "time", "inputs"),
    [
        pytest.param(8, 256, 128, 0, id="fewer sequences"),
        pytest.param(128, 256, 128, 0, id="more sequences"),
        pytest.param(16, 128, 128, 0, id="fewer units"),
        pytest.param(16, 256, 64, 0, id="fewer steps"),
        pytest.param(20, 256, 128, 0, id="sequences of another algorithm"),
        pytest.param(16, 320, 128, 0, id="units of another algorithm"),
        pytest.param(16, 256, 128, 100, id="inputs of another algorithm"),
    ],
)
def test_nothing_is_said_beyond_what_was_measured(batch: int, dim: int, time: int, inputs: int) -> None:
    assert seconds("fp16", batch, dim, time, inputs=inputs) is None


def test_the_algorithms_are_those_that_torch_asks_for() -> None:
    assert is_persistent(CudnnLayer("lstm", "fp16", 16, 1024, 256))
    for other in (
        CudnnLayer("lstm", "bf16", 16, 1024, 256),
        CudnnLayer("gru", "fp16", 16, 1024, 256),
        CudnnLayer("lstm", "fp16", 12, 1024, 256),
        CudnnLayer("lstm", "fp16", 136, 1024, 256),
        CudnnLayer("lstm", "fp16", 16, 1152, 256),
        CudnnLayer("lstm", "fp16", 16, 1024, 250),
        CudnnLayer("lstm", "fp16", 16, 1024, 256, 2),
        CudnnLayer("elman", "fp16", 96, 896, 256),
    ):
        assert not is_persistent(other), other
    assert algorithm_of(CudnnLayer("gru", "fp32", 1, 160, 160), "forward").is_small
    assert not algorithm_of(CudnnLayer("gru", "fp32", 1, 160, 160), "backward").is_small


def test_the_shipped_measurements_are_read_and_near_each_other() -> None:
    measured = spec.measured("H200-SXM")
    assert {kind.cell for kind in measured} >= {"lstm", "gru"}
    assert all(s > 0 for points in measured.values() for b in points.values() for d in b.values() for s in d.values())
    assert 0 < left_out_error("H200-SXM") < 1
    assert spec.measured("MI300X") == {}


def test_errors_are_those_of_the_table_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "MEASURED", tmp_path)
    spec.measured.cache_clear()
    assert left_out_error("H200-SXM") == 0.0, "there is no table"
    monkeypatch.undo()
    spec.measured.cache_clear()
    assert left_out_error("H200-SXM") > 0


def test_the_plan_takes_cudnn_where_it_is_predicted_to_be_fastest() -> None:
    found = plan("lstm", batch=16, time=1024, head_dim=1024, dtype="fp16", gpu="h200")
    cudnn = found.program_of("cudnn")
    assert cudnn.seconds
    assert cudnn.needs == "modules"
    able = [program for program in found.programs if not program.refusal]
    assert found.program is min(able, key=lambda program: program.seconds or 0)
    projected = plan("lstm", batch=16, time=1024, head_dim=1024, dtype="fp16", gpu="h200", projected=True)
    assert projected.program.name != "cudnn"
    assert projected.program_of("cudnn") == cudnn


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"heads": 2}, "have one head, the workload has 2"),
        ({"gpu": "a100"}, "were not measured on A100"),
        ({"head_dim": 4096}, "no cuDNN layer near"),
        ({"dtype": "fp64"}, "unknown dtype 'fp64'"),
    ],
)
def test_what_it_cannot_or_nobody_measured_is_not_offered(change: dict[str, object], reason: str) -> None:
    asked = {"batch": 16, "time": 1024, "head_dim": 512, "dtype": "fp16", "gpu": "h200", **change}
    found = plan("lstm", **asked)  # type: ignore[arg-type]
    assert found.program.name != "cudnn"
    assert reason in found.program_of("cudnn").refusal


def test_an_slstm_has_no_such_implementation() -> None:
    found = plan("slstm", batch=16, time=64, head_dim=64, gpu="h200")
    assert "cudnn" not in [program.name for program in found.programs]


def test_it_stands_in_the_ranking_with_its_time_and_its_error() -> None:
    gpu, workload = load_gpu("h200"), workload_of("lstm", (16, 1024, 1, 512), "fp16")
    ranking = rank(load_kernel("lstm"), gpu, workload, top=10_000)
    (candidate,) = (c for c in ranking.candidates if c.kernel == "lstm.cudnn")
    expected = layer_s(gpu.name, CudnnLayer("lstm", "fp16", 16, 512, 512), 1024, "forward")
    assert candidate.cost.seconds == expected
    assert candidate.cost.bound_by == "latency"
    assert any("interpolated: off by up to" in text for text in load_spec("lstm.cudnn").assumptions(gpu, workload))


def test_projected_inputs_are_refused_with_the_way_out() -> None:
    wx, r = torch.zeros(2, 3, 4, 1, 8), torch.zeros(4, 1, 8, 8)
    with pytest.raises(UnsupportedError, match=r"runs in the modules LSTM, GRU and RNN alone. Use 'auto'"):
        rnn(wx, r, backend="cudnn")
    with pytest.raises(UsageError, match="unknown backend 'cudnn'"):
        rnn(wx, r, cell="slstm", backend="cudnn")


def module(call: ModuleCall, cell: str = "lstm", dtype: str = "fp16", dim: int = 1024, gpu: str = "h200") -> Decision:
    """The decision for a module's call."""
    batch = 1 << (call.batch - 1).bit_length()
    workload = workload_of(cell, (batch, PLANNED_TIME, call.directions, dim), dtype)
    both = ("forward", "backward")
    return decide(Request(cell, workload, load_gpu(gpu), directions=both, detail=LayerDetail(module=call)))


CALL = ModuleCall(16, 1024, 1024, trains=False)


@pytest.fixture
def slow_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels take 4 ms for 1,024 steps, whatever was measured of them."""
    begin_anew(monkeypatch)
    monkeypatch.setattr(candidates, "predict_s", lambda *_: 4e-3)
    monkeypatch.setattr(candidates, "measured_layer", lambda *_: None)


@pytest.mark.usefixtures("slow_kernels")
def test_modules_leave_to_cudnn_what_it_is_faster_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_cudnn(call: ModuleCall, cell: str = "lstm") -> bool:
        return module(call, cell).program.name == "cudnn"

    assert takes_cudnn(CALL)
    assert not takes_cudnn(CALL._replace(batch=12)), "the persistent algorithm takes multiples of 8"
    assert not takes_cudnn(CALL._replace(input_size=1000))
    assert not takes_cudnn(CALL._replace(directions=2))
    assert not takes_cudnn(CALL, "gru")
    assert takes_cudnn(CALL._replace(num_layers=3, time=2048))
    assert not takes_cudnn(CALL._replace(refusals=(("cudnn", "deterministic algorithms are asked for"),)))
    monkeypatch.setattr(candidates, "predict_s", lambda *_: 3e-3)
    forget()
    assert not takes_cudnn(CALL._replace(trains=True)), "its backward pass takes longer"


def test_a_direction_that_was_not_measured_counts_as_it_is_predicted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The forward kernel for many sequences goes with a backward pass whose layers were measured."""
    shutil.copytree(known_layers.IMPLEMENTATIONS / "cuda" / "measured", tmp_path / "cuda" / "measured")
    begin_anew(monkeypatch)
    monkeypatch.setattr(known_layers, "IMPLEMENTATIONS", tmp_path)  # without the table of the forward kernel
    call = ModuleCall(256, 1024, 768)
    found = module(call, dtype="bf16", dim=768).program_of("wgmma")
    spec = load_spec("lstm-backward.cuda")
    assert isinstance(spec, RnnSpec)
    workload = workload_of("lstm", (256, 1024, 1, 768), "bf16", "backward")
    known = known_layers.measured_layer("cuda", spec, load_gpu("h200"), workload)
    assert known is not None
    forward, backward = found.steps
    assert backward.seconds == pytest.approx(known.seconds)
    assert forward.evidence is not Evidence.ELSEWHERE
    spec = load_spec("lstm.wgmma")
    assert isinstance(spec, RnnSpec)
    usual = spec.run_as(workload_of("lstm", (256, 1024, 1, 768), "bf16"))
    assert forward.seconds == pytest.approx(predict_s(spec, load_gpu("h200"), usual, forward.config))


#: Layers of which both were measured on an H200: units, dtype, and whether cuDNN was faster in training and without it.
BOTH_MEASURED = [(1500, "tf32", True, True), (1500, "fp32", False, False), (650, "tf32", False, False)]


@pytest.mark.parametrize(("dim", "dtype", "trained", "inferred"), BOTH_MEASURED)
def test_where_both_were_measured_the_faster_one_runs(
    monkeypatch: pytest.MonkeyPatch, dim: int, dtype: str, trained: bool, inferred: bool
) -> None:
    call, every = ModuleCall(20, 35, dim, 2), implementations_of("lstm")
    with monkeypatch.context() as patch:
        begin_anew(patch)
        # As if the CUDA kernels ran whatever the kernels run.
        patch.setattr(candidates, "implementations_of", lambda _: {name: every[name] for name in ("cuda", "cudnn")})
        patch.setattr(candidates, "implementations", lambda _: None)
        assert (module(call, dtype=dtype, dim=dim).program.name == "cudnn") == trained
        assert (module(call._replace(trains=False), dtype=dtype, dim=dim).program.name == "cudnn") == inferred
    # The plan says what the modules do; projected inputs are our kernels' alone.
    sizes = {"batch": 20, "time": 35, "head_dim": dim, "dtype": dtype, "gpu": "h200"}
    found = plan("lstm", **sizes)  # type: ignore[arg-type]
    assert (found.program.name == "cudnn") == trained
    assert "both this layer and the library's were measured" in found.program.why
    ours = plan("lstm", **sizes, projected=True).program  # type: ignore[arg-type]
    assert ours.name == "cuda"
    assert [step.evidence for step in ours.steps] == [Evidence.ELSEWHERE] * 2
    assert "measured forward" in ours.note


def test_steps_beyond_those_that_were_measured_take_what_is_predicted() -> None:
    def ours(time: int) -> Program:
        return plan("lstm", batch=20, time=time, head_dim=1500, dtype="tf32", gpu="h200").program_of("cuda")

    few, more = ours(35), ours(70)
    for step in more.steps:
        spec = load_spec(step.kernel)
        assert isinstance(spec, RnnSpec)
        whole = spec.run_as(workload_of("lstm", (20, 70, 1, 1500), "tf32", step.role))
        each = predict_s(spec, load_gpu("h200"), whole, step.config) / 70
        assert step.seconds == pytest.approx((few.step(step.role).seconds or 0) + 35 * each)
    spec = load_spec("lstm.cuda")
    assert isinstance(spec, RnnSpec)
    two_heads = workload_of("lstm", (20, 35, 2, 1500), "tf32")
    assert known_layers.measured_layer("cuda", spec, load_gpu("h200"), two_heads) is None


@pytest.mark.usefixtures("slow_kernels")
def test_a_gpu_without_measurements_leaves_nothing_to_it() -> None:
    found = module(CALL, gpu="a100")
    assert found.program.name != "cudnn"
    assert "not measured on A100" in found.program_of("cudnn").refusal


def test_a_buffer_is_made_of_weights_and_gaps() -> None:
    assert list(_parts([(0, 4), (6, 2), (4, 2)], 8)) == [(0, 4), (2, 2), (1, 2)]
    assert list(_parts([(2, 4)], 9)) == [(None, 2), (0, 4), (None, 3)]


def moved(weights: list[Any], *options: Any) -> Any:
    """Move weights into one buffer, as the operator does: at multiples of 32 elements, with a gap at the end."""
    places, end = [], 0
    for weight in weights:
        places.append(end)
        end += -(-weight.numel() // 32) * 32
    buffer = torch.zeros(end + 32)
    for weight, place in zip(weights, places, strict=True):
        view = buffer[place : place + weight.numel()].view(weight.shape)
        weight.set_(view.copy_(weight))
    return buffer


def test_parameters_lie_in_one_buffer_and_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_cudnn_rnn_flatten_weight", moved)
    launch._layout.cache_clear()
    launch._layout_of.cache_clear()
    call = launch.CudnnCall("gru", 24, 16, 1, False, True, False, False, False)
    weights = [torch.nn.Parameter(torch.randn(shape)) for shape in ((48, 24), (48, 16), (48,), (48,))]
    before = [weight.detach().clone() for weight in weights]
    concatenated = launch._buffer(call, weights)
    assert launch.lie_flat(call, weights)
    assert all(torch.equal(one, other) for one, other in zip(weights, before, strict=True))
    buffer = launch._buffer(call, weights)
    assert torch.equal(buffer, concatenated)
    assert buffer.data_ptr() == weights[0].data_ptr()
    weights[3].data.add_(1.0)
    assert torch.equal(buffer[-96:-48], weights[3]), "nothing is copied, so that no change is missed"
    assert launch.lie_flat(call, weights), "they lie there already"
    weights[1].data = before[1].clone()
    apart = launch._buffer(call, weights)
    assert torch.equal(apart, buffer)
    assert apart.data_ptr() != weights[0].data_ptr()
    # Those that share memory with others, or would begin at other multiples of bytes, stay where they are.
    assert not launch.lie_flat(call, weights)
    narrow = launch.CudnnCall("gru", 3, 5, 1, False, True, False, False, False)
    odd = [torch.nn.Parameter(torch.randn(shape)) for shape in ((15, 3), (15, 5), (15,), (15,))]
    monkeypatch.setattr(torch, "_cudnn_rnn_flatten_weight", tight)
    assert not launch.lie_flat(narrow, odd)
    launch._layout.cache_clear()
    launch._layout_of.cache_clear()


def tight(weights: list[Any], *options: Any) -> Any:
    """The same without space in between."""
    buffer, end = torch.zeros(sum(weight.numel() for weight in weights)), 0
    for weight in weights:
        weight.set_(buffer[end : end + weight.numel()].view(weight.shape).copy_(weight))
        end += weight.numel()
    return buffer
