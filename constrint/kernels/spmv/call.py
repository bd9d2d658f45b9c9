"""One product with a sparse matrix: arguments are checked, what runs is found or chosen; gradients. Needs torch."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.spmv.launch import DTYPE_NAMES, library_product
from constrint.kernels.spmv.products import AUTO, Products, check_kernel
from constrint.kernels.spmv.reference import spmv_reference
from constrint.kernels.spmv.structure import Known, known


def run_product(
    matrix: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float, kernel: str = AUTO, config: Any = None,
    reuse: int = 0, frozen: bool | None = None, check: bool = False,
) -> Tensor:  # fmt: skip
    """`spmv` without gradients."""
    is_sparse = isinstance(matrix, Tensor) and matrix.layout is torch.sparse_csr and matrix.dim() == 2
    if not is_sparse or not isinstance(x, Tensor) or not (y is None or isinstance(y, Tensor)):
        check_operands(matrix, x, y)
    found = known(matrix)
    given = None if config is None else tuple(config.items())
    kind = (x.shape, x.dtype, x.layout, x.get_device(), kernel, given, reuse, frozen, y is None)
    products = found.runs.get(kind)
    if products is None:
        products = found.runs[kind] = _products(matrix, found, x, y, kernel, config, reuse, frozen)
    if check:
        found.read()
    found.calls += 1
    if not x.is_contiguous():
        x = x.contiguous()
    if y is not None:
        if beta == 0 or y.shape != (found.shape[0], *x.shape[1:]) or y.dtype != x.dtype:
            y = _source(y, beta, (found.shape[0], *x.shape[1:]), x)
        elif not y.is_contiguous():
            y = y.contiguous()
    out: Tensor = products(x, y, float(alpha), 0.0 if y is None else float(beta))
    return out


def _source(y: Tensor, beta: float, shape: tuple[int, ...], x: Tensor) -> Tensor | None:
    """The tensor that is added; None where its factor is 0.

    Raises:
        RuntimeError: For another shape or dtype.
    """
    if y.shape != shape or y.dtype != x.dtype or y.device != x.device:
        raise RuntimeError(
            f"spmv: y is of the result's shape {tuple(shape)}, {x.dtype}, on {x.device}; got {tuple(y.shape)}, "
            f"{y.dtype}, on {y.device}."
        )
    return None if beta == 0 else y.contiguous()


def _products(
    matrix: Tensor, found: Known, x: Tensor, y: Tensor | None, kernel: str, config: Any, reuse: int,
    frozen: bool | None,
) -> Any:  # fmt: skip
    """Check the arguments; return a function that runs products of this kind."""
    check_operands(matrix, x, y)
    check_kernel(kernel, config)
    if not isinstance(reuse, int) or reuse < 0:
        raise UsageError(f"spmv: reuse is a number of products from 0 on, got {reuse!r}.")
    if not found.values.numel() or not x.numel() or not found.shape[0]:
        return _empty(found.shape[0])
    if matrix.device.type != "cuda" and kernel == AUTO:
        return _on_cpu(weakref.ref(matrix))
    width = x.shape[1] if x.dim() == 2 else 0
    return Products(found, weakref.ref(matrix), width, y is not None, kernel, config, reuse, frozen)


def check_operands(matrix: Tensor, x: Tensor, y: Tensor | None) -> None:
    """Raise for arguments that do not go together."""
    for name, each in (("matrix", matrix), ("x", x), *([("y", y)] if y is not None else [])):
        if not isinstance(each, Tensor):
            raise TypeError(f"spmv: {name} is a tensor, got {type(each).__name__}.")
    if matrix.layout is not torch.sparse_csr or matrix.dim() != 2:
        raise RuntimeError(
            f"spmv: matrix is a CSR tensor of two axes, got {matrix.layout} {tuple(matrix.shape)}; "
            "`matrix.to_sparse_csr()` makes one."
        )
    if x.layout is not torch.strided or x.dim() not in (1, 2) or x.shape[0] != matrix.shape[1]:
        raise RuntimeError(
            f"spmv: x is ({matrix.shape[1]},) or ({matrix.shape[1]}, N) for a matrix {tuple(matrix.shape)}, "
            f"got {tuple(x.shape)}."
        )
    if matrix.dtype != x.dtype or matrix.dtype not in DTYPE_NAMES:
        names = ", ".join(DTYPE_NAMES.values())
        raise RuntimeError(f"spmv: matrix and x have one dtype of {names}; got {matrix.dtype} and {x.dtype}.")
    if matrix.device != x.device:
        raise RuntimeError(f"spmv: matrix and x on one device, got {matrix.device} and {x.device}.")
    if y is not None:
        _source(y, 1.0, (matrix.shape[0], *x.shape[1:]), x)


def _empty(rows: int) -> Any:
    """Products without entries."""

    def run(x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
        if source is None:
            return x.new_zeros((rows, *x.shape[1:]))
        return source * beta

    return run


def _on_cpu(matrix: Any) -> Any:
    """Products on the CPU: torch's, and the reference for dtypes that torch does not multiply there."""

    def run(x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
        m = matrix()
        if m.dtype in (torch.float32, torch.float64) and m.device.type == "cpu":
            return library_product(m, x, source, alpha, beta)
        wide = spmv_reference(m.crow_indices(), m.col_indices(), m.values(), x, source, alpha, beta)
        return wide.to(x.dtype)

    return run


def values_gradient(crow: Tensor, columns: Tensor, x: Tensor, gradient: Tensor, alpha: float) -> Tensor:
    """alpha * gradient[row] * x[column] of every entry, summed over the columns of x, in x's dtype."""
    row = torch.repeat_interleave(torch.arange(crow.shape[0] - 1, device=crow.device), (crow[1:] - crow[:-1]).long())
    products = gradient[row] * x[columns]
    if x.dim() == 2:
        products = products.sum(1)
    return products if alpha == 1 else products * alpha


def x_gradient(found: Known, values: Tensor, gradient: Tensor, alpha: float) -> Tensor:
    """alpha * matrix^T @ gradient: a product with the transpose, whose places are sorted once for a matrix."""
    crow, rows, order = _transposed(found)
    transposed = found.copies.get("transposed")
    if transposed is None:
        shape = (found.shape[1], found.shape[0])
        transposed = torch.sparse_csr_tensor(crow, rows, values[order], shape, check_invariants=False)
        found.copies["transposed"] = transposed
        known(transposed).takes_copies = False
    else:
        # Values may have been written without a sign of it; places have not. The gathered ones take the same memory.
        torch.index_select(values, 0, order, out=known(transposed).values.data)
    return run_product(transposed, gradient.contiguous(), None, alpha, 0.0)


def _transposed(found: Known) -> tuple[Tensor, Tensor, Tensor]:
    """(offsets of columns, rows, order of entries) of the transpose."""

    def make() -> tuple[Tensor, Tensor, Tensor]:
        columns = found.columns
        order = torch.sort(columns, stable=True).indices
        counts = torch.bincount(columns.long(), minlength=found.shape[1])
        crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(columns.dtype)
        lengths = (found.crow[1:] - found.crow[:-1]).long()
        row = torch.repeat_interleave(torch.arange(found.shape[0], device=columns.device), lengths)
        return crow, row[order].to(columns.dtype), order

    if found.structure is None and found.values.is_cuda:
        found.read()
    made: tuple[Tensor, Tensor, Tensor] = (
        make() if found.structure is None else found.structure.made("transposed", make)
    )
    return made
