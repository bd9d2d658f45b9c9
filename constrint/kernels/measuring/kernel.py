"""The kernel that reads the same bytes again and again past the L1; it imports triton, which only a bench does."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

#: 32-bit words that a block reads at once.
BLOCK = 4096


@triton.jit
def _read(source: Any, sums: Any, num_chunks: Any, repeats: Any, words: tl.constexpr) -> None:
    """Each block reads all chunks `repeats` times, beginning at another one than its neighbours."""
    block = tl.program_id(0)
    total = tl.zeros((words,), dtype=tl.int32)
    for turn in range(num_chunks * repeats):
        chunk = (block + turn) % num_chunks
        total += tl.load(source + chunk * words + tl.arange(0, words), cache_modifier=".cg")
    tl.store(sums + block, tl.sum(total, 0))


def read(source: Any, sums: Any, repeats: int) -> None:
    """Read `source`, int32 words, `repeats` times in each of as many blocks as `sums` has places."""
    _read[(sums.numel(),)](source, sums, source.numel() // BLOCK, repeats, words=BLOCK, num_warps=8)
