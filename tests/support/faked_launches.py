"""Launches of a kernel in CUDA C++ on a driver that only prints; run in a process that finds that driver's library."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from constrint.errors import DoesNotFitError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import CudaLaunch, CudaSource

TEXT = """
__constant__ float weights[4];
extern "C" __global__ void kernel(float* out, const float* extra, int n, float factor) {
  out[n] = factor * weights[threadIdx.x % 4] + (extra ? extra[n] : 0);
}
"""
SOURCE = CudaSource(TEXT, "kernel")


class OnGpu:
    """Stands for a tensor of four floats on a GPU."""

    device = torch.device("cuda", 0)

    def data_ptr(self) -> int:
        return 0xDEADBEEF00

    def numel(self) -> int:
        return 4

    def element_size(self) -> int:
        return 4

    def contiguous(self) -> OnGpu:
        return self


def main() -> None:
    """Launch twice with constants, three times without, and what the device or the driver refuses."""
    gpu, arguments = load_gpu("h200"), (OnGpu(), None, np.int32(-7), np.float32(2.5))
    faked: dict[str, Any] = {
        "device": lambda device: nullcontext(),
        "current_device": lambda: 0,
        "current_stream": lambda: SimpleNamespace(cuda_stream=0xABC),
        "synchronize": lambda: None,
    }
    with mock.patch.multiple(torch.cuda, **faked):
        launch = CudaLaunch(gpu, SOURCE, (2, 3), (64, 2), arguments, 60_000, {"weights": OnGpu()})
        launch.run()
        launch.run()
        CudaLaunch(gpu, SOURCE, (5,), (32,), arguments).run()
        CudaLaunch(gpu, SOURCE, (32,), (64,), arguments, 60_000, cluster=16).run()
        CudaLaunch(gpu, SOURCE, (8,), (64,), arguments, 90_000, cluster=8, is_cooperative=True).run()
        for grid, threads, smem_bytes in ((5, 2048, 0), (5, 64, 300_000), (4096, 64, 0), (8192, 64, 0)):
            try:
                CudaLaunch(gpu, SOURCE, (grid,), (threads,), arguments, smem_bytes).run()
            except DoesNotFitError as error:
                print(json.dumps(["does not fit", error.name, error.required, error.limit, str(error)]))
            except RuntimeError as error:
                print(json.dumps(["error", str(error)]))


if __name__ == "__main__":
    main()
