"""Recipes and plans on the fake driver: what this process would take for a GPU with the compiled core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import CudaLaunch, CudaSource
from constrint.kernels.launch.cuda.nvrtc import CudaBinary
from constrint.kernels.launch.plan import loaded, recipe
from constrint.kernels.launch.triton import TritonLaunch
from tests.support.fake_driver import libraries_of
from tests.support.launch_bench import LaunchBench
from tests.support.shared import SharedResults

#: The handle of every kernel that the fake driver loads.
LOADED = 0x99
SPILL_FREE = CudaBinary(b"an image of CUDA's", "lowered", 168, 0, 0, "nvrtc 13.0")


class LoadedLaunch(CudaLaunch):
    """A launch whose kernel was compiled and loaded already; its tensors may be anywhere."""

    def handle(self) -> Any:
        return LOADED

    @property
    def device(self) -> Any:
        return torch.device("cpu")


def cuda_launch(*arguments: Any, binary: CudaBinary = SPILL_FREE, **options: Any) -> LoadedLaunch:
    """Such a launch of 32 blocks of 256 threads, where `options` do not say otherwise."""
    stated: dict[str, Any] = {"grid": (32,), "block": (256,), "smem_bytes": 200_000, **options}
    launch = LoadedLaunch(load_gpu("h200"), CudaSource("", "kernel"), arguments=arguments, **stated)
    launch.__dict__["binary"] = binary
    return launch


class CompiledTriton:
    """Stands for one of Triton's compiled kernels, of one argument that is an address, and of two of Triton's own."""

    function, n_spills, kernel = LOADED + 1, 0, b"an image of Triton's"
    asm: ClassVar = {"ptx": ".visible .entry of_triton(.param .u64 x, .param .u64 global, .param .u64 profile)"}
    src = SimpleNamespace(signature={"x": "*fp32", "tile": "constexpr"})
    metadata = SimpleNamespace(name="of_triton", num_warps=4, shared=1024, target=SimpleNamespace(warp_size=32))


class CompiledLaunch(TritonLaunch):
    """A launch of it."""

    def compiled(self) -> Any:
        return _TRITON

    def values(self) -> dict[str, Any]:
        return dict(self.arguments)


_TRITON = CompiledTriton()


def triton_launch(x: Any) -> CompiledLaunch:
    """A launch of a kernel of Triton's."""
    return CompiledLaunch(None, (7,), {"x": x, "tile": 64}, {})


@contextmanager
def launch_bench_of(shared_results: SharedResults, folder: Path) -> Iterator[LaunchBench]:
    """A stand-in GPU that takes any block of 1,024 threads and holds one block on each SM; its cache is in a folder."""
    made = LaunchBench(libraries_of(shared_results), folder)
    made.fake.value(0, 1024)  # the most threads of a block
    made.fake.resident(1)
    with mock.patch.dict(os.environ, CONSTRINT_CACHE=str(folder / "cache")), fake_gpu(made):
        yield made


@contextmanager
def fake_gpu(bench: LaunchBench, num_sms: int = 132) -> Iterator[None]:
    """Let recipes be made for the fake driver, and run through its core."""
    faked: dict[str, Any] = {
        "current_device": lambda: 0,
        "device": lambda device: nullcontext(),
        "get_device_name": lambda *_: "a slice of an H200",
        "get_device_properties": lambda *_: SimpleNamespace(multi_processor_count=num_sms),
    }
    with mock.patch.multiple(torch.cuda, **faked):
        patches = [mock.patch.multiple(module, compiled=bench.core) for module in (loaded, recipe, loaded)]
        patches += [mock.patch.multiple(module, driver=lambda: bench.handle) for module in (loaded, recipe, loaded)]
        patches += [mock.patch.object(recipe, "reads_tensors", return_value=True)]
        patches += [mock.patch.object(loaded, name, {}) for name in ("_HANDLES", "_MOST_THREADS")]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()


def new_process() -> None:
    """Forget which kernels are loaded and stored."""
    loaded._HANDLES.clear()
    loaded._MOST_THREADS.clear()
    loaded._STORED.clear()
