"""Contenders on a layer: `torch.nn` and its projection, our function and our modules, NX-AI's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear

from benchmarks.harness.peers import cudnn_layer, nxai_layer
from benchmarks.harness.table import attempt
from benchmarks.rnn.entries import NXAI, PROJECTION, TORCH_NN
from constrint.errors import ConstrintError
from constrint.flashrnn import GRU, LSTM, RNN, rnn
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.dispatch import AUTO, list_backends
from constrint.tune.measure import Call

TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
Calls = tuple[Call, Call]
MODULES: dict[str, Any] = {"lstm": LSTM, "gru": GRU, "elman": RNN}
#: What is timed, by the kinds that a user may ask for.
KINDS = ("nn", "rnn", "module", "cudnn", "nxai")


@dataclass(frozen=True)
class Case:
    """A layer in one dtype."""

    cell: str
    heads: int
    dim: int
    batch: int
    time: int
    dtype: str


class Layer:
    """Random inputs of one recurrence, and calls of the public function on them."""

    def __init__(self, case: Case) -> None:
        self.case, self.cell = case, CELLS[case.cell]
        self.generator = torch.Generator(device="cuda").manual_seed(0)
        gates, heads, dim = self.cell.num_gates, case.heads, case.dim
        self.wx = self.draw(case.batch, case.time, gates, heads, dim)
        self.r = self.draw(gates, heads, dim, dim) / dim**0.5
        self.b = 0.3 * self.draw(gates, heads, dim)
        self.grad = self.draw(case.batch, case.time, heads, dim)

    def draw(self, *sizes: int) -> Any:
        """Normal numbers in the layer's dtype."""
        return torch.randn(sizes, generator=self.generator, device="cuda").to(TORCH[self.case.dtype])

    def public(self, backend: str) -> tuple[Call, Call]:
        """The public function with a named back-end, through autograd."""
        inputs = [x.clone().requires_grad_(True) for x in (self.wx, self.r, self.b)]
        run = partial(rnn, cell=self.cell.name, backend=backend)

        def forward() -> Any:
            with torch.no_grad():
                return run(self.wx, self.r, self.b)

        return forward, lambda: torch.autograd.grad(run(*inputs)[0][0], inputs, self.grad)


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Let products of fp32 operands be multiplied in tf32 by everyone, or by none."""
    switches: Any = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = dtype == "tf32"
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value


def contenders(
    case: Case, kinds: tuple[str, ...], backends: tuple[str, ...] = (), num_layers: int = 1
) -> Iterator[tuple[str, Any]]:
    """Name, and what makes the calls: forward, and forward and backward; as users launch them.

    Args:
        case: The layer.
        kinds: Some of `KINDS`.
        backends: Which of `rnn`; all where there are none.
        num_layers: Layers one after the other, of which modules alone know.
    """
    layer = Layer(case)
    sizes = (case.batch, case.time, case.dim)
    has_peer, is_one = case.heads == 1 and case.cell in MODULES, num_layers == 1
    x, grad = (layer.draw(*sizes), layer.draw(*sizes)) if has_peer else (None, None)
    if has_peer and "nn" in kinds:
        yield TORCH_NN, partial(cudnn_layer, case.cell, case.dim, TORCH[case.dtype], x, grad, num_layers)
        if is_one:
            yield PROJECTION, partial(_projection, case, x, layer)
    if "rnn" in kinds and is_one:
        for backend in (*_on_projected_inputs(case.cell), AUTO):
            if backend in (backends or (backend,)):
                yield f"rnn {backend}", partial(layer.public, backend)
    if has_peer:
        for kind, backend in (("module", AUTO), ("cudnn", "cudnn")):
            if kind in kinds:
                yield f"module {backend}", partial(_module, case, x, grad, backend, num_layers)
    if "nxai" in kinds and case.dtype == "bf16" and is_one:
        yield from _nxai(case, layer)


def _nxai(case: Case, layer: Layer) -> Iterator[tuple[str, Any]]:
    """NX-AI's kernels; where their package cannot be loaded, that is what one row says."""
    made: dict[str, Any] = {}
    given = layer.wx, layer.r, layer.b, layer.grad
    outcome = attempt(lambda: made.update(nxai_layer(case.cell, *given, nxai_backends(case))))["outcome"]
    if outcome != "ok":
        yield NXAI, partial(_refuse, outcome)
    for name, calls in made.items():
        yield name, partial(tuple, calls)


def nxai_backends(case: Case) -> tuple[str, ...]:
    """Those of NX-AI's back-ends that may be its fastest on a layer, since each takes up to a minute to build.

    On an H200 its fused kernels took a third of the alternating ones' time for 768 units and 16 sequences, its Triton
    kernels less than both for 64 units; of the GRU there are alternating ones alone.
    """
    if case.cell == "gru":
        return ("cuda",)
    wide = ("cuda",) if case.dim >= 1024 or case.batch >= 64 else ()
    return ("cuda_fused", *wide, *(("triton_fused",) if case.dim <= 128 else ()))


def _refuse(reason: str) -> Calls:
    raise RuntimeError(reason)


def _on_projected_inputs(cell: str) -> list[str]:
    """The back-ends of `rnn`."""
    from constrint.kernels.rnn.candidates import implementations_of

    specs = implementations_of(cell)
    return [name for name in list_backends(cell) if not specs[name]["forward"].projects]


def _projection(case: Case, x: Any, layer: Layer) -> Calls:
    """The product that `torch.nn` has to do before the recurrence, as one call of torch, and its gradients."""
    rows = CELLS[case.cell].num_gates * case.dim
    weight, bias, grad = layer.draw(rows, case.dim), layer.draw(rows), layer.draw(case.batch, case.time, rows)
    given = [t.clone().requires_grad_(True) for t in (x, weight, bias)]

    def forward() -> Any:
        with torch.no_grad():
            return linear(x, weight, bias)

    return forward, lambda: torch.autograd.grad(linear(*given), given, grad)


def _module(case: Case, x: Any, grad: Any, backend: str, num_layers: int) -> Calls:
    """Our module, which projects its inputs as `torch.nn` does."""
    options = {"num_layers": num_layers, "batch_first": True, "device": x.device, "dtype": TORCH[case.dtype]}
    module = MODULES[case.cell](case.dim, case.dim, backend=backend, **options)
    x = x.clone().requires_grad_(True)
    given = [x, *module.parameters()]

    def forward() -> Any:
        with torch.no_grad():
            return module(x)

    return forward, lambda: torch.autograd.grad(module(x)[0], given, grad)


def runs_on(case: Case, name: str) -> str:
    """Return the back-end that `auto` takes by the plan for this layer; empty for a row that names its back-end."""
    from constrint.flashrnn import plan

    if not name.endswith(AUTO):
        return ""
    sizes: dict[str, Any] = {"batch": case.batch, "time": case.time, "heads": case.heads, "head_dim": case.dim}
    try:
        return plan(case.cell, **sizes, dtype=case.dtype, projected=name.startswith("rnn")).program.name
    except ConstrintError:
        return ""
