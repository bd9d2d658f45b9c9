"""Measure backward loops of the kernels for many sequences, each layer's beside the loop of `cuda`; needs a GPU.

    python -m benchmarks.rnn.measure_wgmma --gpu h200 --out benchmarks/results/h200/rnn_wgmma_backward.csv
    python -m benchmarks.rnn.measure_wgmma --gpu h200 --out partial.csv --kernels cuda wgmma_both wgmma_partial --exact
    python -m benchmarks.rnn.fit_wgmma benchmarks/results/h200/rnn_wgmma_backward.csv --gpu h200 --direction backward

Of each layer the best configurations of the model's first shapes (units, sequences, warpgroups) are measured, others of
the first two, and some of shapes that are drawn from the whole space. Every loop is checked before: its gradients are
those of `cuda` up to the rounding of 16 bits, and with `--exact` its error beside fp64 over 32 steps is written, as a
share of the bound of `verify`. Compiles in `--jobs` processes at first; what the time does not suffice for is told of.
The columns are those of `rnn_wgmma.csv`; loops of another kernel than `wgmma_both` have its name as their kind.
"""

from __future__ import annotations

import argparse
import json
import random
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.spec import RnnSpec, workload_of
from constrint.select import Workload, rank
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.spec import KernelSpec
from constrint.tune.check import Case

COLUMNS = ("kind", "cell", "batch", "time", "heads", "dim", "dtype", "optional", "config", "outcome", "ms", "more")
TIME = 1024
#: Cell, sequences, units, dtype.
LAYERS = (
    ("lstm", 256, 768, "bf16"),
    ("lstm", 64, 768, "bf16"),
    ("lstm", 128, 768, "bf16"),
    ("lstm", 256, 1024, "bf16"),
    ("lstm", 256, 512, "bf16"),
    ("lstm", 128, 512, "bf16"),
    ("lstm", 64, 1024, "bf16"),
    ("lstm", 256, 1536, "bf16"),
    ("gru", 256, 768, "bf16"),
    ("gru", 128, 512, "bf16"),
    ("slstm", 256, 512, "bf16"),
    ("lstm", 256, 256, "fp16"),
)
#: Launches whose median counts, and those before them that do not.
ROUNDS, UNCOUNTED = 3, 1
#: Largest difference of the gradients from those of `cuda`, as a share of their root mean square.
MOST_APART = 0.05


class Loop(NamedTuple):
    """A loop to measure: the implementation, the layer and the configuration."""

    name: str
    layer: tuple[str, int, int, str]
    config: tuple[tuple[str, int], ...]


def workload_of_layer(layer: tuple[str, int, int, str]) -> Workload:
    """The workload of a layer's backward pass."""
    cell, batch, dim, dtype = layer
    return workload_of(cell, (batch, TIME, 1, dim), dtype, "backward")


def spec_of(loop: Loop) -> KernelSpec:
    """The kernel of a loop."""
    return load_spec(f"{loop.layer[0]}-backward.{loop.name}")


def stored_of(spec: KernelSpec, gpu: GpuModel, workload: Workload, top: int) -> list[Config]:
    """The first configurations of a layer whose pre-activations are stored."""
    return [one.config for one in rank(spec, gpu, workload, top=top).candidates if one.config["recompute"] == 0]


def loops_of(
    gpu: GpuModel, first: int, drawn: int, seed: int, names: Sequence[str], layers: Sequence[tuple[str, int, int, str]]
) -> Iterator[Loop]:
    """The loops of every layer: `cuda`'s first, the model's first, and drawn ones."""
    draw = random.Random(seed)
    for layer in layers:
        workload = workload_of_layer(layer)
        for name in names:
            spec = load_spec(f"{layer[0]}-backward.{name}")
            try:
                configs = stored_of(spec, gpu, workload, 4000)
            except ConstrintError as error:
                print(f"left out: {name} {layer}: {str(error)[:120]}", flush=True)
                continue
            chosen = configs[:1] if name == "cuda" else chosen_of(configs, first, drawn, draw)
            yield from (Loop(name, layer, tuple(sorted(config.items()))) for config in chosen)


def chosen_of(configs: Sequence[Config], first: int, drawn: int, draw: random.Random) -> list[Config]:
    """The best of the first shapes, some others of the first two, and some of shapes that are drawn."""
    by_shape: dict[tuple[int, ...], list[Config]] = {}
    for config in configs:
        shape = config["units"], config["tile_batch"], config["depth_groups"]
        by_shape.setdefault(shape, []).append(config)
    shapes = list(by_shape)
    best = [by_shape[shape][0] for shape in shapes[:first]]
    others = [config for shape in shapes[:2] for config in by_shape[shape][1:]]
    rest = draw.sample(shapes[first:], min(drawn, len(shapes[first:])))
    return [
        *best,
        *draw.sample(others, min(first, len(others))),
        *(draw.choice(by_shape[shape]) for shape in sorted(rest)),
    ]


def compiled(gpu: str, loop: Loop) -> CompiledKernel | str:
    """Compile a loop's kernel onto the disk; return the compiler's figures or its refusal."""
    try:
        return spec_of(loop).compile(load_gpu(gpu), workload_of_layer(loop.layer), dict(loop.config))
    except ConstrintError as error:
        return str(error).partition("\n")[0]


