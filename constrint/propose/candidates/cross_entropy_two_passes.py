"""Cross-entropy: a block goes over its row twice, for the maximum and for the sum."""

import triton
import triton.language as tl


@triton.jit
def cross_entropy_row(loss, logits, target, n, row_step, column_step, target_step, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, tile_n)
    largest = tl.full((tile_n,), float("-inf"), tl.float32)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(logits + row * row_step + at * column_step, mask=at < n, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, values)
    row_largest = tl.max(largest, axis=0)
    total = tl.zeros((tile_n,), tl.float32)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(logits + row * row_step + at * column_step, mask=at < n, other=float("-inf")).to(tl.float32)
        total += tl.exp(values - row_largest)
    right = tl.load(logits + row * row_step + tl.load(target + row * target_step) * column_step).to(tl.float32)
    tl.store(loss + row, tl.log(tl.sum(total, axis=0)) + (row_largest - right))


def run(loss, logits, target):
    m, n = logits.shape
    strides = (logits.stride(0), logits.stride(1), target.stride(0))
    cross_entropy_row[(m,)](loss, logits, target, n, *strides, 4096, num_warps=8)
