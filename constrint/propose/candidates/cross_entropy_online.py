"""Cross-entropy: a block goes over its row once, with a running maximum and sum."""

import triton
import triton.language as tl


@triton.jit
def cross_entropy_row(loss, logits, target, n, row_step, column_step, target_step, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, tile_n)
    largest = tl.full((tile_n,), float("-inf"), tl.float32)
    total = tl.zeros((tile_n,), tl.float32)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(logits + row * row_step + at * column_step, mask=at < n, other=float("-inf")).to(tl.float32)
        now = tl.maximum(largest, values)
        shift = tl.where(now == float("-inf"), 0.0, now)
        total = total * tl.exp(largest - shift) + tl.exp(values - shift)
        largest = now
    row_largest = tl.max(largest, axis=0)
    row_total = tl.sum(total * tl.exp(largest - row_largest), axis=0)
    right = tl.load(logits + row * row_step + tl.load(target + row * target_step) * column_step).to(tl.float32)
    tl.store(loss + row, tl.log(row_total) + (row_largest - right))


def run(loss, logits, target):
    m, n = logits.shape
    strides = (logits.stride(0), logits.stride(1), target.stride(0))
    cross_entropy_row[(m,)](loss, logits, target, n, *strides, 2048, num_warps=8)
