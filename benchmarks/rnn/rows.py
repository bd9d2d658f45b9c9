"""Named layers by their public calls, each of our back-ends in turn with `torch.nn`, where there is one; needs a GPU.

    python -m benchmarks.rnn.rows --out rows.csv
    python -m benchmarks.rnn.rows --only "LSTM 768" --out rows.csv       # rows whose name begins so

Times are milliseconds of wall time per call from an idle device to an idle device: medians of rounds in which everyone
takes a turn, a turn being as many calls as take about three milliseconds. `both` is a forward and a backward pass, the
gradients set to None between them. `speed` is `torch.nn`'s time over ours, in the same dtype; tf32 is off for both.
For sLSTM, which torch has not, `configs` are the first configurations of the model, timed as if they were forced.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
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

COLUMNS = ("row", "how", "who", "ms", "spread_ms", "speed", "outcome")
#: Seconds of a turn, and rounds.
TURN_S, ROUNDS = 3e-3, 7


class Row(NamedTuple):
    """A layer: cell, units (and inputs), layers, sequences, steps, dtype, heads, back-ends, configurations to try."""

    cell: str
    units: int
    layers: int
    batch: int
    time: int
    dtype: str
    heads: int = 1
    backends: tuple[str, ...] = ("auto",)
    configs: int = 0

    @property
    def name(self) -> str:
        """As it is printed."""
        heads = f"{self.heads}x" if self.heads > 1 else ""
        layers = f" x {self.layers}" if self.layers > 1 else ""
        return f"{self.cell} {heads}{self.units // self.heads}{layers} B{self.batch} T{self.time} {self.dtype}"


MANY = ("auto", "cuda", "wgmma", "wgmma_both")
ROWS = (
    Row("LSTM", 768, 1, 256, 1024, "bf16", backends=MANY),
    Row("LSTM", 768, 1, 64, 1024, "bf16", backends=MANY),
    Row("SLSTM", 768, 1, 16, 1024, "bf16", heads=4, configs=5),
    Row("GRU", 48, 1, 700, 30, "fp32"),
    Row("LSTM", 96, 1, 2000, 24, "fp16"),
    Row("LSTM", 64, 1, 32, 128, "fp32"),
    Row("LSTM", 1500, 2, 20, 35, "fp32"),
    Row("LSTM", 64, 1, 16, 32, "fp32"),
    Row("SLSTM", 768, 1, 16, 1024, "bf16"),
    Row("LSTM", 2688, 1, 16, 1024, "bf16"),
)


def call_of(module: Any, x: Tensor, how: str) -> Callable[[], None]:
    """A call of a module."""

    def both() -> None:
        module.zero_grad(set_to_none=True)
        module(x)[0].sum().backward()

    def forward() -> None:
        with torch.no_grad():
            module(x)

    return both if how == "both" else forward


def ours(row: Row) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Our modules, by name."""
    made, dtype = getattr(flashrnn, row.cell), DTYPES[row.dtype]
    options: dict[str, Any] = {"num_heads": row.heads} if row.heads > 1 else {}
    for backend in row.backends:
        yield (
            backend,
            lambda backend=backend: made(  # type: ignore[misc]
                row.units, row.units, row.layers, backend=backend, device="cuda", dtype=dtype, **options
            ),
        )
    for number, config in enumerate(configs_of(row)):
        yield (
            f"config {number} {config}",
            lambda config=config: made(  # type: ignore[misc]
                row.units, row.units, row.layers, backend="cuda", config=config, device="cuda", dtype=dtype, **options
            ),
        )


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


def timed(row: Row, how: str, until: float) -> Iterator[dict[str, Any]]:
    """A row of the table for everyone."""
    torch.manual_seed(0)
    x = torch.randn(row.time, row.batch, row.units, device="cuda", dtype=DTYPES[row.dtype])
    makers = dict(ours(row))
    if hasattr(nn, row.cell):
        makers["torch.nn"] = lambda: getattr(nn, row.cell)(
            row.units, row.units, row.layers, device="cuda", dtype=DTYPES[row.dtype]
        )
    calls: dict[str, Callable[[], None]] = {}
    outcomes, numbers = dict.fromkeys(makers, "ok"), {}
    for who, make in makers.items():

        def prepare(who: str = who, make: Callable[[], Any] = make) -> None:
            call = call_of(make(), x, how)
            for _ in range(4):
                call()
            numbers[who] = max(1, round(TURN_S / turn_s(call, 3)))
            calls[who] = call

        outcomes[who] = attempt(prepare)["outcome"]
    times: dict[str, list[float]] = {who: [] for who in calls}
    for number in range(ROUNDS):
        if number > 2 and time.perf_counter() > until:
            break
        for who, call in calls.items():
            times[who].append(1e3 * turn_s(call, numbers[who]))
    medians = {who: statistics.median(found) for who, found in times.items()}
    for who in makers:
        made: dict[str, Any] = {"row": row.name, "how": how, "who": who, "outcome": outcomes[who]}
        if who in medians:
            spread = max(times[who]) - min(times[who])
            made |= {"ms": medians[who], "spread_ms": spread}
            made |= {"speed": medians["torch.nn"] / medians[who]} if "torch.nn" in medians else {}
        yield made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file; printed, too")
    parser.add_argument("--only", default="", help="rows whose name begins so")
    parser.add_argument("--limit", type=float, default=1e9, help="no new row after these seconds")
    args = parser.parse_args()
    until = time.perf_counter() + args.limit
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with Table(args.out, COLUMNS, described()) as table:
        for row in ROWS:
            if not row.name.startswith(args.only):
                continue
            for how in ("forward", "both"):
                if time.perf_counter() > until:
                    print(f"not measured, the time is over: {row.name} {how}", flush=True)
                    continue
                for made in timed(row, how, until):
                    print(table.add(**made), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
