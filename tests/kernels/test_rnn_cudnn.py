"""cuDNN as an implementation of layers: where it is offered, what is predicted, and what the modules make of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from constrint.errors import UnsupportedError, UsageError
from constrint.flashrnn import plan, rnn
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.kernels.rnn import first_choice as rnn_first_choice
from constrint.kernels.rnn import measured as known_layers
from constrint.kernels.rnn.cudnn import cost, first_choice
from constrint.kernels.rnn.cudnn.algorithm import Shape, algorithm_of, is_persistent
from constrint.kernels.rnn.cudnn.cost import layer_s, left_out_error
from constrint.kernels.rnn.cudnn.first_choice import Layers, prefers_cudnn
from constrint.kernels.rnn.cudnn.launch import _parts
from constrint.kernels.rnn.offer import Offer
from constrint.kernels.rnn.spec import RnnSpec, workload_of
from constrint.select.rank import rank

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
    monkeypatch.setattr(cost, "MEASURED", tmp_path)


def seconds(
    dtype: str, batch: int, dim: int, time: int, direction: str = "forward", *, inputs: int = 0
) -> float | None:
    cell = "gru" if dtype == "fp32" else "lstm"
    return layer_s("Test", Shape(cell, dtype, batch, dim, inputs or dim), time, direction)


@pytest.mark.usefixtures("made_up")
def test_times_are_interpolated_along_units_batch_and_steps() -> None:
    assert seconds("fp16", 16, 256, 128) == pytest.approx(1e-3)
    assert seconds("fp16", 16, 256, 128, "backward") == pytest.approx(2e-3)
    assert seconds("fp16", 16, 512, 128) == pytest.approx(2e-3)
    assert seconds("fp16", 32, 512, 128) == pytest.approx(2e-3 * 2**0.5)
    assert seconds("fp16", 16, 256, 256) == pytest.approx(2e-3)
    assert seconds("fp16", 16, 1024, 4096) == pytest.approx(0.128), "more steps take longer in proportion"
    twice = layer_s("Test", Shape("gru", "fp32", 16, 256, 256, 2), 128, "forward")
    assert twice == pytest.approx(4e-3), "both directions take twice the time"


@pytest.mark.usefixtures("made_up")
def test_the_projection_is_taken_off_and_leaves_something() -> None:
    assert seconds("fp32", 16, 256, 128) == pytest.approx(2e-3)
    assert seconds("fp32", 16, 256, 128, "backward") == pytest.approx(3e-3)
    assert seconds("fp32", 16, 512, 128) == pytest.approx(cost.LEAST_SHARE * 1e-3)


@pytest.mark.usefixtures("made_up")
def test_a_backward_pass_takes_time_even_where_the_noise_says_otherwise() -> None:
    assert seconds("fp32", 64, 512, 128, "backward") == pytest.approx(cost.LEAST_SHARE * 2.9e-3)


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
    assert is_persistent(Shape("lstm", "fp16", 16, 1024, 256))
    for other in (
        Shape("lstm", "bf16", 16, 1024, 256),
        Shape("gru", "fp16", 16, 1024, 256),
        Shape("lstm", "fp16", 12, 1024, 256),
        Shape("lstm", "fp16", 136, 1024, 256),
        Shape("lstm", "fp16", 16, 1152, 256),
        Shape("lstm", "fp16", 16, 1024, 250),
        Shape("lstm", "fp16", 16, 1024, 256, 2),
        Shape("elman", "fp16", 96, 896, 256),
    ):
        assert not is_persistent(other), other
    assert algorithm_of(Shape("gru", "fp32", 1, 160, 160), "forward").is_small
    assert not algorithm_of(Shape("gru", "fp32", 1, 160, 160), "backward").is_small


def test_the_shipped_measurements_are_read_and_near_each_other() -> None:
    measured = cost.measured("H200-SXM")
    assert {kind.cell for kind in measured} >= {"lstm", "gru"}
    assert all(s > 0 for points in measured.values() for b in points.values() for d in b.values() for s in d.values())
    assert 0 < left_out_error("H200-SXM") < 1
    assert cost.measured("MI300X") == {}


def test_the_plan_takes_cudnn_where_it_is_predicted_to_be_fastest() -> None:
    found = plan("lstm", batch=16, time=1024, head_dim=1024, dtype="fp16", gpu="h200")
    cudnn = found.offer_of("cudnn")
    assert cudnn.total_s > 0
    assert (
        found.backend
        == min((o for o in (found.chosen, *found.others) if not o.refusal), key=lambda o: o.total_s).backend
    )
    projected = plan("lstm", batch=16, time=1024, head_dim=1024, dtype="fp16", gpu="h200", projected=True)
    assert projected.backend != "cudnn"
    assert projected.offer_of("cudnn") == cudnn
    assert "not cudnn: modelled forward" in str(projected)
    assert "(in modules alone)" in str(projected)


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
    assert found.backend != "cudnn"
    assert reason in found.offer_of("cudnn").refusal


def test_an_slstm_has_no_such_implementation() -> None:
    assert "cudnn" not in str(plan("slstm", batch=16, time=64, head_dim=64, gpu="h200"))


def test_it_stands_in_the_ranking_with_its_time_and_its_error() -> None:
    gpu, workload = load_gpu("h200"), workload_of("lstm", (16, 1024, 1, 512), "fp16")
    ranking = rank(load_kernel("lstm"), gpu, workload, top=10_000)
    (candidate,) = (c for c in ranking.candidates if c.kernel == "lstm.cudnn")
    expected = layer_s(gpu.name, Shape("lstm", "fp16", 16, 512, 512), 1024, "forward")
    assert candidate.cost.seconds == expected
    assert candidate.cost.bound_by == "latency"
    assert any("interpolated: off by up to" in text for text in load_spec("lstm.cudnn").assumptions(gpu, workload))


def test_projected_inputs_are_refused_with_the_way_out() -> None:
    wx, r = torch.zeros(2, 3, 4, 1, 8), torch.zeros(4, 1, 8, 8)
    with pytest.raises(UnsupportedError, match=r"runs in the modules LSTM, GRU and RNN alone. Use 'auto'"):
        rnn(wx, r, backend="cudnn")
    with pytest.raises(UsageError, match="unknown backend 'cudnn'"):
        rnn(wx, r, cell="slstm", backend="cudnn")


@pytest.fixture
def on_h200(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A device whose model is the H200's; decisions that were made without it are forgotten."""
    prefers_cudnn.cache_clear()
    monkeypatch.setattr(first_choice, "gpu_of", lambda device: load_gpu("h200"))
    monkeypatch.setattr(first_choice, "predicted_s", lambda *args, **options: 4e-3)
    monkeypatch.setattr(first_choice, "measured_s", lambda *args, **options: None)
    return torch.device("cuda", 0)


