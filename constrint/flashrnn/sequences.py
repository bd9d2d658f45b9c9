"""Inputs and outputs of a layer: a dense batch, or the rows of a PackedSequence.

Both project their rows and return (B, T, features) for the recurrence, in reverse order of time for the second
direction. Packed rows are projected without padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn.functional import dropout, linear
from torch.nn.utils.rnn import PackedSequence

from constrint.flashrnn.observers import may_train, needs_plain_torch
from constrint.kernels.gemm.op import small_linear
from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.rnn.products import exact_projection, is_exact

#: Elements from which a copy takes the device longer than the host, and torch's type of the largest elements.
LARGE, WORD = 1 << 22, torch.complex128


def reverse_order(time: int, lengths: Tensor) -> Tensor:
    """Per sequence the steps length - 1 .. 0 and then the padding: (B, T), its own inverse."""
    steps = torch.arange(time, device=lengths.device)
    back = lengths.long()[:, None] - 1 - steps
    return torch.where(back >= 0, back, steps)


def flip(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, ...) with every sequence backwards, padding left where it is."""
    if lengths is None:
        return x.flip(1)
    order = reverse_order(x.shape[1], lengths)
    return x.gather(1, order.view(*order.shape, *[1] * (x.dim() - 2)).expand(x.shape))


def contiguous(x: Tensor) -> Tensor:
    """The tensor, or a contiguous copy; large ones on a GPU are copied by words of 16 bytes. It has no gradient.

    torch copies a transposed batch element by element: 0.41 ms for 403 MB of bf16 on an H200, which its memory moves in
    half of that.
    """
    return copied_by_words(x) if not x.is_contiguous() and _is_large(x) else x.contiguous()


def copied_by_words(x: Tensor) -> Tensor:
    """A contiguous copy of a tensor that `has_words`."""
    return x.view(WORD).contiguous().view(x.dtype)


def _is_large(x: Tensor) -> bool:
    return x.is_cuda and x.numel() >= LARGE and has_words(x)


def has_words(x: Tensor) -> bool:
    """Whether a tensor is made of words of 16 bytes, each of neighbours at a multiple of 16 bytes."""
    if not x.dim() or x.stride(-1) != 1 or x.is_complex():
        return False
    number = WORD.itemsize // x.itemsize
    parts = x.shape[-1], x.storage_offset(), *x.stride()[:-1]
    return x.data_ptr() % WORD.itemsize == 0 and all(part % number == 0 for part in parts)


class _Contiguous(torch.autograd.Function):
    """`contiguous` with a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return contiguous(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


def time_first(x: Tensor) -> Tensor:
    """(T, B, features), contiguous, of (B, T, features)."""
    swapped = x.transpose(0, 1)
    if is_compiling() or not _is_large(swapped) or needs_plain_torch() or torch._C._get_tracing_state() is not None:
        return swapped.contiguous()
    return _contiguous(swapped) if may_train(x) else contiguous(swapped)


_contiguous = apply_of(_Contiguous)


def project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., features) @ weight^T + bias: small ones on a GPU by a launch plan, others by torch."""
    out = small_linear(x, weight, bias) if x.is_cuda and not torch._C._is_any_autocast_enabled() else None
    return linear(x, weight, bias) if out is None else out


@dataclass(frozen=True)
class DenseRows:
    """A batch of equal lengths, or padded with `lengths`.

    Args:
        x: (B, T, features), or (T, B, features) unless `batch_first`.
        batch_first: Whether the batch is the first axis.
        lengths: (B,), or None where all of T counts.
    """

    x: Tensor
    batch_first: bool
    lengths: Tensor | None = None

    def project(self, weight: Tensor, bias: Tensor | None, *, is_reverse: bool) -> Tensor:
        """(B, T, features) = rows @ weight^T + bias, each sequence backwards if `is_reverse`."""
        x = self._project_exactly(weight, bias) if is_exact(self.x) else None
        if x is None:
            x = project(self.x, weight, bias)
            x = x if self.batch_first else x.transpose(0, 1)
        return flip(x, self.lengths) if is_reverse else x

    def _project_exactly(self, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        """The same in full fp32, (B, T, features), where our products are the faster ones; see `exact_projection`."""
        if not may_train(self.x, weight, bias):
            x = exact_projection(self.x, weight, bias, trains=False)
            return x if x is None or self.batch_first else x.transpose(0, 1)
        # Batch first, as the recurrence's gradient will be: else the products would begin with a copy of it.
        rows = self.x if self.batch_first else self.x.transpose(0, 1)
        return exact_projection(rows.contiguous(), weight, bias, trains=True)

    def follow(self, forward: Tensor, backward: Tensor | None) -> DenseRows:
        """The next layer's input from hidden states (B, T, H), and those of the backward direction."""
        if backward is not None:
            forward = torch.cat([forward, flip(backward, self.lengths)], dim=2)
        return DenseRows(forward, True, self.lengths)

    def drop(self, probability: float) -> DenseRows:
        """The rows with elements dropped at random."""
        return DenseRows(dropout(self.x, probability), self.batch_first, self.lengths)


@dataclass(frozen=True)
class PackedRows:
    """The rows of a PackedSequence: step after step, the sequences in order of falling length.

    Args:
        data: (rows, features).
        places: (B, T), the row of each step; the number of rows, one past the last, where there is none.
        lengths: (B,).
    """

    data: Tensor
    places: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, packed: PackedSequence) -> PackedRows:
        """The rows of a packed sequence."""
        sizes = packed.batch_sizes
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)[:-1]])
        sequences = torch.arange(int(sizes[0]))[:, None]
        places = torch.where(sequences < sizes, starts + sequences, sizes.sum())
        lengths = (sequences < sizes).sum(1)
        device = packed.data.device
        return cls(packed.data, places.to(device), lengths.to(device=device, dtype=torch.int32))

    def project(self, weight: Tensor, bias: Tensor | None, *, is_reverse: bool) -> Tensor:
        """(B, T, features) = rows @ weight^T + bias, each sequence backwards if `is_reverse`."""
        rows = project(self.data, weight, bias)
        rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
        places = self.places
        if is_reverse:
            places = places.gather(1, reverse_order(places.shape[1], self.lengths))
        return rows[places]

    def follow(self, forward: Tensor, backward: Tensor | None) -> PackedRows:
        """The next layer's input from hidden states (B, T, H), and those of the backward direction."""
        both = DenseRows(forward, True, self.lengths).follow(forward, backward).x
        batch, time, features = both.shape
        # The steps that exist, in the order of their rows.
        steps = self.places.flatten().argsort(stable=True)[: len(self.data)]
        return PackedRows(both.reshape(batch * time, features)[steps], self.places, self.lengths)

    def drop(self, probability: float) -> PackedRows:
        """The rows with elements dropped at random."""
        return PackedRows(dropout(self.data, probability), self.places, self.lengths)


Rows: TypeAlias = DenseRows | PackedRows
AnyRows = TypeVar("AnyRows", DenseRows, PackedRows)
