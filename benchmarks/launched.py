"""Time the layers that the library launches beside the fastest configurations known, kernels alone, in one run.

    python -m benchmarks.launched benchmarks/results/h200/rnn_space.csv --gpu h200 --out launched.csv

A table of `benchmarks.rnn.loops run` says which configuration of each layer and direction is the fastest of those that
do not spill. The one that is launched is found as the library finds it: chosen, compiled, looked at, and passed over if
it spills. `--part 2/8` does every eighth alone, so that several processes compile; a last one without it then finds all
kernels compiled.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, described, read_rows
from benchmarks.rnn.loops import LAYER, timed_ms, workload_of_row
from constrint.choose import Decision, Request, decide
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.policy import launch_what_fits, look
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.sample import KEYS
from constrint.select import Config, Workload

REPEATS = 9


def fastest(path: Path) -> Iterator[tuple[Workload, Config]]:
    """Every layer and direction of the table, with the fastest of its configurations that do not spill."""
    best: dict[tuple[str, ...], tuple[float, dict[str, str]]] = {}
    for row in read_rows(path):
        if row["outcome"] == "ok" and int(row["spill_bytes"]) == 0:
            layer = tuple(row[name] for name in LAYER)
            found = float(row["loop_ms"]), row
            best[layer] = min(best.get(layer, found), found, key=lambda one: one[0])
    for _, row in best.values():
        yield workload_of_row(row), {key: int(row[key]) for key in KEYS}


class Layer:
    """One layer in one direction, with tensors on the GPU."""

    def __init__(self, gpu: GpuModel, workload: Workload) -> None:
        self.gpu, self.workload, self.spec = gpu, workload, load_spec(f"{workload.operation}.triton")
        self.inputs = self.spec.inputs(gpu, workload, device="cuda")
        self.outputs = self.spec.outputs(gpu, workload, self.inputs)

    def launches(self, config: Config) -> Any:
        """Its launches by a configuration."""
        return self.spec.launches(self.gpu, self.workload, config, self.inputs, self.outputs)

    def launched(self) -> Decision:
        """What the library launches, launched once."""

        def start(choice: Decision, /, *, may_spill: bool) -> None:
            launches = self.launches(choice.config)
            if not may_spill:
                look(launches)
            for launch in launches:
                launch.run()

        return launch_what_fits(decide(Request(self.spec.full_name, self.workload, self.gpu)), start)

    def times_ms(self, *configs: Config) -> list[float]:
        """Medians of both in turn."""
        prepared = [self.launches(config) for config in configs]
        times: list[list[float]] = [[] for _ in configs]
        for repeat in range(REPEATS + 1):
            for launches, kept in zip(prepared, times, strict=True):
                taken = timed_ms(launches)
                if repeat:
                    kept.append(taken)
        return [statistics.median(kept) for kept in times]


def main() -> None:
    """Launch, time and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--part", help="I/N: launch the I-th of N parts alone, and time nothing")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    part, parts = map(int, (args.part or "1/1").split("/"))
    gpu, shares = load_gpu(args.gpu), []
    columns = ["layer", "launched", "fastest", "launched_ms", "fastest_ms", "share"]
    with Table(args.out, columns, f"measured on {described()}; kernels alone") as table:
        for workload, best in list(fastest(args.table))[part - 1 :: parts]:
            layer = Layer(gpu, workload)
            chosen = layer.launched().config
            if args.part:
                layer.times_ms(best)
                continue
            ours, theirs = layer.times_ms(chosen, best)
            shares.append(theirs / ours)
            table.add(
                layer=str(workload),
                launched=dict(chosen),
                fastest=dict(best),
                launched_ms=ours,
                fastest_ms=theirs,
                share=theirs / ours,
            )
            print(f"{theirs / ours:.3f} {workload} {ours:.3f} ms, fastest {theirs:.3f} ms", flush=True)
    if shares:
        mean = statistics.geometric_mean(shares)
        print(f"fastest / launched: geometric mean {mean:.4f}, worst {min(shares):.3f} of {len(shares)}")


if __name__ == "__main__":
    main()
