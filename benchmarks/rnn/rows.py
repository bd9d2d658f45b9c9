"""Named layers by their public calls, each of our back-ends in turn with `torch.nn`, where there is one; needs a GPU.

    python -m benchmarks.rnn.rows --out rows.csv
    python -m benchmarks.rnn.rows --only "LSTM 768" --out rows.csv       # rows whose name begins so
    python -m benchmarks.rnn.rows --only "SLSTM 4x192" --profile both    # the kernels of a call of `auto`
    python -m benchmarks.rnn.rows --prepare                              # call everyone once: what is compiled is kept

Times are milliseconds of wall time per call from an idle device to an idle device: medians of rounds in which everyone
takes a turn, a turn being as many calls as take about three milliseconds. `both` is a forward and a backward pass, the
gradients set to None between them. `speed` is `torch.nn`'s time over ours, in the same dtype; tf32 is off for both.
For sLSTM, which torch has not, `configs` are the first configurations of the model, timed as if they were forced.
`rnn` is the function on projected inputs, `compiled` is a module in `torch.compile` by itself, `in a model` one between
two linear layers that are compiled with it. A row of cells calls a cell for each step. `runs` is what a call's decision
names, forward and backward.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.harness.table import Table, attempt, described
from benchmarks.harness.timing import DTYPES
from constrint import flashrnn
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.spec import workload_of
from constrint.select import rank

COLUMNS = ("row", "how", "who", "runs", "ms", "spread_ms", "speed", "outcome")
#: Seconds of a turn, and rounds.
TURN_S, ROUNDS = 3e-3, 7
TORCH = "torch.nn"
#: Calls that a profile counts, its entries of the host, and characters of a kernel's name.
PROFILED, MOST_HOST, NAME_LENGTH = 5, 12, 90


class Row(NamedTuple):
    """A layer: cell, units (and inputs), layers, sequences, steps, dtype, heads, back-ends, and other calls of it.

    `configs` of the model are forced in turn; with `projected` the function `rnn` runs, too, with `compiled`
    `torch.compile`.
    """

    cell: str
    units: int
    layers: int
    batch: int
    time: int
    dtype: str
    heads: int = 1
    backends: tuple[str, ...] = ("auto",)
    configs: int = 0
    projected: bool = False
    compiled: bool = False

    @property
    def name(self) -> str:
        """As it is printed."""
        heads = f"{self.heads}x" if self.heads > 1 else ""
        layers = f" x {self.layers}" if self.layers > 1 else ""
        return f"{self.cell} {heads}{self.units // self.heads}{layers} B{self.batch} T{self.time} {self.dtype}"


MANY = ("auto", "cuda", "wgmma", "wgmma_both", "wgmma_partial")
ROWS = (
    Row("LSTM", 768, 1, 256, 1024, "bf16", backends=MANY, projected=True),
    Row("LSTM", 768, 1, 64, 1024, "bf16", backends=MANY, projected=True),
    Row("SLSTM", 768, 1, 16, 1024, "bf16", heads=4, configs=5, projected=True),
    Row("SLSTM", 768, 1, 16, 1024, "bf16", projected=True),
    Row("LSTM", 2688, 1, 16, 1024, "bf16", projected=True),
    Row("GRU", 48, 1, 700, 30, "fp32"),
    Row("LSTM", 96, 1, 2000, 24, "fp16"),
    Row("LSTM", 64, 1, 32, 128, "fp32"),
    Row("LSTM", 1500, 2, 20, 35, "fp32"),
    Row("LSTM", 64, 1, 16, 32, "fp32", compiled=True),
    Row("LSTMCell", 256, 1, 64, 20, "fp32"),
    Row("GRUCell", 256, 1, 64, 20, "fp32"),
    Row("RNNCell", 256, 1, 64, 20, "fp32"),
)


class Who(NamedTuple):
    """Someone who takes part: what makes the module or function, and what names its decision."""

    make: Callable[[], Any]
    why: Callable[[Any, Tensor], Any] | None = None


def call_of(module: Any, x: Tensor, how: str) -> Callable[[], None]:
    """A call of a module."""

    def both() -> None:
        module.zero_grad(set_to_none=True)
        module(x)[0].sum().backward()

    def forward() -> None:
        with torch.no_grad():
            module(x)

    return both if how == "both" else forward


class Steps(nn.Module):
    """A loop of a cell's calls over steps."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Any:
        """All h, and the last states."""
        states = None
        outputs = []
        for step in x:
            states = self.cell(step, states)
            outputs.append(states[0] if isinstance(states, tuple) else states)
        return torch.stack(outputs), states


