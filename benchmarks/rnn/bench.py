"""Recurrent layers on the GPU of this machine: our back-ends beside cuDNN, NX-AI's kernels and a plain loop.

    python -m benchmarks.rnn.bench --out results/            # needs torch, triton and the GPU
    python -m benchmarks.rnn.bench --out results/ --quick    # 8 layers, under two minutes

Writes rnn.csv and rnn_environment.json. Each row says how it was timed: `call` is the public call from plain Python
(gradients through autograd), calls back to back; `graph`, of "triton kernels", is these alone in CUDA graphs, forward
and backward, without the products that give the gradients of the weights. Inputs are projected ones; `torch.nn`
projects its own. The floor is the larger of bytes over the copy bandwidth and operations over the matrix rate, both
measured in the run. Results are checked by `pytest -m gpu tests/flashrnn`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.peers import cudnn_layer, nxai_layer
from benchmarks.harness.table import Table, attempt, environment
from benchmarks.harness.workloads import layer as workload_of
from constrint.choose import Decision
from constrint.errors import ConstrintError, UnsupportedError
from constrint.flashrnn import rnn
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.candidates import decide_layer
from constrint.kernels.rnn.cells import CELLS
from constrint.select import Workload
from constrint.tune import Trial, compile_many
from constrint.tune.measure import Call, Timer, call_of

COLUMNS = (
    *("what", "implementation", "cell", "heads", "head_dim", "batch", "time", "dtype"),
    *("forward_ms", "both_ms", "floor_forward_ms", "floor_both_ms", "configs", "how"),
    *("forward_spread_ms", "both_spread_ms", "outcome"),
)
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
#: Cell, heads, head dim.
CASES = [
    *(("lstm", 12, 64), ("lstm", 6, 128), ("lstm", 1, 768), ("gru", 12, 64), ("gru", 1, 768), ("slstm", 12, 64)),
    *(("elman", 12, 64), ("lstm", 1, 256), ("lstm", 1, 512), ("lstm", 1, 1024), ("slstm", 1, 768), ("lstm", 1, 2048)),
]
QUICK = 7
DIMS = [(48, 16), (24, 32), (12, 64), (8, 96), (6, 128), (3, 256), (2, 384), (1, 512), (1, 768), (1, 1024)]
CUDNN_CASES = [("lstm", 1, 64), ("lstm", 1, 256), ("lstm", 1, 768), ("gru", 1, 256)]
BATCHES, TIMES = (1, 8, 16, 64, 256), (256, 1024, 4096)
ROUNDS = 7


@dataclass(frozen=True)
class Case:
    """A layer to time: which table it belongs to, and its sizes."""

    what: str
    cell: str
    heads: int
    dim: int
    batch: int = 16
    time: int = 1024
    dtype: str = "bf16"

    def workload(self, *, backward: bool = False) -> Workload:
        """One direction."""
        return workload_of(self.cell, self.batch, self.time, self.heads, self.dim, self.dtype, backward=backward)


class Layer:
    """Random inputs of one recurrence, and every implementation's calls on them: forward, forward and backward."""

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

    def cudnn(self) -> tuple[Call, Call] | None:
        """`torch.nn`'s layer of the same width."""
        sizes = (self.case.batch, self.case.time, self.case.dim)
        return cudnn_layer(self.cell.name, self.case.dim, TORCH[self.case.dtype], self.draw(*sizes), self.draw(*sizes))

    def floor_ms(self, bytes_per_s: float, flop_per_s: float) -> tuple[float, float]:
        """Least time of forward and of both directions: each input read once, each output written once."""
        rows = self.case.batch * self.case.time * self.case.heads * self.case.dim
        gates, states = self.cell.num_gates, self.cell.num_states
        element = self.wx.element_size()
        flop = 2.0 * rows * gates * self.case.dim
        forward = max(rows * element * (gates + states) / bytes_per_s, flop / flop_per_s)
        # Backward reads pre-activations (or inputs), states and one gradient, and writes the inputs' gradients.
        backward = max(rows * element * (2 * gates + states + 1) / bytes_per_s, 2.0 * flop / flop_per_s)
        return 1e3 * forward, 1e3 * (forward + backward)


def fused_choices(gpu: GpuModel, case: Case) -> list[tuple[Workload, Decision]]:
    """The plan's configurations of the fused kernels for training, with the workload of each direction.

    Raises:
        UnsupportedError: When they cannot run the layer; says why.
    """
    program = decide_layer(case.workload(), gpu, ("forward", "backward")).program_of("triton")
    if program.refusal:
        raise UnsupportedError(program.refusal)
    return [(case.workload(backward=step.role == "backward"), step) for step in program.steps]


def fused_alone(gpu: GpuModel, choices: list[tuple[Workload, Decision]]) -> tuple[Call, Call]:
    """The kernels alone, on random inputs of their own: forward, forward and backward."""
    calls = []
    for workload, choice in choices:
        spec = load_spec(choice.kernel)
        inputs = spec.inputs(gpu, workload, device="cuda")
        outputs = spec.outputs(gpu, workload, inputs)
        calls.append(call_of(spec.launches(gpu, workload, choice.config, inputs, outputs)))
    forward, backward = calls
    return forward, lambda: (forward(), backward())


def ceilings(timer: Timer) -> tuple[float, float]:
    """Copy bandwidth (bytes read and written per second) and bf16 matrix rate of this device, measured."""
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    copied, product = timer.warm([partial(torch.neg, source, out=target), partial(torch.matmul, a, b)], 1e-3)
    return 8 * source.numel() / copied.median_s, 2 * 8192**3 / product.median_s


