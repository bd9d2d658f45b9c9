"""A small kernel in CUDA C++ as a spec: a template, dynamic shared memory, a header, numbers of several types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda import CudaKernelSpec
from constrint.model import const
from constrint.select import BlockUse, Config, Param, Rule, Size, Workload
from constrint.select.spec import Vars

SOURCE = """
template <typename T>
__global__ void rotate(T* out, const T* in, int n, float factor) {
  extern __shared__ float part[];
  const int place = blockIdx.x * THREADS + threadIdx.x;
  part[threadIdx.x] = place < n ? factor * in[place] : 0.0f;
  __syncthreads();
  if (place < n) out[place] = part[THREADS - 1 - threadIdx.x];
}
__global__ void other(float* out) { out[0] = 1.0f; }
"""


class Rotate(CudaKernelSpec):
    """Every block's numbers times a factor, in the opposite order."""

    operation, summary, dtypes = "rotate", "numbers of each block in the opposite order", ("fp32",)
    sizes = (Size("n", 4096, "elements, a multiple of the block's threads"),)
    source: Any = SOURCE
    function = "rotate<float>"
    arguments: Mapping[str, str] = {"out": "pointer", "in": "pointer", "n": "int32", "factor": "float32"}
    #: Dynamic shared memory beyond what the kernel needs.
    spare_bytes = 0

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        yield Param("THREADS", (128, 64, 1024), "threads of a block", "it was so decided")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        return iter(())

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        return BlockUse(v["THREADS"] // gpu.sm.warp_size, const(16), 4 * v["THREADS"] + self.spare_bytes)

    def grid(self, workload: Workload, config: Config) -> tuple[int, ...]:
        return (workload.sizes["n"] // config["THREADS"],)

    def block(self, workload: Workload, config: Config) -> tuple[int, ...]:
        return (config["THREADS"],)

    def dynamic_smem_bytes(self, workload: Workload, config: Config) -> int:
        return 4 * config["THREADS"] + self.spare_bytes

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        import torch

        return {"in": torch.randn(workload.sizes["n"], device=device), "factor": 2.5}

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        return {"out": torch.empty_like(inputs["in"])}


ROTATE = Rotate()
