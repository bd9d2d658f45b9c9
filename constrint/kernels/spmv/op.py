"""`spmv`: products of sparse matrices in CSR with vectors or a few columns, with gradients. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from constrint.kernels.spmv import operator  # noqa: F401  registers `constrint::spmv`
from constrint.kernels.spmv.call import check_operands, run_product, values_gradient, x_gradient
from constrint.kernels.spmv.products import AUTO
from constrint.kernels.spmv.structure import known


def spmv(
    matrix: Tensor,
    x: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    y: Tensor | None = None,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
    reuse: int = 0,
    frozen: bool | None = None,
    check: bool = False,
) -> Tensor:
    """alpha * matrix @ x + beta * y, accumulated in fp32 (fp64 for fp64), rounded once; deterministic.

    The first product of a matrix is torch's own. The second one reads the matrix (its offsets and columns once, which
    waits for the device), and begins a trial of kernels beside torch's product; nothing slower than that runs
    afterwards. A kernel that copies the matrix in another order (`panels`, `ell`) is tried once the products so far
    would have paid for the copy. What is kept belongs to the matrix and goes with it.

    Args:
        matrix: (M, K), torch's CSR layout with indices of 32 or 64 bits (those of 64 are copied to 32 bits once); fp64,
            fp32, bf16 or fp16. Columns of a row need no order; entries of one place are added.
        x: (K,), or (K, N) with up to 16 columns; more run as torch's product. Same dtype and device.
        alpha: Factor of the product.
        beta: Factor of `y`; 0: `y` is not read.
        y: Same shape as the result; not written. Without it nothing is added.
        kernel: "auto"; "merge", "vector", "near", "patterns", "panels", "ell": a kernel of this package; "library":
            torch's product.
        config: Values of all parameters of the named kernel.
        reuse: Products with this matrix that are still to come: what pays for them is done at once.
        frozen: How kernels that copy the matrix know that its values are the copied ones. None: by torch's counters of
            writes, as long as nothing but the matrix and the tensor that it was made of holds the memory; else by a
            comparison in every product, which computes from the matrix where they differ. False: always so. True: not
            at all, a promise. Code that writes by a pointer says so with
            `torch.autograd.graph.increment_version(matrix)`.
        check: Check offsets and columns, which waits for the device. Without it they are checked when a kernel of this
            package reads them, and wrong ones may be read beyond by torch's product, as by torch.

    Returns:
        (M,) or (M, N).

    Raises:
        RuntimeError: For shapes, layouts, dtypes or devices that do not go together, and for forward-mode derivatives.
        TypeError: For arguments that are no tensors.
        UnknownNameError: For an unknown kernel.
        UnsupportedError: When the named kernel does not compute the product; says why.
        UsageError: For malformed offsets or columns that were checked, and an invalid configuration.
    """
    if is_compiling():
        arrays = matrix.crow_indices(), matrix.col_indices(), matrix.values()
        traced: Tensor = torch.ops.constrint.spmv(*arrays, x, y, matrix.shape[1], float(alpha), float(beta))
        return traced
    if forward_ad._current_level >= 0 and any(map(_has_tangent, (x, y))):
        raise RuntimeError("spmv: products with CSR tensors have no forward-mode derivatives, as in torch.")
    if torch.is_grad_enabled() and (
        getattr(matrix, "requires_grad", False)
        or getattr(x, "requires_grad", False)
        or getattr(y, "requires_grad", False)
    ):
        check_operands(matrix, x, y)
        options = (float(alpha), float(beta), kernel, config, reuse, frozen, check)
        out: Tensor = _Spmv.apply(matrix, x, y, options)  # type: ignore[no-untyped-call]
        return out
    return run_product(matrix, x, y, alpha, beta, kernel, config, reuse, frozen, check)


def _has_tangent(t: Tensor | None) -> bool:
    """Whether a tensor carries a derivative of forward-mode AD."""
    taken_apart: Any = forward_ad.unpack_dual
    return isinstance(t, Tensor) and taken_apart(t).tangent is not None


class _Spmv(torch.autograd.Function):
    """A product with gradients: that of x is a product with the transpose, that of the matrix has its places."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor, y: Tensor | None, options: Any) -> Tensor:
        ctx.save_for_backward(matrix, x)
        ctx.options = options
        alpha, beta, *rest = options
        return run_product(matrix, x, y, alpha, beta, *rest)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        matrix, x = ctx.saved_tensors
        alpha, beta, *_ = ctx.options
        needs_matrix, needs_x, needs_y, _ = ctx.needs_input_grad
        crow, columns, values = (
            each.detach() for each in (matrix.crow_indices(), matrix.col_indices(), matrix.values())
        )
        grad_matrix = grad_x = None
        if needs_matrix:
            of_values = values_gradient(crow, columns, x, gradient, alpha)
            grad_matrix = torch.sparse_csr_tensor(crow, columns, of_values, matrix.shape, check_invariants=False)
        if needs_x:
            grad_x = x_gradient(known(matrix), values, gradient, alpha)
        return grad_matrix, grad_x, beta * gradient if needs_y else None, None
