"""Rotary embedding: a block turns all heads of one position, whose angles it reads once."""

import triton
import triton.language as tl


@triton.jit
def rotate_position(
    y, x, cos, sin, h, half, x_t, x_h, x_d, cos_t, cos_d, sin_t, sin_d, tile_h: tl.constexpr, tile_d: tl.constexpr
):
    position = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * tile_h + tl.arange(0, tile_h)[:, None]
    channels = tl.arange(0, tile_d)[None, :]
    inside = (heads < h) & (channels < half)
    c = tl.load(cos + position * cos_t + channels * cos_d, mask=channels < half, other=0.0)
    s = tl.load(sin + position * sin_t + channels * sin_d, mask=channels < half, other=0.0)
    at = x + position * x_t + heads * x_h + channels * x_d
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + half * x_d, mask=inside, other=0.0).to(tl.float32)
    to = y + (position * h + heads) * 2 * half + channels
    tl.store(to, first * c - second * s, mask=inside)
    tl.store(to + half, second * c + first * s, mask=inside)


def run(y, x, cos, sin):
    t, h, d = x.shape
    half = d // 2
    tile_h, tile_d = min(16, triton.next_power_of_2(h)), triton.next_power_of_2(half)
    strides = (*x.stride(), *cos.stride(), *sin.stride())
    rotate_position[(t, triton.cdiv(h, tile_h))](y, x, cos, sin, h, half, *strides, tile_h, tile_d)
