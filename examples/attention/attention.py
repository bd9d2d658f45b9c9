"""Attention, forward: a Triton kernel by the online softmax, complete with its space.

constrint solve --gpu h200 --kernel examples/attention/attention.py:SPEC --length 8192
"""

import numpy as np
import torch
import triton
import triton.language as tl

from constrint.kernels.launch import TritonKernelSpec
from constrint.model import ceildiv, maximum
from constrint.select import BlockUse, Param, Rule, Size, TileWork, estimate

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _add_keys(
    queries, k, v, rows, sums, total, largest, first, last, scale, length,
    head_dim: tl.constexpr, tile_n: tl.constexpr, causal: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """Add the keys from first to last to the weighted sums of values, with weights relative to the largest score."""
    dims = tl.arange(0, head_dim)
    for start in range(first, last, tile_n):
        keys = start + tl.arange(0, tile_n)
        if masked:
            there = keys < length
            key = tl.load(k + keys[None, :] * head_dim + dims[:, None], mask=there[None, :], other=0.0)
            value = tl.load(v + keys[:, None] * head_dim + dims[None, :], mask=there[:, None], other=0.0)
        else:
            key = tl.load(k + keys[None, :] * head_dim + dims[:, None])
            value = tl.load(v + keys[:, None] * head_dim + dims[None, :])
        scores = tl.dot(queries, key)
        if masked:
            visible = there[None, :] & (keys[None, :] <= rows[:, None]) if causal else there[None, :]
            scores = tl.where(visible, scores, float("-inf"))
        before = largest
        largest = tl.maximum(before, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - largest[:, None])
        shrink = tl.exp2(before - largest)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = tl.dot(weights.to(value.dtype), value, sums * shrink[:, None])
    return sums, total, largest


@triton.jit
def attention_kernel(
    q, k, v, out, scale, heads, kv_heads, length,
    head_dim: tl.constexpr, causal: tl.constexpr, tile_m: tl.constexpr, tile_n: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    if causal:
        block = tl.num_programs(0) - 1 - block  # the longest rows first
    head = tl.program_id(1)
    kv_head = head // heads * kv_heads + head % heads // (heads // kv_heads)
    q += head.to(tl.int64) * length * head_dim
    out += head.to(tl.int64) * length * head_dim
    k += kv_head.to(tl.int64) * length * head_dim
    v += kv_head.to(tl.int64) * length * head_dim
    rows = block * tile_m + tl.arange(0, tile_m)
    at = rows[:, None] * head_dim + tl.arange(0, head_dim)[None, :]
    queries = tl.load(q + at, mask=rows[:, None] < length, other=0.0)
    sums = tl.zeros((tile_m, head_dim), tl.float32)
    total = tl.zeros((tile_m,), tl.float32)
    largest = tl.full((tile_m,), float("-inf"), tl.float32)
    last = tl.minimum(block * tile_m + tile_m, length) if causal else length
    whole = (block * tile_m if causal else length) // tile_n * tile_n  # keys that every row sees
    scale *= LOG2_E
    sums, total, largest = _add_keys(
        queries, k, v, rows, sums, total, largest, 0, whole, scale, length, head_dim, tile_n, causal, False
    )
    sums, total, largest = _add_keys(
        queries, k, v, rows, sums, total, largest, whole, last, scale, length, head_dim, tile_n, causal, True
    )
    tl.store(out + at, sums / total[:, None], mask=rows[:, None] < length)


class Attention(TritonKernelSpec):
    operation, dtypes, summary = "attention", tuple(TYPES), "softmax(q k' / sqrt(d)) v, each head's scores on chip"
    sizes = (
        Size("batch", 4, "sequences"), Size("heads", 32, "heads of queries"), Size("kv_heads", 8, "heads of keys"),
        Size("length", 4096, "positions of a sequence"), Size("head_dim", 128, "elements of a head", 16, 256),
    )  # fmt: skip
    options = (Size("causal", 1, "1 where a position sees none after it", 0, 1),)
    function = attention_kernel

    def params(self, gpu, workload):
        yield Param("tile_m", (128, 64, 256), "queries of a block", "powers of two, as Triton's block shapes must be")
        yield Param("tile_n", (64, 128, 32), "keys of a step", "powers of two, as Triton's block shapes must be")
        yield Param("num_warps", (8, 4), "warps (waves) of a block", "Triton takes powers of two", "w")
        yield Param("num_stages", (3, 2, 4), "stages of the pipeline", "one loads while others multiply", "s")

    def rules(self, gpu, workload, v):
        yield Rule(v["tile_m"] >= 16 * v["num_warps"], "rows", "each warp has 16 rows of scores, its own softmax")

    def use(self, gpu, workload, v):
        d, warp, is_amd = workload.sizes["head_dim"], gpu.sm.warp_size, gpu.maker.triton_backend == "hip"
        # Compiled: the sums and twice the scores in fp32; matrix units that read no shared memory take copies.
        values = ceildiv(v["tile_m"] * (d + 2 * v["tile_n"]) * 7, 6 * v["num_warps"] * warp)
        copies = ceildiv(v["tile_m"] * d, 2 * v["num_warps"] * warp) + v["tile_n"] * d // warp if is_amd else 0
        queries, keys = 2 * d * v["tile_m"], 4 * d * v["tile_n"] * (v["num_stages"] - int(is_amd))
        return BlockUse(v["num_warps"], 32 + values + copies, maximum(queries, keys) if is_amd else queries + keys)

    def moved_bytes(self, workload):
        batch, heads, kv_heads, length, d = workload.sizes.values()
        return 4 * batch * length * d * (heads + kv_heads)

    def num_operations(self, workload):
        batch, heads, _, length, d = workload.sizes.values()
        return 4 * batch * heads * length * length * d // (1 + workload.options.get("causal", 1))

    def cost(self, gpu, workload, columns, blocks_per_sm):
        (batch, heads, _, length, d), m, n = workload.sizes.values(), columns["tile_m"], columns["tile_n"]
        blocks, moved = -(-length // m) * batch * heads, self.moved_bytes(workload)
        steps = length / n / (1 + workload.options.get("causal", 1))
        work = TileWork(
            blocks_per_sm=np.maximum(blocks_per_sm, 1), warps_per_block=columns["num_warps"], flop=4.0 * m * n * d,
            smem_bytes=8.0 * n * d, load_bytes=4.0 * n * d, load_instructions=n * d / 4.0, store_bytes=2.0 * m * d,
            is_async=1, stages_in_flight=columns["num_stages"] - 1, num_blocks=blocks, iterations=steps,
            l2_bytes=blocks * steps * 4.0 * n * d, last_level_bytes=moved, dram_bytes=moved, dtype=workload.dtype,
        )  # fmt: skip
        return estimate(gpu, gpu.peak_flop_per_s(workload.dtype), work)

    def grid(self, workload, config):
        return (
            triton.cdiv(workload.sizes["length"], config["tile_m"]),
            workload.sizes["batch"] * workload.sizes["heads"],
        )

    def inputs(self, gpu, workload, *, device="meta", seed=0):
        batch, heads, kv_heads, length, d = workload.sizes.values()
        shapes = {"q": heads, "k": kv_heads, "v": kv_heads}
        on = {"dtype": TYPES[workload.dtype], "device": device}
        return {name: torch.randn(batch, n, length, d, **on) for name, n in shapes.items()} | {"scale": d**-0.5}

    def outputs(self, gpu, workload, inputs):
        return {"out": torch.empty_like(inputs["q"])}

    def reference(self, workload, inputs):
        q, k, v = (inputs[name].double() for name in "qkv")
        is_causal = bool(workload.options.get("causal", 1))
        return {"out": torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)}


SPEC = Attention()
