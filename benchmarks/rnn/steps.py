"""Loops over single steps beside torch: cells, layers called with T = 1, Set2Set; and layers in torch.compile.

    python -m benchmarks.rnn.steps --out steps.csv

Times are wall-clock, from an idle device to an idle device, the least of several repeats: the host counts.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from constrint import flashrnn

STEPS = 100
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CELLS: dict[str, tuple[Any, Any]] = {
    "lstm": (flashrnn.LSTMCell, nn.LSTMCell),
    "gru": (flashrnn.GRUCell, nn.GRUCell),
    "elman": (flashrnn.RNNCell, nn.RNNCell),
}
LAYERS: dict[str, tuple[Any, Any]] = {
    "lstm": (flashrnn.LSTM, nn.LSTM),
    "gru": (flashrnn.GRU, nn.GRU),
    "elman": (flashrnn.RNN, nn.RNN),
}
Case = tuple[str, str, Callable[[], Any], Callable[[], Any]]


def wall_s(run: Callable[[], Any], repeats: int) -> float:
    """The least seconds of a run."""
    best = float("inf")
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def _both(loss_of: Callable[[], Tensor], module: nn.Module) -> Callable[[], None]:
    def run() -> None:
        module.zero_grad()
        loss_of().backward()  # type: ignore[no-untyped-call]

    return run


def _inference(loss_of: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            loss_of()

    return run


def cell_loops(units: list[int], batches: list[int], dtypes: list[str], cells: list[str]) -> Iterator[Case]:
    """Loops of 100 steps of a cell."""
    for cell in cells:
        for dtype in dtypes:
            for width in units:
                for batch in batches:
                    runs = []
                    for kind in CELLS[cell]:
                        torch.manual_seed(0)
                        module = kind(width, width, device="cuda", dtype=DTYPES[dtype])
                        x = torch.randn(STEPS, batch, width, device="cuda", dtype=DTYPES[dtype])
                        runs.append((_loop(module, x), module))
                    yield from _cases(f"cell {cell} {width} B{batch} {dtype}", runs)


def _loop(module: Any, x: Tensor) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        states: Any = None
        for t in range(STEPS):
            states = module(x[t], states)
        return (states[0] if isinstance(states, tuple) else states).float().sum()  # type: ignore[no-any-return]

    return loss


def _cases(name: str, runs: list[tuple[Callable[[], Tensor], nn.Module]]) -> Iterator[Case]:
    (ours, mine), (theirs, right) = runs
    yield name, "forward", _inference(ours), _inference(theirs)
    yield name, "both", _both(ours, mine), _both(theirs, right)


def layer_loops(num_layers: list[int]) -> Iterator[Case]:
    """Loops of 100 calls of a layer with T = 1."""
    for cell in ("lstm", "gru"):
        for number in num_layers:
            for width, batch in ((64, 32), (256, 64), (512, 16)):
                runs = []
                for kind in LAYERS[cell]:
                    torch.manual_seed(0)
                    module = kind(width, width, number, device="cuda")
                    x = torch.randn(STEPS, 1, batch, width, device="cuda")
                    runs.append((_layer_loop(module, x), module))
                yield from _cases(f"layer {cell} {width} x {number} B{batch} T1 fp32", runs)


def _layer_loop(module: Any, x: Tensor) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        states: Any = None
        for t in range(STEPS):
            output, states = module(x[t], states)
        return output.sum()  # type: ignore[no-any-return]

    return loss


def set2set() -> Iterator[Case]:
    """Set2Set (arXiv 1511.06391): a layer called with T = 1, then attention over the nodes of each graph."""
    for width, graphs, nodes, number in ((64, 32, 800, 1), (128, 128, 4000, 1), (64, 32, 800, 2)):
        runs = []
        for kind in LAYERS["lstm"]:
            torch.manual_seed(0)
            module = kind(2 * width, width, number, device="cuda")
            x = torch.randn(nodes, width, device="cuda")
            index = torch.randint(0, graphs, (nodes,), device="cuda").sort().values
            runs.append((_set2set(module, x, index, graphs), module))
        yield from _cases(f"set2set {width} x {number} graphs {graphs} nodes {nodes} 20 steps fp32", runs)


def _set2set(module: Any, x: Tensor, index: Tensor, graphs: int) -> Callable[[], Tensor]:
    width, number = x.shape[1], module.num_layers

    def loss() -> Tensor:
        h: Any = (x.new_zeros(number, graphs, width), x.new_zeros(number, graphs, width))
        q_star = x.new_zeros(graphs, 2 * width)
        for _ in range(20):
            q, h = module(q_star.unsqueeze(0), h)
            q = q.view(graphs, width)
            energy = (x * q[index]).sum(-1)
            energy = (energy - energy.detach().max()).exp()
            total = x.new_zeros(graphs).index_add(0, index, energy)
            share = energy / (total[index] + 1e-16)
            r = x.new_zeros(graphs, width).index_add(0, index, share.unsqueeze(-1) * x)
            q_star = torch.cat([q, r], dim=-1)
        return q_star.sum()

    return loss


class Between(nn.Module):
    """A layer between two linear ones."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(width, width), layer, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output."""
        return self.last(self.layer(self.first(x))[0])  # type: ignore[no-any-return]


