"""Published figures of AMD's best GEMMs beside what the model predicts; nothing here enters the model.

HipKittens (arXiv 2511.08083), bf16 on an MI355X: sizes, variants with and without waves that only fetch, and orders of
tiles. `python -m constrint.kernels.gemm.cdna.published` prints the table. Their kernels are not ours: the figures say
whether the model orders what others measured.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.cdna.cost import cdna_cost
from constrint.kernels.gemm.cdna.shape import ADDRESSES, LANES, REGISTER_BYTES, share_of_registers
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.select.workload import Workload

#: TFLOP/s of square products, 8 waves, 256x256x64.
PUBLISHED_SIZES = {1024: 139, 2048: 665, 4096: 1413, 8192: 1610}
#: Depth of a step, and the size of the products of the variants.
DEPTH, VARIANT_SIZE = 64, 8192


class Variant(NamedTuple):
    """A block of waves that fetch and waves that multiply, and its published TFLOP/s at 8192^3."""

    producers: int
    consumers: int
    tile_m: int
    tile_n: int
    tflops: int


class PublishedOrder(NamedTuple):
    """Published hit rates of the L2 and the last level in percent, TB/s, and TFLOP/s, of tiles in an order."""

    l2_percent: int
    last_percent: int
    tb_per_s: float
    tflops: int


VARIANTS = {
    "4+8, 128x256": Variant(4, 8, 128, 256, 893),
    "4+12, 192x256": Variant(4, 12, 192, 256, 1278),
    "0+8, 192x256": Variant(0, 8, 192, 256, 1281),
    "0+8, 256x256": Variant(0, 8, 256, 256, 1610),
}
#: Tiles of 192x256x64, by size, then by window and chunk; (1, 0) is row by row.
WINDOWS: dict[int, dict[tuple[int, int], PublishedOrder]] = {
    9216: {
        (1, 0): PublishedOrder(55, 95, 15.1, 1113),
        (7, 216): PublishedOrder(79, 24, 14.9, 991),
        (5, 25): PublishedOrder(75, 93, 18.3, 1145),
    },
    14592: {
        (1, 0): PublishedOrder(36, 76, 10.7, 900),
        (8, 542): PublishedOrder(79, 7, 13.9, 980),
        (8, 64): PublishedOrder(78, 55, 16.6, 1068),
    },
}


def _tflops(gpu: GpuModel, size: int, columns: dict[str, int]) -> float:
    workload = Workload("gemm", {"m": size, "n": size, "k": size}, "bf16", {"transpose_b": 1})
    row = {name: np.array([value]) for name, value in columns.items()}
    cost = cdna_cost(gpu, Product.of(workload), row, np.array([1]))
    return 2e-12 * size**3 / float(cost.seconds[0])


def predicted_sizes(gpu: GpuModel) -> dict[int, float]:
    """TFLOP/s of 8 waves with the tile and the order of tiles that the model likes best."""
    tiles = [(m, n) for m in (256, 128) for n in (256, 128)]
    order = [(window, chunk) for window in (8, 4) for chunk in (0, 64)]
    return {
        size: max(_tflops(gpu, size, _columns(m, n, 8, window, chunk)) for m, n in tiles for window, chunk in order)
        for size in PUBLISHED_SIZES
    }


def _columns(m: int, n: int, waves: int, window: int, chunk: int) -> dict[str, int]:
    return {"tile_m": m, "tile_n": n, "tile_k": DEPTH, "num_warps": waves, "group_m": window, "xcd_chunk": chunk}


def variant_fits(gpu: GpuModel, variant: Variant) -> bool:
    """Whether the registers of a wave that multiplies fit its share of a SIMD's, which producers make smaller."""
    sums = variant.tile_m * variant.tile_n // (LANES * variant.consumers)
    # Operands of one instruction's depth at a time, for the shape of waves that needs fewest.
    sides = [(w, variant.consumers // w) for w in (1, 2, 3, 4) if variant.consumers % w == 0]
    each = 32 * ELEMENT_BYTES["bf16"]
    least = min(variant.tile_m // rows + variant.tile_n // columns for rows, columns in sides)
    live = sums + least * each // (LANES * REGISTER_BYTES) + ADDRESSES
    return bool(live <= share_of_registers(gpu, variant.producers + variant.consumers))


def predicted_variants(gpu: GpuModel) -> dict[str, float]:
    """TFLOP/s of the variants by their tiles and the waves that multiply; what producers cost is the smaller tile."""
    return {
        name: _tflops(gpu, VARIANT_SIZE, _columns(v.tile_m, v.tile_n, v.consumers, 8, 64))
        for name, v in VARIANTS.items()
    }


def predicted_windows(gpu: GpuModel) -> dict[int, dict[tuple[int, int], float]]:
    """TFLOP/s of the orders of tiles."""
    return {
        size: {(w, c): _tflops(gpu, size, _columns(192, 256, 8, w, c)) for w, c in orders}
        for size, orders in WINDOWS.items()
    }


def report(gpu: GpuModel) -> str:
    """The table: what was published, and what is modelled."""
    lines = [f"{gpu.name}, bf16, TFLOP/s: measured elsewhere (HipKittens, arXiv 2511.08083) / modelled here"]
    for size, rate in predicted_sizes(gpu).items():
        lines.append(f"  {size}^3, 8 waves: {PUBLISHED_SIZES[size]} / {rate:.0f}")
    for name, rate in predicted_variants(gpu).items():
        lines.append(f"  8192^3, producers+consumers {name}: {VARIANTS[name].tflops} / {rate:.0f}")
    for size, rates in predicted_windows(gpu).items():
        for (window, chunk), rate in rates.items():
            published = WINDOWS[size][window, chunk].tflops
            lines.append(f"  {size}^3, 192x256, window {window}, chunk {chunk}: {published} / {rate:.0f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(load_gpu("mi355x")))