class Projected(nn.Module):
    """The function on projected inputs, which are the module's parameters as the weights are."""

    def __init__(self, row: Row, backend: str) -> None:
        super().__init__()
        from constrint.kernels.rnn.cells import CELLS

        self.cell, self.backend, dim = CELLS[row.cell.lower()], backend, row.units // row.heads
        options: dict[str, Any] = {"device": "cuda", "dtype": DTYPES[row.dtype]}
        gates, heads = self.cell.num_gates, row.heads
        self.wx = nn.Parameter(torch.randn(row.batch, row.time, gates, heads, dim, **options))
        self.r = nn.Parameter(torch.randn(gates, heads, dim, dim, **options) / dim**0.5)
        self.b = nn.Parameter(torch.randn(gates, heads, dim, **options))

    def forward(self, _: Tensor) -> Any:
        """All h, and the last states."""
        return flashrnn.rnn(self.wx, self.r, self.b, cell=self.cell.name, backend=self.backend, hidden_only=True)

    def why(self, _: Tensor) -> Any:
        """The decision."""
        function: Any = flashrnn.rnn
        return function.why(self.wx, self.r, self.b, cell=self.cell.name, backend=self.backend)


class Model(nn.Module):
    """A layer between two linear ones."""

    def __init__(self, layer: Any, units: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.before, self.layer = nn.Linear(units, units, **options), layer
        self.after = nn.Linear(units, units, **options)

    def forward(self, x: Tensor) -> Any:
        """The last linear layer's output, and the layer's states."""
        output, states = self.layer(self.before(x))
        return self.after(output), states


def made(row: Row, of: Any, **options: Any) -> Any:
    """A module of a row's sizes."""
    options |= {"device": "cuda", "dtype": DTYPES[row.dtype]}
    if row.cell.endswith("Cell"):
        return Steps(getattr(of, row.cell)(row.units, row.units, **options))
    return getattr(of, row.cell)(row.units, row.units, row.layers, **options)


def everyone(row: Row) -> dict[str, Who]:
    """Those who take part in a row, by name."""
    heads: dict[str, Any] = {"num_heads": row.heads} if row.heads > 1 else {}
    cells = {} if row.cell.endswith("Cell") else {"backend": ""}
    found: dict[str, Who] = {}
    for backend in row.backends:
        options = heads | dict.fromkeys(cells, backend)
        found[backend] = Who(partial(made, row, flashrnn, **options), None if not cells else _why)
        if row.projected:
            found[f"rnn {backend}"] = Who(partial(Projected, row, backend), _why)
    for number, config in enumerate(configs_of(row)):
        found[f"config {number} {config}"] = Who(partial(made, row, flashrnn, **heads, backend="cuda", config=config))
    has_torch = hasattr(nn, row.cell)
    if has_torch:
        found[TORCH] = Who(partial(made, row, nn))
    if row.compiled:
        for name, of in (("auto", flashrnn), *(((TORCH, nn),) if has_torch else ())):
            found[f"{name} compiled"] = Who(partial(_compiled, row, of, is_in_model=False))
            found[f"{name} in a model"] = Who(partial(_compiled, row, of, is_in_model=True))
    return found


def _compiled(row: Row, of: Any, *, is_in_model: bool) -> Any:
    layer = made(row, of)
    options = {"device": "cuda", "dtype": DTYPES[row.dtype]}
    return torch.compile(Model(layer, row.units, options) if is_in_model else layer)


def _why(module: Any, x: Tensor) -> Any:
    return module.why(x)


def runs_of(who: Who, module: Any, x: Tensor) -> str:
    """What a call's decision names, forward and backward; empty for who has none."""
    if who.why is None:
        return ""
    with torch.enable_grad():
        program = who.why(module, x).program
    return " ".join([program.name, *(step.kernel for step in program.steps if step.kernel)])


def configs_of(row: Row) -> list[dict[str, dict[str, int]]]:
    """The model's first configurations of both directions that store pre-activations, the n-th of both together."""
    gpu = gpu_of(torch.device("cuda"))
    if not row.configs or gpu is None:
        return []
    found = []
    for direction in ("forward", "backward"):
        sizes = row.batch, 1024, row.heads, row.units // row.heads
        workload = workload_of(row.cell.lower(), sizes, row.dtype, direction)
        best = rank(load_spec(f"{workload.operation}.cuda"), gpu, workload, top=20 * row.configs).candidates
        stored = [dict(one.config) for one in best if one.config["recompute"] == 0]
        found.append([{name: value for name, value in config.items() if name != "recompute"} for config in stored])
    return [{"forward": f, "backward": b} for f, b in zip(*found, strict=False)][: row.configs]


def turn_s(call: Callable[[], None], number: int) -> float:
    """Seconds of a call, of `number` of them after each other."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(number):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / number


def timed(row: Row, how: str, until: float, rounds: int) -> Iterator[dict[str, Any]]:
    """A row of the table for everyone; without rounds everyone is called alone."""
    torch.manual_seed(0)
    x = torch.randn(row.time, row.batch, row.units, device="cuda", dtype=DTYPES[row.dtype])
    calls: dict[str, Callable[[], None]] = {}
    outcomes, numbers, runs = {}, {}, {}
    for name, who in everyone(row).items():

        def prepare(name: str = name, who: Who = who) -> None:
            module = who.make()
            runs[name] = attempt(lambda: {"runs": runs_of(who, module, x)}).get("runs", "")
            call = call_of(module, x, how)
            for _ in range(4):
                call()
            numbers[name] = max(1, round(TURN_S / turn_s(call, 3)))
            calls[name] = call

        outcomes[name] = attempt(prepare)["outcome"]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        if number > 2 and time.perf_counter() > until:
            break
        for name, call in calls.items():
            times[name].append(1e3 * turn_s(call, numbers[name]))
    medians = {name: statistics.median(found) for name, found in times.items() if found}
    for name, outcome in outcomes.items():
        entry: dict[str, Any] = {"row": row.name, "how": how, "who": name, "runs": runs.get(name, "")}
        entry["outcome"] = outcome
        if name in medians:
            entry |= {"ms": medians[name], "spread_ms": max(times[name]) - min(times[name])}
            entry |= {"speed": medians[TORCH] / medians[name]} if TORCH in medians else {}
        yield entry


def profiled(row: Row, how: str, backend: str) -> Iterator[str]:
    """The kernels of one call, a line each, those first that take the most time; then what takes the host longest."""
    x = torch.randn(row.time, row.batch, row.units, device="cuda", dtype=DTYPES[row.dtype])
    who = everyone(row._replace(backends=(backend,) if backend in row.backends else row.backends, configs=0))[backend]
    call = call_of(who.make(), x, how)
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED):
            call()
        torch.cuda.synchronize()
    found = [event for event in profile.key_averages() if event.self_device_time_total > 0]
    device = [event for event in found if str(event.device_type).endswith("CUDA")]
    yield f"{row.name} {how} {backend}: {sum(event.self_device_time_total for event in device) / PROFILED:.1f} us"
    for event in sorted(device, key=lambda event: -event.self_device_time_total):
        number = event.count / PROFILED
        yield f"  {event.self_device_time_total / PROFILED:10.1f} us {number:6.1f} x  {event.key[:NAME_LENGTH]}"
    host = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)[:MOST_HOST]
    for event in host:
        time_us, number = event.self_cpu_time_total / PROFILED, event.count / PROFILED
        yield f"  {time_us:10.1f} us {number:6.1f} x  on the host: {event.key[:NAME_LENGTH]}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file; printed, too")
    parser.add_argument("--only", default="", help="rows whose name begins so")
    parser.add_argument("--limit", type=float, default=1e9, help="no new row after these seconds")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--prepare", action="store_true", help="call everyone, and time nobody")
    parser.add_argument("--profile", choices=("forward", "both"), help="print the kernels of calls instead")
    parser.add_argument("--backend", default="auto", help="who is profiled")
    args = parser.parse_args()
    until = time.perf_counter() + args.limit
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows = [row for row in ROWS if row.name.startswith(args.only)]
    if args.profile:
        for row in rows:
            print(*profiled(row, args.profile, args.backend), sep="\n", flush=True)
        return
    with Table(args.out, COLUMNS, described()) as table:
        for row in rows:
            for how in ("forward", "both"):
                if time.perf_counter() > until:
                    print(f"not measured, the time is over: {row.name} {how}", flush=True)
                    continue
                for entry in timed(row, how, until, 0 if args.prepare else args.rounds):
                    print(table.add(**entry), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
