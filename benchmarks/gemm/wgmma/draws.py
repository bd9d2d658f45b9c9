"""Random kernels of the whole space of a CUDA GEMM, and random launches of them: all by a seed and a number."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.gemm.wgmma.configs import DTYPES, Config, columns_of, config_at, named, product_of
from benchmarks.gemm.wgmma.products import End
from benchmarks.gemm.wgmma.strided import Gaps, result_bytes
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import LINE_BYTES
from constrint.kernels.gemm.cuda.spec import PARTS, CudaSpec
from constrint.kernels.gemm.units import ELEMENT_BYTES, needs_k_major
from constrint.kernels.registry import load_spec

#: A product that leaves the whole space: no tile is larger than it.
WHOLE = (3000, 3000, 8192)
LAYOUTS = ("rr", "rc", "cr", "cc")
#: Orders of tiles.
GROUPS = (1, 2, 4, 8, 16, 32)
#: Most products of sizes, which is what an exact product takes, and most bytes of partial sums.
MOST_PRODUCTS, MOST_PARTIAL_BYTES = 2**33, 2**28


class Kernel(NamedTuple):
    """What is compiled; the factors of `end`, and how `config` deals out tiles, are drawn for every launch."""

    dtype: str
    layout: str
    config: Config
    end: End

    @property
    def facts(self) -> dict[str, Any]:
        """As columns of a table."""
        return {"dtype": self.dtype, "layout": self.layout, "config": named(self.config), "end": ended(self.end)}

    @property
    def words(self) -> str:
        """In a line."""
        return " ".join(self.facts.values())


def ended(end: End) -> str:
    """What is done with sums, in a word."""
    source = "source by columns" if end.source_by_columns else "source"
    parts = [end.result, "bias" * end.has_bias, source * end.has_source, end.activation or ""]
    return ", ".join(part for part in parts if part) or "plain"


@dataclass(frozen=True)
class Drawn:
    """A launch.

    Args:
        number: Which of all.
        place: The kernel's.
        kernel: What is compiled.
        shape: M, N and K.
        config: With how tiles are dealt out.
        end: With factors.
        gaps: Where operands and results lie.
        repeats: How many times it is launched, one right behind the other.
    """

    number: int
    place: int
    kernel: Kernel
    shape: tuple[int, int, int]
    config: Config
    end: End
    gaps: Gaps
    repeats: int

    @property
    def words(self) -> str:
        """In a line; with the seed and the number of kernels the number tells it all."""
        dealt = " ".join(f"{name}={self.config[name]}" for name in ("split_k", "only_last", "group_m"))
        sizes, gaps = "x".join(map(str, self.shape)), "; ".join(f"{at}+{gap}" for at, gap in self.gaps)
        factors = f"alpha {self.end.alpha:g} beta {self.end.beta:g}"
        return f"{self.number}: {sizes} {self.kernel.words}, {dealt}, {factors}, gaps {gaps}, {self.repeats} times"


def drawn_kernels(gpu: GpuModel, number: int, seed: int) -> list[Kernel]:
    """Kernels of all dtypes, layouts and ends: half of them in 16 bits, half of them plain."""
    spec = load_spec("gemm.cuda")
    assert isinstance(spec, CudaSpec)
    draw = random.Random(f"{seed} kernels")
    spaces: dict[tuple[str, str, bool], Any] = {}
    kernels = []
    for _ in range(number):
        dtype = draw.choice(("bf16", "fp16", *DTYPES))
        layout = "rc" if needs_k_major(dtype) else draw.choice(LAYOUTS)
        end = End.drawn(draw, dtype)
        key = dtype, layout, end.is_plain
        if key not in spaces:
            spaces[key] = columns_of(gpu, product_of(WHOLE, dtype, layout, is_plain=end.is_plain), spec)
        columns = spaces[key]
        config = config_at(columns, draw.randrange(len(columns["tile_m"])))
        # Of clusters of four the space has few.
        if draw.random() < 0.5:
            clusters = draw.choice((1, 2, 4))
            rows = [
                place
                for place in draw.sample(range(len(columns["tile_m"])), 400)
                if columns["cluster_m"][place] * columns["cluster_n"][place] == clusters
            ]
            config = config_at(columns, rows[0]) if rows else config
        kernels.append(Kernel(dtype, layout, config, end))
    return kernels


def drawn_launch(kernels: list[Kernel], usable: list[int], seed: int, number: int, *, is_small: bool) -> Drawn:
    """The launch of a number: mostly of a small product, which takes little time to compute exactly."""
    draw = random.Random(f"{seed} launch {number}")
    place = usable[draw.randrange(len(usable))]
    kernel = kernels[place]
    shape = _shape(draw, kernel, is_small=is_small)
    alpha = 1.0 if kernel.dtype == "int8" and not kernel.end.result else draw.choice((1.0, 0.5, -3.0, 2.0**-6))
    end = kernel.end._replace(alpha=alpha, beta=draw.choice((2.0, -0.5)) * kernel.end.has_source)
    config = kernel.config | _dealt(draw, kernel.config, shape)
    bytes_ = result_bytes(kernel.dtype, kernel.end)
    gaps = Gaps.drawn(draw, shape, kernel.dtype, kernel.layout, bytes_)
    return Drawn(number, place, kernel, shape, config, end, gaps, draw.choice((1, 1, 1, 2)))


def _shape(draw: random.Random, kernel: Kernel, *, is_small: bool) -> tuple[int, int, int]:
    def size(most: float, least: float = 1.0) -> int:
        found = int(least * (most / least) ** draw.random())
        return max(int(least), found // 8 * 8 if draw.random() < 0.5 else found)

    line = LINE_BYTES // ELEMENT_BYTES[kernel.dtype]
    # Across K rows are no shorter than a line.
    least = [1.0 if letter == own else line for letter, own in zip(kernel.layout, "rc", strict=True)]
    most, deepest = (300.0, 600.0) if is_small else (3000.0, 4000.0) if draw.random() < 0.15 else (700.0, 2000.0)
    m, n = size(most, least[0]), size(most, least[1])
    k = size(deepest * 4 if draw.random() < 0.1 and not is_small else deepest)
    return m, n, max(1, min(k, MOST_PRODUCTS // (m * n)))


def _dealt(draw: random.Random, config: Config, shape: tuple[int, int, int]) -> Config:
    """How tiles are dealt out, which is told at the launch: half of all tiles are split."""
    m, n = shape[0] + config["tile_m"] * 2, shape[1] + config["tile_n"] * 2
    fitting = [parts for parts in PARTS if parts * m * n * 4 <= MOST_PARTIAL_BYTES]
    parts = draw.choice(fitting) if draw.random() < 0.5 else 1
    return {"split_k": parts, "only_last": int(parts > 1 and draw.random() < 0.5), "group_m": draw.choice(GROUPS)}
