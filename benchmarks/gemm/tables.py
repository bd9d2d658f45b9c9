"""Tables of first choices for many products, made by all cores before anything is timed. No torch.

A process makes a table in seconds when it first meets a kind of product; later ones find it on disk.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

from constrint import cache
from constrint.errors import ConstrintError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.product import Product
from constrint.select import Workload


def make_tables(gpu: str, workloads: Sequence[Workload]) -> int:
    """Make the tables of all products; gives how many kinds of products there are."""
    kinds: dict[object, Workload] = {}
    for workload in workloads:
        product = Product.of(workload)
        lies = [(each.width_bytes, each.is_k_major, each.is_copied) for each in (product.a, product.b)]
        kinds.setdefault((product.dtype, *lies, tuple(workload.options)), workload)
    if cache.folder() is not None and len(kinds) > 1:
        with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_make, [gpu] * len(kinds), kinds.values()))
    return len(kinds)


def _make(gpu: str, workload: Workload) -> None:
    with suppress(ConstrintError):  # whoever asks for this product is told
        decide_product(load_gpu(gpu), Product.of(workload))
