"""The operators `constrint::spmv` and `constrint::spmv_gradients`, by the arrays of a matrix: for `torch.compile`.

A matrix is made of the arrays once, and found again as long as they are the same tensors, unwritten. Needs torch.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.spmv.call import run_product, values_gradient, x_gradient
from constrint.kernels.spmv.structure import known

#: Matrices by the identity of their arrays, with references to these and their version counters; at most so many.
_MATRICES: dict[tuple[int, int, int, int], tuple[tuple[Any, ...], tuple[int, ...], Tensor]] = {}
CAPACITY = 64


def matrix_of(crow: Tensor, columns: Tensor, values: Tensor, num_columns: int) -> Tensor:
    """The CSR tensor of these arrays: the one that was made before, where they are unwritten."""
    arrays = crow, columns, values
    key = (id(crow), id(columns), id(values), num_columns)
    versions = tuple(each._version for each in arrays)
    entry = _MATRICES.get(key)
    if (
        entry is not None
        and entry[1] == versions
        and all(ref() is each for ref, each in zip(entry[0], arrays, strict=True))
    ):
        return entry[2]
    shape = (crow.shape[0] - 1, num_columns)
    made = torch.sparse_csr_tensor(crow.detach(), columns.detach(), values.detach(), shape, check_invariants=False)
    for old in [old for old, (refs, *_) in _MATRICES.items() if any(ref() is None for ref in refs)]:
        del _MATRICES[old]
    if len(_MATRICES) >= CAPACITY:
        del _MATRICES[next(iter(_MATRICES))]
    _MATRICES[key] = tuple(weakref.ref(each) for each in arrays), versions, made
    return made


torch.library.define(
    "constrint::spmv",
    "(Tensor crow, Tensor columns, Tensor values, Tensor x, Tensor? y, int num_columns, float alpha, float beta)"
    " -> Tensor",
)
torch.library.define(
    "constrint::spmv_gradients",
    "(Tensor crow, Tensor columns, Tensor values, Tensor x, Tensor gradient, int num_columns, float alpha)"
    " -> (Tensor, Tensor)",
)


@torch.library.impl("constrint::spmv", ("CPU", "CUDA"))
def _spmv(
    crow: Tensor, columns: Tensor, values: Tensor, x: Tensor, y: Tensor | None, num_columns: int, alpha: float,
    beta: float,
) -> Tensor:  # fmt: skip
    return run_product(matrix_of(crow, columns, values, num_columns), x, y, alpha, beta)


@torch.library.impl("constrint::spmv_gradients", ("CPU", "CUDA"))
def _gradients(
    crow: Tensor, columns: Tensor, values: Tensor, x: Tensor, gradient: Tensor, num_columns: int, alpha: float
) -> tuple[Tensor, Tensor]:
    matrix = matrix_of(crow, columns, values, num_columns)
    of_x = x_gradient(known(matrix), values.detach(), gradient, alpha)
    return values_gradient(crow, columns, x, gradient, alpha), of_x


@torch.library.register_fake("constrint::spmv")  # type: ignore[untyped-decorator]
def _fake(
    crow: Tensor, columns: Tensor, values: Tensor, x: Tensor, y: Tensor | None, num_columns: int, alpha: float,
    beta: float,
) -> Tensor:  # fmt: skip
    return x.new_empty((crow.shape[0] - 1, *x.shape[1:]))


@torch.library.register_fake("constrint::spmv_gradients")  # type: ignore[untyped-decorator]
def _fake_gradients(
    crow: Tensor, columns: Tensor, values: Tensor, x: Tensor, gradient: Tensor, num_columns: int, alpha: float
) -> tuple[Tensor, Tensor]:
    return values.new_empty(values.shape), x.new_empty(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, columns, values, x, _, num_columns, alpha, beta = inputs
    ctx.save_for_backward(crow, columns, values, x)
    ctx.numbers = num_columns, alpha, beta


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    num_columns, alpha, beta = ctx.numbers
    of_values, of_x = torch.ops.constrint.spmv_gradients(*ctx.saved_tensors, gradient, num_columns, alpha)
    return None, None, of_values, of_x, beta * gradient if ctx.needs_input_grad[4] else None, None, None, None


torch.library.register_autograd("constrint::spmv", _backward, setup_context=_save)
