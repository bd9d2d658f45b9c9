"""Layer norm of rows, forward: a Triton kernel with its space, and `constrint.autotune` over it.

constrint solve --gpu h200 --kernel examples/layer_norm/layer_norm.py:SPEC
"""

import torch
import triton
import triton.language as tl

import constrint
from constrint.kernels.launch import TritonKernelSpec
from constrint.model import ceildiv, maximum
from constrint.select import BlockUse, Param, Rule, Size

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@triton.jit
def layer_norm_kernel(x, weight, bias, y, m, n, eps, tile_m: tl.constexpr, tile_n: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * tile_m + tl.arange(0, tile_m)[:, None]
    columns = tl.arange(0, tile_n)[None, :]
    inside = (rows < m) & (columns < n)
    values = tl.load(x + rows * n + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=1, keep_dims=True) / n
    centred = tl.where(columns < n, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / n
    scale = tl.load(weight + columns, mask=columns < n, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=columns < n, other=0.0).to(tl.float32)
    tl.store(y + rows * n + columns, centred / tl.sqrt(variance + eps) * scale + shift, mask=inside)


class LayerNorm(TritonKernelSpec):
    operation, summary, dtypes = "layer_norm", "layer norm of every row, each read once and written once", tuple(TYPES)
    sizes = (Size("m", 4096, "rows"), Size("n", 1024, "columns", most=65536))
    function = layer_norm_kernel

    def params(self, gpu, workload):
        width = triton.next_power_of_2(workload.sizes["n"])
        yield Param("tile_m", (1, 2, 4, 8, 16), "rows of a block", "powers of two, as Triton's block shapes must be")
        yield Param("tile_n", (width,), "columns of a block", "a block holds whole rows")
        yield Param("num_warps", (4, 8, 2, 1, 16), "warps (waves) of a block", "Triton takes powers of two", "w")

    def rules(self, gpu, workload, v):
        yield Rule(v["num_warps"] * gpu.sm.warp_size <= v["tile_m"] * v["tile_n"], "busy", "no thread is without work")

    def use(self, gpu, workload, v):
        elements = ceildiv(v["tile_m"] * v["tile_n"], v["num_warps"] * gpu.sm.warp_size)
        # Rows that are not aligned to 16 elements are brought into another layout.
        moved = 0 if workload.sizes["n"] % 16 == 0 else TYPES[workload.dtype].itemsize * v["tile_n"]
        return BlockUse(v["num_warps"], 24 + elements * 7 // 4, maximum(4 * v["tile_m"] * v["num_warps"], moved))

    def grid(self, workload, config):
        return (triton.cdiv(workload.sizes["m"], config["tile_m"]),)

    def inputs(self, gpu, workload, *, device="meta", seed=0):
        (m, n), options = workload.sizes.values(), {"dtype": TYPES[workload.dtype], "device": device}
        x, weight, bias = torch.randn(m, n, **options), torch.randn(n, **options), torch.randn(n, **options)
        return {"x": x, "weight": weight, "bias": bias, "eps": 1e-5}

    def outputs(self, gpu, workload, inputs):
        return {"y": torch.empty_like(inputs["x"])}

    def reference(self, workload, inputs):
        x, weight, bias = (inputs[name].double() for name in ("x", "weight", "bias"))
        return {"y": torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, inputs["eps"])}


SPEC = LayerNorm()
tuned = constrint.autotune(SPEC, key=["m", "n"])(layer_norm_kernel)


def layer_norm(x, weight, bias, eps=1e-5):
    y, (m, n) = torch.empty_like(x), x.shape
    tuned[lambda meta: (triton.cdiv(m, meta["tile_m"]),)](x, weight, bias, y, m, n, eps)
    return y