class Bench:
    """The table in the making."""

    def __init__(self, gpu: GpuModel, timer: Timer, table: Table, ceiling: tuple[float, float]) -> None:
        self.gpu, self.timer, self.table, self.ceiling = gpu, timer, table, ceiling

    def run(self, case: Case, peers: bool) -> None:
        """Every implementation on one layer."""
        layer = Layer(case)
        choices: list[tuple[Workload, Decision]] = []
        outcome = attempt(lambda: choices.extend(fused_choices(self.gpu, case)))
        if outcome["outcome"] == "ok":
            self.add(layer, "triton", lambda: layer.public("triton"), choices)
            self.add(layer, "triton kernels", lambda: fused_alone(self.gpu, choices), choices, how="graph")
        else:
            self.table.add(**self._named(layer, "triton", "call"), **outcome)
        if not peers:
            return
        self.add(layer, "alternating", lambda: layer.public("alternating"))
        cudnn = layer.cudnn() if case.heads == 1 else None
        if cudnn is not None:
            self.add(layer, "cudnn", lambda: cudnn)
        if case.dtype == "bf16":
            for name, calls in nxai_layer(case.cell, layer.wx, layer.r, layer.b, layer.grad).items():
                self.add(layer, name, lambda calls=calls: calls)

    def add(
        self,
        layer: Layer,
        name: str,
        make: Any,
        choices: list[tuple[Workload, Decision]] | None = None,
        how: str = "call",
    ) -> None:
        """Time one implementation, both directions in turn; a failure is a row."""
        row = self._named(layer, name, how) | attempt(lambda: self._times(make(), how))
        row["configs"] = " | ".join("/".join(map(str, choice.config.values())) for _, choice in choices or ())
        shown = self.table.add(**row)
        print(*(shown.get(column, "") for column in COLUMNS if column != "configs"), row["configs"], flush=True)

    def _times(self, calls: tuple[Call, Call], how: str) -> dict[str, Any]:
        if how == "graph":
            figures = self.timer.cold([self.timer.graph(call) for call in calls], ROUNDS)
        else:
            for call in calls:
                call()
            figures = self.timer.from_python(list(calls), ROUNDS)
        forward, both = figures
        times = {"forward_ms": 1e3 * forward.median_s, "both_ms": 1e3 * both.median_s}
        return times | {"forward_spread_ms": 1e3 * forward.spread_s, "both_spread_ms": 1e3 * both.spread_s}

    def _named(self, layer: Layer, name: str, how: str) -> dict[str, Any]:
        case, floor = layer.case, layer.floor_ms(*self.ceiling)
        sizes = {"cell": case.cell, "heads": case.heads, "head_dim": case.dim, "batch": case.batch, "time": case.time}
        floors = {"floor_forward_ms": floor[0], "floor_both_ms": floor[1]}
        return {"what": case.what, "implementation": name, "dtype": case.dtype, "how": how, **sizes, **floors}


def cases_of(quick: bool) -> list[tuple[Case, bool]]:
    """Every layer to time, and whether beside its peers."""
    cases = [(Case("case", *which), True) for which in CASES]
    if quick:
        return [*cases[:QUICK], (Case("case", "lstm", 1, 256, dtype="fp16"), True)]
    cases += [(Case("case", *which, dtype=dtype), True) for dtype in ("fp16", "fp32") for which in CUDNN_CASES]
    cases += [(Case("dim", cell, *dims), False) for dims in DIMS for cell in ("lstm", "gru", "elman")]
    sweep = [(*dims, batch, time) for dims in ((12, 64), (1, 768)) for batch in BATCHES for time in TIMES]
    return cases + [(Case("sweep", "lstm", *sizes), sizes[-1] == 1024) for sizes in sweep]


def compile_all(gpu: GpuModel, cases: list[Case]) -> list[str]:
    """Compile the fused kernels of all layers on all cores; returns what failed."""
    trials: list[Trial] = []
    for case in cases:
        with contextlib.suppress(ConstrintError):
            trials += [Trial(c.kernel, workload, dict(c.config)) for workload, c in fused_choices(gpu, case)]
    return [str(outcome) for outcome in compile_many(load_spec, gpu, trials, into_cache=True) if outcome]


def main() -> None:
    """Compile, then time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for rnn.csv and rnn_environment.json")
    parser.add_argument("--quick", action="store_true", help="8 layers")
    args = parser.parse_args()
    gpu = gpu_of(torch.device("cuda"))
    if gpu is None:
        parser.exit(1, "this GPU has no hardware model\n")
    cases, timer = cases_of(args.quick), Timer()
    print("not compiled:", compile_all(gpu, [case for case, _ in cases]) or "none", flush=True)
    ceiling = ceilings(timer)
    facts = environment() | {"copy_bytes_per_s": f"{ceiling[0]:.4g}", "bf16_flop_per_s": f"{ceiling[1]:.4g}"}
    facts["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "rnn_environment.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(facts, flush=True)
    with Table(args.out / "rnn.csv", COLUMNS) as table:
        bench = Bench(gpu, timer, table, ceiling)
        for case, peers in cases:
            bench.run(case, peers)
        if not args.quick:
            # The plain loop, which is the reference in the layer's own dtype.
            layer = Layer(cases[0][0])
            bench.add(layer, "vanilla", lambda: layer.public("reference"))


if __name__ == "__main__":
    main()
