"""Rotary embedding: blocks take pairs of channels in the order in which they lie in the output."""

import triton
import triton.language as tl


@triton.jit
def rotate_pairs(y, x, cos, sin, total, h, half, x_t, x_h, x_d, cos_t, cos_d, sin_t, sin_d, tile: tl.constexpr):
    pair = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    inside = pair < total
    channel = pair % half
    position = pair // half // h
    head = pair // half % h
    c = tl.load(cos + position * cos_t + channel * cos_d, mask=inside, other=0.0)
    s = tl.load(sin + position * sin_t + channel * sin_d, mask=inside, other=0.0)
    at = x + position * x_t + head * x_h + channel * x_d
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + half * x_d, mask=inside, other=0.0).to(tl.float32)
    to = y + (pair - channel) * 2 + channel
    tl.store(to, first * c - second * s, mask=inside)
    tl.store(to + half, second * c + first * s, mask=inside)


def run(y, x, cos, sin):
    t, h, d = x.shape
    half = d // 2
    total = t * h * half
    strides = (*x.stride(), *cos.stride(), *sin.stride())
    rotate_pairs[(triton.cdiv(total, 1024),)](y, x, cos, sin, total, h, half, *strides, 1024)
