"""What makes a configuration of the CUDA kernel as fast as it is predicted to be: rounds, bytes, stages, clocks."""

from __future__ import annotations

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.constants import CONSTANTS
from constrint.kernels.gemm.cuda.cost import CudaModel
from constrint.kernels.gemm.cuda.shape import Shape, cluster_slots, slice_bytes
from constrint.kernels.gemm.product import Product
from constrint.select.candidate import Config


def figures_of(gpu: GpuModel, p: Product, config: Config) -> dict[str, float]:
    """By names with units; shares are of 1.

    `rounds` are tiles (or parts of tiles) that the busiest SM computes one after the other; `results_share` is the part
    of what all SMs compute in these rounds that belongs to C. The L2 gives `l2_slice_bytes` for each slice of a block:
    what blocks of a cluster share counts once.
    """
    shape = Shape.of(config)
    over_m, over_n = config["tile_m"] * config["cluster_m"], config["tile_n"] * config["cluster_n"]
    tiles = -(-p.m // over_m) * -(-p.n // over_n)
    slots = int(cluster_slots(gpu, shape.cluster))
    whole = tiles if config["split_k"] == 1 else tiles // slots * slots if config["only_last"] else 0
    units = whole + (tiles - whole) * config["split_k"]
    rounds = -(-units // slots)
    # A round of parts of tiles takes a share of one of tiles.
    in_tiles = -(-whole // slots) + -(-(units - whole) // slots) / config["split_k"]
    of_a = slice_bytes(config["tile_m"], p.dtype, is_k_major=p.a.is_k_major)
    of_b = slice_bytes(config["tile_n"], p.dtype, is_k_major=p.b.is_k_major)
    one = {name: np.array([value]) for name, value in config.items()}
    model = CudaModel(gpu, p, one, CONSTANTS)
    clks = {"matrix": model.matrix_clk, "l2": model.l2_clk, "port": model.port_clk, "latency": model.latency_clk}
    return {
        "clusters": tiles,
        "clusters_at_once": slots,
        "rounds": rounds,
        "results_share": p.m * p.n / (in_tiles * slots * over_m * over_n),
        "slice_bytes": of_a + of_b,
        "l2_slice_bytes": of_a / config["cluster_n"] + of_b / config["cluster_m"],
        "num_stages": config["num_stages"],
        **{f"{name}_clk_per_slice": float(clk[0]) for name, clk in clks.items()},
    }
