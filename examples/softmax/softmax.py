"""A fused softmax, complete with its space: `constrint solve --gpu h200 --kernel examples/softmax/softmax.py:SPEC`."""

import torch
import triton
import triton.language as tl

from constrint.kernels.launch import TritonKernelSpec
from constrint.model import ceildiv
from constrint.select import BlockUse, Param, Rule, Size

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@triton.jit
def softmax_kernel(x, y, m, n, tile_m: tl.constexpr, tile_n: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * tile_m + tl.arange(0, tile_m)[:, None]
    columns = tl.arange(0, tile_n)[None, :]
    inside = (rows < m) & (columns < n)
    values = tl.load(x + rows * n + columns, mask=inside, other=float("-inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=1, keep_dims=True))
    tl.store(y + rows * n + columns, weights / tl.sum(weights, axis=1, keep_dims=True), mask=inside)


class Softmax(TritonKernelSpec):
    operation, summary, dtypes = "softmax", "softmax of every row, each read once and written once", tuple(TYPES)
    sizes = (Size("m", 4096, "rows"), Size("n", 1024, "columns", most=65536))
    function = softmax_kernel

    def params(self, gpu, workload):
        width = triton.next_power_of_2(workload.sizes["n"])
        yield Param("tile_m", (1, 2, 4, 8, 16), "rows of a block", "powers of two, as Triton's block shapes must be")
        yield Param("tile_n", (width,), "columns of a block", "a block holds whole rows")
        yield Param("num_warps", (4, 8, 2, 1, 16), "warps (waves) of a block", "Triton takes powers of two", "w")

    def rules(self, gpu, workload, v):
        yield Rule(v["num_warps"] * gpu.sm.warp_size <= v["tile_m"] * v["tile_n"], "busy", "no thread is without work")

    def use(self, gpu, workload, v):
        elements = ceildiv(v["tile_m"] * v["tile_n"], v["num_warps"] * gpu.sm.warp_size)
        # Compiled: about 1.25 registers for an element in fp32, 1.75 where rows are not aligned to 16 elements.
        registers = 16 + elements * (5 if workload.sizes["n"] % 16 == 0 else 7) // 4
        return BlockUse(v["num_warps"], registers, smem_bytes=4 * v["tile_m"] * v["num_warps"])

    def grid(self, workload, config):
        return (triton.cdiv(workload.sizes["m"], config["tile_m"]),)

    def inputs(self, gpu, workload, *, device="meta", seed=0):
        return {"x": torch.randn(*workload.sizes.values(), dtype=TYPES[workload.dtype], device=device)}

    def outputs(self, gpu, workload, inputs):
        return {"y": torch.empty_like(inputs["x"])}

    def reference(self, workload, inputs):
        return {"y": inputs["x"].double().softmax(dim=1)}


SPEC = Softmax()
