"""Layers that leave Python: torch.jit.trace, torch.jit.script, torch.export and ONNX, run and compared."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from constrint.errors import UnsupportedError
from constrint.flashrnn import GRU, LSTM, RNN, SLSTM, checks, module
from tests.support.layers import MODULES, same

X = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(0))
#: What no module of torch.nn computes.
OWN: dict[str, tuple[Any, dict[str, Any]]] = {
    "slstm": (SLSTM, {}),
    "heads": (LSTM, {"num_heads": 2}),
    "loop": (GRU, {"backend": "alternating", "bidirectional": True}),
    "clip": (RNN, {"gradient_recurrent_clip": 1.0}),
}
LAYERS = {**{name: (ours, {"bidirectional": True}) for name, (ours, _) in MODULES.items()}, **OWN}
every_layer = pytest.mark.parametrize("name", LAYERS)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """torch warns that jit and its older exporter go out of use; pytest would keep all that exporters log, slowly."""
    trace = logging.getLogger("torch.__trace")
    before, trace.propagate = trace.propagate, False
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)
    trace.propagate = before


def make(name: str, **options: Any) -> Any:
    torch.manual_seed(1)
    module, extra = LAYERS[name]
    return module(6, 8, num_layers=2, **extra, **options)


@every_layer
def test_a_trace_passes_its_check_takes_other_sizes_and_trains(name: str) -> None:
    layer = make(name)
    jit: Any = torch.jit
    traced = jit.trace(layer, (X,), check_trace=True)
    other = torch.randn(6, 2, 6)
    same(traced(other), layer(other))
    assert isinstance(traced, nn.Module)
    gradients = [torch.autograd.grad(each(other)[0].sum(), list(each.parameters())) for each in (traced, layer)]
    same(gradients[0], gradients[1])


@pytest.mark.parametrize("name", MODULES)
def test_a_script_is_torchs_module_on_the_same_parameters(name: str) -> None:
    class Model(nn.Module):
        """A model that has a layer, as users script it."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = make(name, batch_first=True, dropout=0.3)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.layer(x)[0]
            return output * 2

    model = Model().eval()
    weight = model.layer.weight_hh_l0
    scripted: Any = torch.jit.script(model)
    same(scripted(X), model(X))
    with torch.no_grad():
        model.layer.weight_hh_l0.mul_(0.5)
    same(scripted(X), model(X))
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    jit: Any = torch.jit
    loaded = jit.load(buffer)
    assert list(loaded.state_dict()) == list(model.state_dict())
    same(loaded(X), model(X))
    assert model.layer.weight_hh_l0 is weight
    assert scripted.train()(X).shape == (4, 3, 16)


@pytest.mark.parametrize(("name", "reason"), [
    ("slstm", "none for the cell slstm"), ("heads", "num_heads=2"), ("loop", "backend='alternating'"),
    ("clip", "gradient_recurrent_clip=1.0"),
])  # fmt: skip
def test_a_script_of_what_torch_has_not_is_refused_with_the_way_out(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"{reason}\. Use torch.jit.trace, torch.export or torch.compile"):
        torch.jit.script(make(name))


def test_a_script_of_a_computed_weight_is_refused() -> None:
    layer = make("gru")
    parametrizations.weight_norm(layer, "weight_hh_l0")
    with pytest.raises(UnsupportedError, match="with parametrizations: remove them first"):
        torch.jit.script(layer)


def export(*given: Any, **options: Any) -> None:
    """torch.onnx.export, whose requirements torch does not install."""
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    torch.onnx.export(*given, **options)


def operators(path: Path) -> set[str]:
    """The operators of a graph in a file."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    model = onnx.load(path)
    onnx.checker.check_model(model)
    return {node.op_type for node in model.graph.node}


def run(path: Path, *operands: Tensor) -> list[Tensor]:
    """What onnxruntime computes."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    found = session.run(None, {name: x.numpy() for name, x in zip(names, operands, strict=True)})
    return [torch.from_numpy(np.asarray(array)) for array in found]


@every_layer
def test_the_older_exporter_gives_onnx_what_it_has_and_plain_steps_else(name: str, tmp_path: Path) -> None:
    """ONNX's own layers take any batch and length; where steps are written out one by one the length is fixed."""
    layer, path, steps = make(name).eval(), tmp_path / "layer.onnx", 4 if name in ("slstm", "heads") else 7
    axes = {1: "batch"} if steps == 4 else {0: "time", 1: "batch"}
    export(layer, (X,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": axes})
    own = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN", "loop": "GRU", "clip": "RNN"}
    assert operators(path) & {"LSTM", "GRU", "RNN"} == ({own[name]} if name in own else set())
    other = torch.randn(steps, 5, 6)
    with torch.no_grad():
        same(run(path, other), layer(other))


def test_a_cell_of_ones_own_is_written_out_step_by_step(tmp_path: Path) -> None:
    from examples.cells.mgu import mgu

    layer, path = module(mgu)(6, 8, 2, bidirectional=True).eval(), tmp_path / "layer.onnx"
    x = torch.randn(4, 3, 6)
    export(layer, (x,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {1: "batch"}})
    other = torch.randn(4, 5, 6)
    with torch.no_grad():
        same(run(path, other), layer(other))


class Both(nn.Module):
    """A layer that ONNX has, and one that it has not, over sequences of some lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GRU(6, 6, backend="alternating")
        self.second = LSTM(6, 8, num_heads=2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        output: Tensor = self.second(self.first(x)[0], lengths=lengths)[0]
        return output


@pytest.mark.slow
def test_an_export_has_onnxs_own_layer_or_every_step(tmp_path: Path) -> None:
    model, path = Both().eval(), tmp_path / "layer.onnx"
    export(model, (X[:2], torch.tensor([2, 1, 0])), path, dynamo=True, verbose=False)
    assert operators(path) & {"LSTM", "GRU"} == {"GRU"}
    other, lengths = torch.randn(2, 3, 6), torch.tensor([1, 2, 2])
    with torch.no_grad():
        same(run(path, other, lengths), model(other, lengths))


def test_an_export_of_steps_without_number_says_why_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter keeps to itself what is raised in its first attempt; the warning is what its user sees."""
    monkeypatch.setattr(checks, "is_exporting_onnx", lambda: True)
    monkeypatch.setattr(checks, "is_symbolic", lambda _: True)
    message = "T must be fixed in an ONNX export with dynamo=True: leave it out of dynamic_shapes"
    with pytest.warns(UserWarning, match=message), pytest.raises(UnsupportedError, match=message):
        make("lstm")(X)


def test_torch_export_holds_one_operator_for_a_layer() -> None:
    layer = make("lstm").eval()
    program = torch.export.export(layer, (X,), dynamic_shapes=({1: torch.export.Dim("B")},))
    other = torch.randn(4, 5, 6)
    same(program.module()(other), layer(other))
    assert sum("rnn_forward" in str(node.target) for node in program.graph.nodes) == layer.num_layers
