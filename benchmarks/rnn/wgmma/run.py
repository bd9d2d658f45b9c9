"""Runs jobs one after the other on the GPU, and says what each gave in a line of JSON; started by `__main__.py`.

A line `{"begin": number}` goes before each job runs, so that whoever reads knows which one hangs.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.rnn.wgmma.jobs import BY_OPERATION, Job, watched
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.candidates import choose_for
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.gradients import recompute_gates, states_before
from constrint.kernels.rnn.spec import RnnSpec
from constrint.kernels.rnn.tensors import make_optional_inputs
from constrint.kernels.rnn.wgmma.launch import launches_of
from constrint.select import Config
from constrint.select.spec import Launch
from constrint.tune.check import Tolerance, is_same

DEVICE = "cuda"
#: The second one is compared with the first.
BACKENDS = ("cuda", "wgmma")
REPEATS, ROUNDS, CALLS = 100, 7, 5


class Layer:
    """A job's layer with tensors on the GPU, its outputs filled with NaN."""

    def __init__(self, gpu: GpuModel, job: Job) -> None:
        self.gpu, self.job, self.spec = gpu, job, BY_OPERATION[job.cell]
        workload = job.workload
        inputs = self.spec.inputs(gpu, workload, device=DEVICE, seed=1)
        names = job.optional.split()
        inputs |= make_optional_inputs(self.spec.cell, "forward", inputs["wx"], names)
        self._fill(inputs, names)
        self.inputs, self.outputs = inputs, self.spec.outputs(gpu, workload, inputs)

    def _fill(self, inputs: dict[str, Tensor], names: Sequence[str]) -> None:
        batch, time = self.job.batch, self.job.time
        draw: Any = torch.Generator(device=DEVICE).manual_seed(2)
        if "initial" in names:
            inputs["initial"].normal_(generator=draw)
            if self.spec.cell.is_exponential:
                inputs["initial"][2].abs_().add_(1.0)
        if "lengths" in names:
            inputs["lengths"].copy_(torch.randint(0, time + 1, (batch,), generator=draw, device=DEVICE))
            inputs["rows"] = torch.argsort(inputs["lengths"], descending=True, stable=True).to(torch.int32)
        if "reset" in names:
            inputs["reset"].copy_(torch.rand((batch, time), generator=draw, device=DEVICE) < 0.1)

    def poison(self) -> None:
        """Fill the outputs with NaN."""
        for output in self.outputs.values():
            output.fill_(torch.nan)

    def launches(self, config: Config, *, watch: bool = False) -> list[Launch]:
        """The launches of a configuration; with `watch` a wait that never ends stops the kernel."""
        made = launches_of(self.job.workload, config, {**self.inputs, **self.outputs}, self.gpu)
        return [watched(launch) if watch else launch for launch in made]


def enqueue(launches: Sequence[Launch]) -> None:
    """Enqueue all."""
    for launch in launches:
        launch.run()


def run(launches: Sequence[Launch]) -> None:
    """Enqueue all and wait for them."""
    enqueue(launches)
    torch.cuda.synchronize()


def facts(launches: Sequence[Launch]) -> dict[str, Any]:
    """Return the compiler's figures of the loop."""
    loop: Any = launches[-1]
    return {"registers": loop.binary.registers, "spill_bytes": loop.binary.spill_bytes, "smem_bytes": loop.smem_bytes}