class Layer:
    """The tensors of one layer on this machine's GPU, and the gradients of `cuda`."""

    def __init__(self, gpu: GpuModel, layer: tuple[str, int, int, str]) -> None:
        self.gpu, self.workload = gpu, workload_of_layer(layer)
        spec = load_spec(f"{layer[0]}-backward.cuda")
        self.inputs: Mapping[str, Any] = spec.inputs(gpu, self.workload, device="cuda")
        self.outputs: Mapping[str, Any] = spec.outputs(gpu, self.workload, self.inputs)
        self.expected: dict[str, Any] = {}
        self.cases: dict[str, Case] = {}

    def error(self, loop: Loop) -> float:
        """The largest error of a loop of a few steps beside fp64, over its bound."""
        spec = spec_of(loop)
        if loop.name not in self.cases:
            self.cases[loop.name] = Case(spec, self.gpu, spec.checked_as(self.workload), device="cuda")
        case = self.cases[loop.name]
        return case.check(case.launches(dict(loop.config)))

    def ms(self, loop: Loop) -> tuple[float, float]:
        """Median milliseconds of a loop's launches, and how far its gradients are from those of the first loop."""
        from benchmarks.harness.timing import median_ms  # needs torch

        spec = spec_of(loop)
        assert isinstance(spec, RnnSpec)
        for output in self.outputs.values():
            output.fill_(float("nan"))
        launches = spec.launches(self.gpu, self.workload, dict(loop.config), self.inputs, self.outputs)
        ms = median_ms(launches, ROUNDS, UNCOUNTED)
        if not self.expected:
            self.expected = {name: output.clone() for name, output in self.outputs.items()}
        return ms, max(map(self._apart, self.expected))

    def _apart(self, name: str) -> float:
        expected, found = self.expected[name].float(), self.outputs[name].float()
        apart = float((found - expected).square().mean().sqrt() / expected.square().mean().sqrt().clamp_min(1e-20))
        return apart if apart == apart else float("inf")


def rows(
    gpu: GpuModel, loops: Sequence[Loop], facts: Sequence[CompiledKernel | str], until: float, *, is_exact: bool
) -> Iterator[Any]:
    """A row for every loop that was measured."""
    at: Layer | None = None
    last: tuple[str, int, int, str] | None = None
    for loop, fact in zip(loops, facts, strict=True):
        cell, batch, dim, dtype = loop.layer
        if clock.monotonic() > until:
            print(f"not measured, the time is over: {loop}", flush=True)
            continue
        config = " ".join(f"{name}={value}" for name, value in loop.config)
        kind = {"wgmma_both": "loop"}.get(loop.name, loop.name)
        row: dict[str, Any] = {"kind": kind, "cell": cell, "batch": batch, "time": TIME, "heads": 1, "dim": dim}
        row |= {"dtype": dtype, "config": "" if kind == "cuda" else config}
        more: dict[str, Any] = {"note": config} if kind == "cuda" else {}
        try:
            if isinstance(fact, str):
                raise ConstrintError(fact)
            if last != loop.layer:
                at, last = None, loop.layer
                at = Layer(gpu, loop.layer)
            assert at is not None
            ms, apart = at.ms(loop)
            exact = round(at.error(loop), 4) if is_exact else None
        except ConstrintError as error:
            yield row | {"outcome": str(error)[:120]}
            continue
        more |= {"apart": round(apart, 6), "registers": fact.registers_per_thread, "spill_bytes": fact.spill_bytes}
        more |= {"smem_bytes": fact.smem_bytes} | ({} if exact is None else {"of_bound": exact})
        yield row | {"outcome": "ok" if apart <= MOST_APART else "wrong", "ms": ms, "more": json.dumps(more)}


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--out", type=Path, help="the table that is written; without it, loops are counted alone")
    parser.add_argument("--first", type=int, default=4, help="of the model's first shapes of each layer")
    parser.add_argument("--drawn", type=int, default=8, help="drawn configurations of each layer")
    parser.add_argument("--kernels", nargs="+", default=["cuda", "wgmma_both"], help="the first one judges the others")
    parser.add_argument("--layers", type=int, default=len(LAYERS), help="so many of the list")
    parser.add_argument("--exact", action="store_true", help="compare with fp64, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=14, help="processes that compile")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds for everything")
    args = parser.parse_args()
    until, gpu = clock.monotonic() + args.limit, load_gpu(args.gpu)
    layers = LAYERS[: args.layers]
    loops = list(loops_of(gpu, args.first, args.drawn, args.seed, args.kernels, layers))
    print(f"{len(loops)} loops of {len(layers)} layers", flush=True)
    if args.out is None:
        return
    with ProcessPoolExecutor(args.jobs) as pool:
        facts = list(pool.map(partial(compiled, args.gpu), loops, chunksize=2))
    print(f"compiled, {until - clock.monotonic():.0f} s are left", flush=True)
    with Table(args.out, COLUMNS, described()) as table:
        for row in rows(gpu, loops, facts, until, is_exact=args.exact):
            print(json.dumps(table.add(**row)), flush=True)


if __name__ == "__main__":
    main()
