"""Facts of a matrix-vector product that its rules, its cost and its launches share. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from constrint.select.workload import ELEMENT_BYTES, Workload

#: Bytes of the widest load.
WIDEST = 16
#: Bytes of a result by the dtype of the matrix; a matrix of 8 bits has vectors of 16.
VECTOR_BYTES = {**ELEMENT_BYTES, "fp8": 2}
#: Bytes of a sum: fp64 for fp64, else fp32.
SUM_BYTES = {name: 8 if name == "fp64" else 4 for name in ELEMENT_BYTES}


@dataclass(frozen=True)
class MatrixShape:
    """The matrices of a workload.

    Args:
        m: Results of a product.
        n: Terms of a result.
        batch: Products.
        by_columns: Whether a matrix is contiguous along M; else along N.
        element_bytes, vector_bytes, sum_bytes: Bytes of an element of the matrix, of the vectors, and of a sum.
        width: Bytes of which every contiguous row (or column) starts at a multiple, up to `WIDEST`.
        has_y: Whether beta * y is added.
    """

    m: int
    n: int
    batch: int
    by_columns: bool
    element_bytes: int
    vector_bytes: int
    sum_bytes: int
    width: int
    has_y: bool

    @staticmethod
    def of(workload: Workload) -> MatrixShape:
        """The shape of a workload."""
        options, dtype = workload.options, workload.dtype
        m, n = workload.sizes["m"], workload.sizes["n"]
        by_columns = bool(options.get("transposed", 0))
        element = ELEMENT_BYTES[dtype]
        width = options.get("width", 0) or natural_width(m if by_columns else n, element)
        sizes = element, VECTOR_BYTES[dtype], SUM_BYTES[dtype]
        return MatrixShape(m, n, options.get("batch", 1), by_columns, *sizes, width, bool(options.get("beta", 0)))

    @property
    def length(self) -> int:
        """Elements of a contiguous row or column."""
        return self.m if self.by_columns else self.n

    @property
    def matrix_bytes(self) -> int:
        """Bytes of all matrices."""
        return self.batch * self.m * self.n * self.element_bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes of all matrices and vectors, each counted once."""
        return self.matrix_bytes + self.batch * self.vector_bytes * (self.n + self.m * (2 if self.has_y else 1))

    @property
    def widest_vector(self) -> int:
        """Elements of the widest load of the matrix."""
        return max(1, min(self.width, WIDEST) // self.element_bytes)


def natural_width(length: int, element_bytes: int) -> int:
    """Bytes of which the starts of rows are multiples that follow each other."""
    return gcd(length * element_bytes, WIDEST)


def lanes_of(tile_m: int, tile_n: int, vector: int, threads: int) -> int:
    """Columns that the threads of a block read side by side where the matrix lies by columns."""
    return max(1, min(tile_n, threads * vector // tile_m))
