"""Arguments of `cg`, checked: the matrix as a product with a vector, and what a kernel can read of it. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.kernels.cg.reference import apply_star
from constrint.kernels.cg.star import StarMatrix

Product = Callable[[Tensor], Tensor]
DTYPES = (torch.float64, torch.float32)
JACOBI = "jacobi"
#: Most iterations that a call may name, and those by default for each row, as SciPy has it.
MOST_ITERATIONS, ITERATIONS_PER_ROW = 2**31 - 2, 10


@dataclass(frozen=True)
class LinearSystem:
    """A system of one call.

    Args:
        product: The matrix times a vector (n,).
        matrix: A star, or row starts, columns and values in CSR; None for dense matrices and operators.
        b: (n,), contiguous.
        diagonal: The diagonal's elements on request.
    """

    product: Product
    matrix: StarMatrix | tuple[Tensor, Tensor, Tensor] | None
    b: Tensor
    diagonal: Callable[[], Tensor] | None

    def inverse(self) -> Tensor:
        """The inverse diagonal, (n,).

        Raises:
            UsageError: For operators, whose diagonal is not known.
        """
        if self.diagonal is None:
            raise UsageError('cg: an operator has no diagonal; preconditioner="jacobi" needs a matrix or a star.')
        return 1.0 / self.diagonal()


def system_of_call(matrix: Any, b: Any) -> LinearSystem:
    """Check a matrix and a right-hand side.

    Raises:
        TypeError: For arguments of other types.
        RuntimeError: For shapes, dtypes or devices that do not go together.
        UnsupportedError: For matrices that want a gradient.
        UsageError: For layouts other than CSR and dense.
    """
    if not isinstance(b, Tensor):
        raise TypeError(f"cg: b is a tensor, got {type(b).__name__}.")
    if b.dtype not in DTYPES or b.layout != torch.strided:
        raise RuntimeError(f"cg: b is a dense tensor of float64 or float32, got {b.layout} of {b.dtype}.")
    if isinstance(matrix, StarMatrix):
        if tuple(b.shape) not in (matrix.shape, (matrix.num_rows,)):
            raise RuntimeError(f"cg: b has the grid's shape {matrix.shape} or is flat, got {tuple(b.shape)}.")
        flat = b.reshape(-1).contiguous()
        return LinearSystem(lambda v: apply_star(matrix, v), matrix, flat, lambda: torch.full_like(flat, matrix.centre))
    if b.dim() != 1:
        raise RuntimeError(f"cg: b is a vector, got {tuple(b.shape)}; each right-hand side is a call of its own.")
    if not isinstance(matrix, Tensor):
        if not callable(matrix):
            raise TypeError(f"cg: the matrix is a tensor, a StarMatrix or a function, got {type(matrix).__name__}.")
        return LinearSystem(matrix, None, b.contiguous(), None)
    return _of_tensor(matrix, b)


def _of_tensor(matrix: Tensor, b: Tensor) -> LinearSystem:
    if matrix.layout not in (torch.strided, torch.sparse_csr):
        raise UsageError(f"cg: matrices are dense or in CSR, got {matrix.layout}; use matrix.to_sparse_csr().")
    n = b.shape[0]
    if tuple(matrix.shape) != (n, n):
        raise RuntimeError(f"cg: a matrix ({n}, {n}) goes with b ({n},), got {tuple(matrix.shape)}.")
    if matrix.dtype != b.dtype or matrix.device != b.device:
        raise RuntimeError(
            f"cg: matrix and b have one dtype and one device, got {matrix.dtype} on {matrix.device} and {b.dtype} "
            f"on {b.device}."
        )
    if matrix.requires_grad:
        raise UnsupportedError("cg: gradients reach b alone, and this matrix requires one; give matrix.detach().")
    if matrix.layout == torch.strided:
        return LinearSystem(lambda v: torch.mv(matrix, v), None, b.contiguous(), matrix.diagonal)
    arrays = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    starts, columns, values = (array.contiguous() for array in arrays)
    return LinearSystem(
        lambda v: torch.mv(matrix, v),
        (starts, columns, values),
        b.contiguous(),
        lambda: diagonal_of(starts, columns, values),
    )


def diagonal_of(starts: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """The diagonal of a matrix in CSR; elements of one place add up."""
    n = starts.numel() - 1
    rows = torch.repeat_interleave(torch.arange(n, device=starts.device), starts.diff(), output_size=values.numel())
    here = rows == columns
    return torch.zeros((n,), dtype=values.dtype, device=values.device).index_add_(0, rows[here], values[here])


def check_tolerance(name: str, value: object) -> float:
    """A tolerance as a float.

    Raises:
        UsageError: For negative and infinite ones, and for what is no number.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise UsageError(f"cg: {name} is a number from 0 on, got {value!r}.")
    return float(value)  # type: ignore[arg-type]


def check_iterations(value: object, rows: int) -> int:
    """The most iterations; ten for each row where none are named.

    Raises:
        UsageError: For what is no whole number from 0 on.
    """
    if value is None:
        return min(ITERATIONS_PER_ROW * rows, MOST_ITERATIONS)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_ITERATIONS:
        raise UsageError(f"cg: maxiter is a whole number from 0 to {MOST_ITERATIONS}, got {value!r}.")
    return value


def check_preconditioner(value: object) -> None:
    """Raise UnknownNameError for another name than "jacobi", TypeError for what is neither a name nor a function."""
    if isinstance(value, str) and value != JACOBI:
        raise UnknownNameError("preconditioner", value, (JACOBI,))
    if not (value is None or isinstance(value, str) or callable(value)):
        raise TypeError(f"cg: the preconditioner is None, 'jacobi' or a function, got {type(value).__name__}.")


def guess_of(x0: Any, b: Tensor) -> Tensor | None:
    """A copy of the guess, flat; None where there is none.

    Raises:
        TypeError: For what is no tensor.
        RuntimeError: For a guess of another shape, dtype or device than b.
    """
    if x0 is None:
        return None
    if not isinstance(x0, Tensor):
        raise TypeError(f"cg: x0 is a tensor, got {type(x0).__name__}.")
    if x0.shape != b.shape or x0.dtype != b.dtype or x0.device != b.device:
        raise RuntimeError(
            f"cg: x0 is as b, {b.dtype} {tuple(b.shape)} on {b.device}, "
            f"got {x0.dtype} {tuple(x0.shape)} on {x0.device}."
        )
    return x0.detach().reshape(-1).clone()
