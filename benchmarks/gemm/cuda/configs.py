"""Configurations of the CUDA GEMM: all that are valid for a product, ranked by the kernel's own cost model or drawn."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.spec import SPECS, CudaSpec
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, LINE_BYTES, OUTPUT_BYTES
from constrint.solve import enumerate_space

SPEC = SPECS[0]
DTYPES = SPEC.dtypes
#: The distance of rows of timed operands is a multiple of this.
ROW_ELEMENTS = 16
#: Parameters that a table names by themselves; the others are one word.
DEALT = ("group_m", "split_k", "only_last")

Config = dict[str, int]


def product_of(shape: tuple[int, int, int], dtype: str, layout: str, *, is_plain: bool = True) -> Product:
    """A product of operands whose rows are multiples of 16 elements apart, however long they are.

    Args:
        shape: M, N and K.
        dtype: Type of A and B.
        layout: How A and B lie: "r" by rows, "c" by columns.
        is_plain: Whether nothing is added.
    """
    m, n, k = shape
    by_rows, element = [letter == "r" for letter in layout], ELEMENT_BYTES[dtype]
    lengths = (k if by_rows[0] else m), (n if by_rows[1] else k)
    # A row takes up whole multiples of 16 elements.
    steps = [math.gcd(-(-length // ROW_ELEMENTS) * ROW_ELEMENTS * element, LINE_BYTES) for length in lengths]
    a = MatrixLayout(step_bytes=steps[0], is_k_major=by_rows[0])
    b = MatrixLayout(step_bytes=steps[1], is_k_major=not by_rows[1])
    return Product(*shape, dtype, a, b, OUTPUT_BYTES[dtype], has_bias=not is_plain)


def columns_of(gpu: GpuModel, product: Product, spec: CudaSpec = SPEC) -> dict[str, NDArray[np.int64]]:
    """Every valid configuration, as columns; the order of tiles has its first value."""
    problem = spec.product_problem(gpu, product)
    names = [name for name in problem.variables if name not in spec.order_params]
    columns, _ = enumerate_space(problem).project(names)
    number = len(columns["tile_m"])
    return {**columns, "group_m": np.full(number, 8)}


def config_at(columns: Mapping[str, NDArray[Any]], row: int) -> Config:
    """One of them."""
    return {name: int(column[row]) for name, column in columns.items()}


def ranked(
    gpu: GpuModel, product: Product, top: int, slowest: float = math.inf, spec: CudaSpec = SPEC
) -> Iterator[Config]:
    """Rank configurations by the cost model, up to a multiple of the best time."""
    columns = columns_of(gpu, product, spec)
    seconds = spec.price(gpu, product, columns, np.ones(len(columns["tile_m"]))).seconds
    order = np.argsort(seconds, kind="stable")
    for row in order[:top]:
        if seconds[row] <= slowest * seconds[order[0]]:
            yield config_at(columns, int(row))


def spread(
    gpu: GpuModel, product: Product, each: int, draw: random.Random, slowest: float, spec: CudaSpec = SPEC
) -> Iterator[Config]:
    """Take the first of the cost model's ranking for a third, and others up to a multiple of the best time."""
    columns = columns_of(gpu, product, spec)
    seconds = spec.price(gpu, product, columns, np.ones(len(columns["tile_m"]))).seconds
    order = np.argsort(seconds, kind="stable")
    first, others = order[: each // 3], order[each // 3 : int(np.sum(seconds <= slowest * seconds[order[0]]))]
    for row in (*first, *draw.sample(list(others), min(each - len(first), len(others)))):
        yield config_at(columns, int(row))


def drawn(gpu: GpuModel, product: Product, draw: random.Random, spec: CudaSpec = SPEC) -> Config:
    """One of all, with any order of tiles."""
    columns = columns_of(gpu, product, spec)
    config = config_at(columns, draw.randrange(len(columns["tile_m"])))
    return config | {"group_m": draw.choice((1, 2, 8))}


def named(config: Mapping[str, int]) -> str:
    """A configuration in a word: tile and stages, how consumers share it, the cluster."""
    schedule = (
        "turns" if config["in_turns"] else f"{config['consumers'] // config['by_columns']}x{config['by_columns']}"
    )
    text = f"{config['tile_m']}x{config['tile_n']}x{config['num_stages']} {schedule}"
    return f"{text} {config['cluster_m']}x{config['cluster_n']}" + " turned" * config["turned"]
