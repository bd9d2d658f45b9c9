"""Inputs and outputs of a layer: a dense batch, or the rows of a PackedSequence.

Both project their rows and return (B, T, features) for the recurrence, in reverse order of time for the second
direction. Packed rows are projected without padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import dropout, linear
from torch.nn.utils.rnn import PackedSequence

from constrint.flashrnn.observers import may_train
from constrint.kernels.gemm.op import small_linear
from constrint.kernels.rnn.products import exact_projection, is_exact


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