def milliseconds(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Median time of a call on the GPU."""
    cuda: Any = torch.cuda
    times = []
    for _ in range(rounds + 2):
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times[2:]))


def check(gpu: GpuModel, job: Job) -> dict[str, Any]:
    """States beside the reference in fp64, gates beside what follows from those states."""
    layer = Layer(gpu, job)
    layer.poison()
    launches = layer.launches(job.config, watch=True)
    run(launches)
    # Of a cell with exponential gates the others are in units of a state that is rounded.
    compared = slice(1) if layer.spec.cell.is_exponential else slice(None)
    exact = layer.spec.reference(job.workload, layer.inputs)["states"][compared]
    states, saved = layer.outputs["states"], layer.outputs["saved"]
    tolerance = Tolerance.of(layer.spec, job.workload)
    rms = exact.square().mean(dim=(1, 2, 3, 4), keepdim=True).sqrt()
    bound = (torch.finfo(states.dtype).eps + tolerance.relative) * exact.abs() + tolerance.of_rms * rms
    error = ((states[compared].double() - exact).abs() / bound.clamp(min=1e-30)).nan_to_num(nan=torch.inf).max().item()
    wx, r, bias = (layer.inputs[name] for name in ("wx", "r", "bias"))
    reset = layer.inputs.get("reset")
    before = states_before(states[0], layer.inputs.get("initial"), None if reset is None else reset.bool())
    expected = recompute_gates(CELLS[job.cell], wx.float(), r.float(), bias.float(), before.float())
    inside = torch.ones(saved.shape[:2], dtype=torch.bool, device=saved.device)
    if "lengths" in layer.inputs:
        inside = torch.arange(job.time, device=saved.device)[None] < layer.inputs["lengths"][:, None]
    difference = (saved.float() - expected.float()).abs()[inside]
    allowed = 4 * torch.finfo(saved.dtype).eps * expected.float().abs().max()
    gates = (difference / allowed).nan_to_num(nan=torch.inf).max().item() if difference.numel() else 0.0
    ok = error <= 1 and gates <= 1
    return {"outcome": "ok" if ok else "WRONG", "error_over_bound": error, "gates_over_bound": gates} | facts(launches)


def repeat(gpu: GpuModel, job: Job) -> dict[str, Any]:
    """Check that repeated runs give the same bits, with outputs poisoned before each."""
    layer, first, differing = Layer(gpu, job), None, 0
    launches = layer.launches(job.config, watch=True)
    for _ in range(REPEATS):
        layer.poison()
        run(launches)
        found = [output.clone() for output in layer.outputs.values()]
        if first is None:
            first = found
        differing += not all(map(is_same, first, found))
    return {"outcome": "WRONG" if differing else "ok", "differing": differing} | facts(launches)


_LAST: dict[tuple[Any, ...], Layer] = {}


def loop(gpu: GpuModel, job: Job) -> dict[str, Any]:
    """Time of the loop with the fill before it, and how far its states are from those of `cuda`."""
    layer = _layer_of(gpu, job)
    launches = layer.launches(job.config)
    layer.outputs["states"].fill_(torch.nan)
    run(launches)
    known = getattr(layer, "known", None)
    states = layer.outputs["states"]
    apart = (states - known).abs().max().item() if known is not None else None
    ms = milliseconds(partial(enqueue, launches))
    return {"outcome": "ok", "ms": ms, "step_us": 1e3 * ms / job.time, "apart": apart} | facts(launches)


def _layer_of(gpu: GpuModel, job: Job) -> Layer:
    key = job.cell, job.batch, job.time, job.heads, job.dim, job.dtype
    if key not in _LAST:
        _LAST.clear()
        torch.cuda.empty_cache()
        _LAST[key] = Layer(gpu, job)
    return _LAST[key]


def cuda(gpu: GpuModel, job: Job) -> dict[str, Any]:
    """Time the loop of the configuration that `cuda` is given."""
    spec, layer = load_spec(f"{job.cell}.cuda"), _layer_of(gpu, job)
    assert isinstance(spec, RnnSpec)
    config = choose_for(spec, gpu, job.workload, 1).config
    launches = spec.launches(gpu, job.workload, config, layer.inputs, layer.outputs)
    run(launches)
    layer.known = layer.outputs["states"].clone()  # type: ignore[attr-defined]
    ms = milliseconds(partial(enqueue, launches))
    named = " ".join(f"{name}={value}" for name, value in config.items())
    return {"outcome": "ok", "ms": ms, "step_us": 1e3 * ms / job.time, "note": named} | facts(launches)


def call(gpu: GpuModel, job: Job) -> dict[str, Any]:
    """`rnn` by name and with `cuda`: forward, forward with backward, and how far results and gradients are apart."""
    from constrint.flashrnn import rnn

    made = BY_OPERATION[job.cell].inputs(gpu, job.workload, device=DEVICE, seed=3)
    row: dict[str, Any] = {"outcome": "ok"}
    results = {}
    for backend in BACKENDS:
        leaves = [made[name].clone().requires_grad_() for name in ("wx", "r", "bias")]
        upstream = None

        def forward(leaves: list[Tensor] = leaves, backend: str = backend) -> Tensor:
            return rnn(*leaves, cell=job.cell, backend=backend)[0]

        with torch.no_grad():
            states = forward()
            row[f"{backend}_forward_ms"] = milliseconds(forward, CALLS)
        upstream = torch.randn(states[0].shape, device=DEVICE, generator=torch.Generator(device=DEVICE).manual_seed(4))
        upstream = upstream.to(states.dtype)

        def both(leaves: list[Tensor] = leaves, upstream: Tensor = upstream) -> list[Tensor]:
            return list(torch.autograd.grad((forward(leaves)[0],), leaves, (upstream,)))

        results[backend] = [states, *both()]
        row[f"{backend}_both_ms"] = milliseconds(both, CALLS)
        del states
    for name, a, b in zip(("states", "d_wx", "d_r", "d_b"), *(results[name] for name in BACKENDS), strict=True):
        row[f"{name}_apart"] = ((a.float() - b.float()).norm() / a.float().norm()).item()
    return row


KINDS: dict[str, Callable[[GpuModel, Job], dict[str, Any]]] = {
    "check": check,
    "repeat": repeat,
    "loop": loop,
    "cuda": cuda,
    "call": call,
}


def say(**what: Any) -> None:
    """One line of JSON."""
    print(json.dumps(what), flush=True)


def main() -> None:
    """Run the jobs of a file from a number on."""
    file, first, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    gpu, jobs = load_gpu(name), [Job(**plain) for plain in json.loads(file.read_text(encoding="utf-8"))]
    torch.zeros(1, device=DEVICE)
    say(ready=True)
    for number, job in enumerate(jobs):
        if number < first:
            continue
        say(begin=number)
        try:
            row = KINDS[job.kind](gpu, job)
        except Exception as error:
            say(end=number, row={"outcome": f"{type(error).__name__}: {str(error)[:300]}"})
            if "CUDA" in str(error) or "cuda" in str(error).lower():
                raise SystemExit(3) from error  # the context may be of no use any more
            continue
        say(end=number, row=row)


if __name__ == "__main__":
    main()
