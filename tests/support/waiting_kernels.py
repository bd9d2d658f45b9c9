"""Small kernels in CUDA C++ whose blocks wait for each other, and an operation of each that goes by plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.launch import FillLaunch
from constrint.kernels.launch.cuda import CudaLaunch, CudaSource
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, NotedScratch, Scratch
from constrint.kernels.launch.plan.table import PlanTable

#: Every thread adds the numbers that the threads of its place have in all blocks of its cluster.
CLUSTER_SUM = CudaSource(
    """
    __device__ void wait_for_cluster() {
      asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
      asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
    extern "C" __global__ void cluster_sum(float* out, const float* in, const float* none, int factor) {
      extern __shared__ float part[];
      const int place = blockIdx.x * blockDim.x + threadIdx.x;
      part[threadIdx.x] = in[place];
      wait_for_cluster();
      unsigned size;
      asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
      const unsigned mine = static_cast<unsigned>(__cvta_generic_to_shared(part + threadIdx.x));
      float sum = none ? none[0] : 0.0f;
      for (unsigned peer = 0; peer < size; ++peer) {
        unsigned there;
        float value;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(peer));
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
        sum += value;
      }
      wait_for_cluster();
      out[place] = factor * sum;
    }
    """,
    "cluster_sum",
    name="cluster_sum.cu",
)
#: Every block adds what all blocks of the grid have put down; `parts` is NaN until a block has put its number there.
GRID_SUM = CudaSource(
    """
    extern "C" __global__ void grid_sum(float* out, const float* in, volatile float* parts, unsigned* arrived) {
      if (threadIdx.x) return;
      parts[blockIdx.x] = isnan(parts[blockIdx.x]) ? in[blockIdx.x] : 1e30f;
      __threadfence();
      atomicAdd(arrived, 1u);
      while (atomicAdd(arrived, 0u) < gridDim.x) {}
      float sum = 0.0f;
      for (unsigned block = 0; block < gridDim.x; ++block) sum += parts[block];
      out[blockIdx.x] = sum;
    }
    """,
    "grid_sum",
    name="grid_sum.cu",
)
#: One block an SM.
WHOLE_SM_BYTES = 200_000
NAN_WORD = 0xFFFFFFFF
#: How often a recipe was made in this process.
BUILDS: list[Any] = []


def cluster_launches(x: Any, out: Any, cluster: int) -> list[Any]:
    """Out (blocks, threads): three times the sums over every `cluster` blocks of x."""
    blocks, threads = x.shape
    arguments = (out, x, None, np.int32(3))
    gpu = load_gpu("h200")
    launch = CudaLaunch(gpu, CLUSTER_SUM, (blocks,), (threads,), arguments, WHOLE_SM_BYTES, cluster=cluster)
    return [FillLaunch(out, NAN_WORD), launch]


def grid_launches(x: Any, out: Any, scratch: Scratch = TORCH_SCRATCH) -> list[Any]:
    """Out (blocks,): the sum of x in every place."""
    blocks = x.shape[0]
    parts, arrived = scratch.empty((blocks,), torch.float32, x.device), scratch.zeros(1, x.device)
    arguments = (out, x, parts, arrived)
    together = CudaLaunch(load_gpu("h200"), GRID_SUM, (blocks,), (32,), arguments, is_cooperative=True)
    return [FillLaunch(parts, NAN_WORD), together]


def _build(tensors: tuple[Any, ...], cluster: int) -> RecordedCall:
    """A cluster of 0 stands for the whole grid."""
    (x,) = tensors
    out, scratch = torch.empty_like(x), NotedScratch()
    BUILDS.append((tuple(x.shape), cluster))
    launches = cluster_launches(x, out, cluster) if cluster else grid_launches(x, out, scratch)
    return recipe_of(launches, tensors, [out], scratch, "a test")


SUMS = PlanTable("waiting-kernels", _build, lambda: None)