def compiled() -> Iterator[Case]:
    """Calls of a layer under torch.compile (in the column `ours`) beside the same without it."""
    layer = flashrnn.LSTM(64, 64, device="cuda")
    x = torch.randn(32, 16, 64, device="cuda")
    model = Between(layer, 64).cuda()
    variants: list[tuple[str, Any, Any]] = [
        ("alone", layer, torch.compile(layer)),
        ("in a model", model, torch.compile(model)),
        ("alone, fullgraph", layer, torch.compile(layer, fullgraph=True)),
        ("a linear layer (the floor)", model.first, torch.compile(model.first)),
    ]
    for name, eager, made in variants:
        torch._dynamo.reset()
        for how in ("forward", "both"):
            runs = []
            for module in (made, eager):

                def loss(module: Any = module) -> Tensor:
                    found = module(x)
                    return (found[0] if isinstance(found, tuple) else found).sum()  # type: ignore[no-any-return]

                runs.append(_inference(loss) if how == "forward" else _both(loss, eager))
            yield f"torch.compile {name}: LSTM 64 B16 T32 fp32", how, runs[0], runs[1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="CSV file; printed, too")
    parser.add_argument("--units", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 1024])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["fp32", "bf16"])
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--parts", nargs="+", default=["cells", "layers", "set2set", "compile"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new case after these")
    options = parser.parse_args()
    parts: dict[str, Callable[[], Iterator[Case]]] = {
        "set2set": set2set,
        "layers": lambda: layer_loops([1, 2]),
        "compile": compiled,
        "cells": lambda: cell_loops(options.units, options.batches, options.dtypes, options.cells),
    }
    began, rows = time.perf_counter(), []
    writer = csv.writer(sys.stdout)
    writer.writerow(("case", "how", "ours_ms", "torch_ms", "speed"))
    for part, cases in parts.items():
        if part not in options.parts:
            continue
        for name, how, ours, theirs in cases():
            mine, right = wall_s(ours, options.repeats), wall_s(theirs, options.repeats)
            rows.append((name, how, f"{1e3 * mine:.4f}", f"{1e3 * right:.4f}", f"{right / mine:.3f}"))
            writer.writerow(rows[-1])
            sys.stdout.flush()
            if time.perf_counter() - began > options.seconds:
                break
    if options.out is not None:
        with options.out.open("w", newline="") as file:
            csv.writer(file).writerows([("case", "how", "ours_ms", "torch_ms", "speed"), *rows])


if __name__ == "__main__":
    main()
