"""Give operands that the TMA unit cannot load rows that it can: one launch copies both. Needs torch and triton."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

#: Rows and columns that one block copies; square, since one side may have to be transposed.
TILE_ROWS = 64
TILE_COLUMNS = 64
#: Copied rows start at multiples of this many bytes: a whole line of the L2, of which the TMA unit then loads no half.
ROW_BYTES = 128


@dataclass(frozen=True)
class _Copy:
    """One operand with its faster axis last, and the aligned tensor that it goes to."""

    source: Tensor
    target: Tensor
    num_blocks: int


def pack(a: Tensor, b: Tensor, which: str, *, k_major: bool = False) -> tuple[Tensor, Tensor]:
    """Copies of the operands named in `which` ("a", "b" or "ab") with rows that start at whole lines.

    Args:
        a: (batch, M, K), any strides.
        b: (batch, K, N), any strides.
        which: What to copy; the other one comes back as it is.
        k_major: Make the copies contiguous along K instead of in the order of axes that they have.
    """
    from constrint.kernels.gemm.kernel_pack import pack_kernel

    is_turned = {"a": _is_transposed(a) and not k_major, "b": k_major or _is_transposed(b)}
    copies = {name: _prepare(t, is_turned[name]) for name, t in (("a", a), ("b", b)) if name in which}
    first = copies.get("a", copies.get("b"))
    second = copies.get("b", first)
    if first is None or second is None:
        return a, b
    num_blocks = first.num_blocks + (second.num_blocks if second is not first else 0)
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
        pack_kernel[(num_blocks, a.shape[0])](
            first.source,
            first.target,
            second.source,
            second.target,
            first.num_blocks,
            *first.source.shape[1:],
            *first.source.stride(),
            *first.target.stride()[:2],
            *second.source.shape[1:],
            *second.source.stride(),
            *second.target.stride()[:2],
            tile_rows=TILE_ROWS,
            tile_columns=TILE_COLUMNS,
        )
    packed = {name: copy.target.transpose(1, 2) if is_turned[name] else copy.target for name, copy in copies.items()}
    return packed.get("a", a), packed.get("b", b)


def _is_transposed(t: Tensor) -> bool:
    return abs(t.stride(1)) < abs(t.stride(2))


def _prepare(t: Tensor, is_turned: bool) -> _Copy:
    source = t.transpose(1, 2) if is_turned else t
    batch, rows, columns = source.shape
    per_line = ROW_BYTES // t.element_size()
    padded = -(-columns // per_line) * per_line
    target = torch.empty((batch, rows, padded), dtype=t.dtype, device=t.device)[:, :, :columns]
    return _Copy(source, target, -(-rows // TILE_ROWS) * -(-columns // TILE_COLUMNS))