def test_modules_leave_to_cudnn_what_it_is_faster_at(on_h200: torch.device) -> None:
    layers = Layers("lstm", "fp16", 16, 1024, 1024, 1024, 1, 1, trains=False)
    assert prefers_cudnn(layers, on_h200)
    assert not prefers_cudnn(layers._replace(trains=True), on_h200), "its backward pass takes longer than 4 ms"
    assert not prefers_cudnn(layers._replace(batch=12), on_h200), "the persistent algorithm takes multiples of 8"
    assert not prefers_cudnn(layers._replace(input_size=1000), on_h200)
    assert not prefers_cudnn(layers._replace(directions=2), on_h200)
    assert not prefers_cudnn(layers._replace(cell="gru"), on_h200)
    assert prefers_cudnn(layers._replace(num_layers=3, time=2048), on_h200)
    prefers_cudnn.cache_clear()


def test_a_direction_that_was_not_measured_counts_as_it_is_predicted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The forward kernel for many sequences goes with a backward pass whose layers were measured."""
    shutil.copytree(known_layers.IMPLEMENTATIONS / "cuda" / "measured", tmp_path / "cuda" / "measured")
    monkeypatch.setattr(known_layers, "IMPLEMENTATIONS", tmp_path)  # without the table of the forward kernel
    monkeypatch.setattr(rnn_first_choice, "gpu_of", lambda device: load_gpu("h200"))
    usual = SimpleNamespace(backend="wgmma", seconds={"forward": 4e-3, "backward": 12e-3})
    monkeypatch.setattr(rnn_first_choice, "_plan", lambda kind: SimpleNamespace(chosen=usual))
    asked = (256, 1, 768), "bf16", torch.device("cuda", 0)
    backward = load_spec("lstm-backward.cuda")
    assert isinstance(backward, RnnSpec)
    workload = workload_of("lstm", (256, 1024, 1, 768), "bf16", "backward")
    known = known_layers.measured_layer("cuda", backward, load_gpu("h200"), workload)
    assert known is not None
    whole = rnn_first_choice.measured_s("lstm", *asked, trains=True, time=1024)
    assert whole == pytest.approx(4e-3 + known.seconds)
    assert rnn_first_choice.measured_s("lstm", *asked, trains=False, time=1024) is None


#: Layers of which both were measured on an H200: units, dtype, and whether cuDNN was faster in training and without it.
BOTH_MEASURED = [(1500, "tf32", True, True), (1500, "fp32", False, False), (650, "tf32", False, False)]


@pytest.mark.parametrize(("dim", "dtype", "trained", "inferred"), BOTH_MEASURED)
def test_where_both_were_measured_the_faster_one_runs(
    monkeypatch: pytest.MonkeyPatch, dim: int, dtype: str, trained: bool, inferred: bool
) -> None:
    prefers_cudnn.cache_clear()
    for module in (first_choice, rnn_first_choice):
        monkeypatch.setattr(module, "gpu_of", lambda device: load_gpu("h200"))
    usual = SimpleNamespace(backend="cuda", seconds={"forward": 1e-3, "backward": 2e-3})
    monkeypatch.setattr(rnn_first_choice, "_plan", lambda kind: SimpleNamespace(chosen=usual))
    device = torch.device("cuda", 0)
    layers = Layers("lstm", dtype, 20, 35, dim, dim, 2, 1, trains=True)
    assert prefers_cudnn(layers, device) == trained
    assert prefers_cudnn(layers._replace(trains=False), device) == inferred
    prefers_cudnn.cache_clear()
    # What the plan says is what the modules do; projected inputs are our kernels' alone.
    sizes = {"batch": 20, "time": 35, "head_dim": dim, "dtype": dtype, "gpu": "h200"}
    found = plan("lstm", **sizes)  # type: ignore[arg-type]
    assert (found.backend == "cudnn") == trained
    assert "both this layer and the library's were measured" in found.why
    ours = plan("lstm", **sizes, projected=True)  # type: ignore[arg-type]
    assert ours.backend == "cuda"
    assert ours.chosen.measured.keys() == {"forward", "backward"}
    assert "measured forward" in str(ours)


def test_steps_beyond_those_that_were_measured_take_what_is_predicted() -> None:
    def ours(time: int) -> Offer:
        return plan("lstm", batch=20, time=time, head_dim=1500, dtype="tf32", gpu="h200").offer_of("cuda")

    few, more = ours(35), ours(70)
    each = {direction: seconds / 70 for direction, seconds in more.seconds.items()}
    for direction, seconds in more.measured.items():
        assert seconds == pytest.approx(few.measured[direction] + 35 * each[direction])
    spec = load_spec("lstm.cuda")
    assert isinstance(spec, RnnSpec)
    two_heads = workload_of("lstm", (20, 35, 2, 1500), "tf32")
    assert known_layers.measured_layer("cuda", spec, load_gpu("h200"), two_heads) is None


def test_a_gpu_without_measurements_leaves_nothing_to_it(
    monkeypatch: pytest.MonkeyPatch, on_h200: torch.device
) -> None:
    layers = Layers("lstm", "fp16", 16, 1024, 1024, 1024, 1, 1, trains=False)
    for model in (load_gpu("a100"), None):
        prefers_cudnn.cache_clear()
        monkeypatch.setattr(first_choice, "gpu_of", lambda device, model=model: model)
        assert not prefers_cudnn(layers, on_h200)
    prefers_cudnn.cache_clear()


def test_a_buffer_is_made_of_weights_and_gaps() -> None:
    assert list(_parts([(0, 4), (6, 2), (4, 2)], 8)) == [(0, 4), (2, 2), (1, 2)]
    assert list(_parts([(2, 4)], 9)) == [(None, 2), (0, 4), (None, 3)]
