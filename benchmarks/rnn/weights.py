"""Time the gradient of a layer's recurrent weights alone: by products of the library, and by our kernels for it.

    python -m benchmarks.rnn.weights --gpu h200 --limit 40 --out rnn_weights.csv    # needs a GPU
    python -m benchmarks.rnn.weights --gpu h200 --compile                           # needs none: registers and spills

`products` is one product per gate, and the copy of the states that it needs before it; `kernels` (`rnn/weights`) read
the states as they are, in the usual blocks first and then in others. Every way is a CUDA graph; what is timed is its
replay after the L2 was filled with something else. It is right if it gives the exact sums of whole numbers, rounded
once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, attempt, described
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn.cells import CELLS, Cell
from constrint.kernels.rnn.weights.launch import WeightTiles, tiles_of

ROUNDS = 15
#: More than any L2 holds.
FLUSHED_BYTES = 1 << 28
COLUMNS = ("layer", "dtype", "bias", "way", "tiles", "usual", "us", "gb_per_s", "exact", "outcome")


@dataclass(frozen=True)
class Layer:
    """A layer whose backward loop has run."""

    cell: str
    heads: int
    dim: int
    batch: int
    dtype: str
    time: int = 1024

    @property
    def kind(self) -> Cell:
        """The cell's gates and slots."""
        return CELLS[self.cell]

    @property
    def moved_bytes(self) -> int:
        """Bytes of slots and states that are read at least."""
        return 2 * (self.kind.num_gates + 1) * self.batch * self.time * self.heads * self.dim

    def __str__(self) -> str:
        return f"{self.cell}-{self.heads}x{self.dim}-b{self.batch}-t{self.time}"


LAYERS = (
    Layer("lstm", 12, 64, 16, "bfloat16"),
    Layer("lstm", 6, 128, 16, "bfloat16"),
    Layer("lstm", 24, 32, 16, "bfloat16"),
    Layer("lstm", 2, 640, 16, "float16"),
    Layer("gru", 12, 64, 64, "bfloat16"),
    Layer("lstm", 4, 256, 16, "bfloat16"),
)


def candidates(layer: Layer, gpu: GpuModel) -> list[WeightTiles]:
    """The usual tiles first; then others whose stages fit an SM as often as they say."""
    usual = tiles_of(layer.kind, layer.dim, gpu)
    half = replace(usual, m=usual.m // 2, num_warps=4)
    others = (
        replace(usual, k=64, num_stages=4, blocks_per_sm=1),
        replace(usual, k=64, num_stages=3, blocks_per_sm=1),
        replace(half, blocks_per_sm=4),
        replace(half, k=64, num_stages=4, blocks_per_sm=2),
        replace(usual, blocks_per_sm=4),
        replace(usual, num_stages=3, blocks_per_sm=3),
        replace(usual, m=2 * usual.m, num_warps=8, k=64, num_stages=3, blocks_per_sm=1),
        replace(usual, num_stages=5, blocks_per_sm=2),
    )
    least = min(2, usual.blocks_per_sm)
    return [
        usual,
        *(
            tiles
            for tiles in others
            if tiles.m >= 16
            and tiles.m * tiles.n <= 1 << 15
            and 2 * tiles.k * (tiles.m + tiles.n) * tiles.num_stages * min(least, tiles.blocks_per_sm)
            <= gpu.sm.smem_bytes_per_sm - 8192
        ),
    ]


def tensors_of(layer: Layer, device: str) -> Any:
    """Slots, states of which h is the first, and where the gradients of r and b go."""
    import torch

    kind, dtype = layer.kind, getattr(torch, layer.dtype)

    def empty(*shape: int) -> Any:
        return torch.empty(shape, dtype=dtype, device=device)

    every = layer.batch, layer.time, layer.heads, layer.dim
    slots = empty(layer.batch, layer.time, kind.num_slots, layer.heads, layer.dim)
    r = empty(kind.num_gates, layer.heads, layer.dim, layer.dim)
    return slots, empty(1, *every), r, empty(*r.shape[:3])


def launches_of(layer: Layer, gpu: GpuModel, tensors: Any, tiles: WeightTiles, *, bias: bool) -> Any:
    """The launches of the kernels."""
    from constrint.kernels.launch.plan.scratch import Scratch
    from constrint.kernels.rnn.weights.launch import weight_launches

    slots, states, r, b = tensors
    return weight_launches(layer.kind, slots, states[0], None, r, b if bias else None, gpu, Scratch(), tiles)


def by_products(layer: Layer, tensors: Any, *, bias: bool) -> list[Any]:
    """The gradients as a backward pass computes them where the kernels are not taken."""
    import torch

    from constrint.kernels.rnn.edges import before_launch
    from constrint.kernels.rnn.gradients import bias_gradient, fused_weight_gradient
    from constrint.kernels.rnn.interface import BackwardTensors, RnnInputs

    slots, states, r, b = tensors
    before = torch.empty_like(states[0])
    inputs = RnnInputs(layer.cell, slots, r, None, None, None, None)
    before_launch(inputs, BackwardTensors(states, slots, (None,), None, slots, slots, before)).run()
    of_r = fused_weight_gradient(layer.kind, slots, before)
    return [of_r, bias_gradient(layer.kind, slots, b)] if bias else [of_r]


def by_kernels(launches: Any, tensors: Any, *, bias: bool) -> list[Any]:
    """The gradients as the launches write them."""
    for launch in launches:
        launch.run()
    return list(tensors[2:] if bias else tensors[2:3])


class Bench:
    """One layer on the GPU."""

    def __init__(self, layer: Layer, gpu: GpuModel) -> None:
        import torch

        self.layer, self.gpu, self.tensors = layer, gpu, tensors_of(layer, "cuda")
        self._flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")

    def row(self, call: Callable[[], list[Any]]) -> dict[str, Any]:
        """Capture a way, check and time it."""
        import torch

        cuda: Any = torch.cuda
        call()
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            gradients = call()
        self._fill(whole=True)
        for gradient in gradients:
            gradient.fill_(float("nan"))
        graph.replay()
        is_exact = all(torch.equal(*pair) for pair in zip(gradients, self._exact, strict=False))
        self._fill(whole=False)
        times = []
        for _ in range(ROUNDS):
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            self._flushed.zero_()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * begin.elapsed_time(end))
        us = statistics.median(times)
        return {"us": us, "gb_per_s": 1e-3 * self.layer.moved_bytes / us, "exact": is_exact, "outcome": "ok"}

    @cached_property
    def _exact(self) -> list[Any]:
        """The gradients of r and b in double precision, rounded, of whole numbers."""
        import torch

        slots, states, _, _ = self.tensors
        before = torch.zeros_like(states[0], dtype=torch.float64)
        before[:, 1:] = states[0, :, :-1]
        of_slots = [slots[:, :, slot].double() for slot in self.layer.kind.recurrent_slots]
        of_r = torch.stack([torch.einsum("btnd,btne->nde", each, before).to(slots.dtype) for each in of_slots])
        return [of_r, torch.stack([each.sum((0, 1)).to(slots.dtype) for each in of_slots])]

    def _fill(self, *, whole: bool) -> None:
        """Put numbers into slots and states, every time the same."""
        import torch

        generator = torch.Generator("cuda").manual_seed(1)
        for tensor in self.tensors[:2]:
            if whole:
                tensor.random_(-2, 3, generator=generator)
            else:
                tensor.normal_(generator=generator)


def ways(benches: list[Bench], gpu: GpuModel) -> Iterator[tuple[Bench, bool, WeightTiles | None]]:
    """What is timed, the most important first: no tiles stand for the library."""
    for bench in benches:
        for bias in (False, True):
            yield bench, bias, None
            yield bench, bias, candidates(bench.layer, gpu)[0]
    for bench in benches:
        for tiles in candidates(bench.layer, gpu)[1:]:
            yield bench, False, tiles


def told(tiles: WeightTiles | None) -> str:
    """Tiles in one word."""
    if tiles is None:
        return ""
    shape = f"{tiles.m}x{tiles.n}x{tiles.k}"
    return f"{shape}-warps{tiles.num_warps}-stages{tiles.num_stages}-per_sm{tiles.blocks_per_sm}"


def measure(gpu: GpuModel, until: float, out: Path | None) -> None:
    """Time everything that there is time for."""
    with Table(out, COLUMNS, described()) as table:
        for bench, bias, tiles in ways([Bench(layer, gpu) for layer in LAYERS], gpu):
            if time.monotonic() > until:
                print("the time is up", flush=True)
                return
            row = {"layer": str(bench.layer), "dtype": bench.layer.dtype, "bias": bias, "tiles": told(tiles)}
            row |= {"way": "kernels" if tiles else "products", "usual": tiles == candidates(bench.layer, gpu)[0]}

            def timed(bench: Bench = bench, bias: bool = bias, tiles: WeightTiles | None = tiles) -> dict[str, Any]:
                if tiles is None:
                    return bench.row(lambda: by_products(bench.layer, bench.tensors, bias=bias))
                launches = launches_of(bench.layer, gpu, bench.tensors, tiles, bias=bias)
                return bench.row(lambda: by_kernels(launches, bench.tensors, bias=bias))

            shown = table.add(**row, **attempt(timed))
            print(" ".join(f"{name}={shown[name]}" for name in COLUMNS if shown.get(name, "") != ""), flush=True)


def compile_all(gpu: GpuModel) -> None:
    """Print what every candidate takes."""
    for layer in LAYERS:
        tensors = tensors_of(layer, "meta")
        for tiles in candidates(layer, gpu):
            first = launches_of(layer, gpu, tensors, tiles, bias=True)[0]
            taken = first.compile(gpu)
            print(
                f"{layer} {told(tiles)} grid={first.grid} registers={taken.registers_per_thread} "
                f"spill_bytes={taken.spill_bytes} smem_bytes={taken.smem_bytes}",
                flush=True,
            )


def main() -> None:
    """Time, or compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--limit", type=float, default=40, help="seconds (default 40)")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="print what the compiler says; needs no GPU")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    if args.compile:
        compile_all(gpu)
    else:
        measure(gpu, time.monotonic() + args.limit, args.out)


if __name__ == "__main__":
    main()
