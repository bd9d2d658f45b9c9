"""A candidate in CUDA C++ in the worker: called with tensors, it compiles its kernels and launches them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda.nvrtc import CudaBinary, CudaSource, compile_with_ptx
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.propose.cuda import sizes
from constrint.propose.machine.judge import judge
from constrint.propose.wire import Kernel, LoadCuda, TensorLayout
from constrint.propose.worker.compiling import check_grid
from constrint.propose.worker.tensors import layout_of
from constrint.tune.search.llm.records import KernelLaunch

#: Types of C++ by the names of dtypes.
_TYPES = {"fp32": "float", "fp16": "fp16", "bf16": "bf16", "i64": "long long", "fp64": "double"}
_POISON = 0xFF
OPTIONS = ("-std=c++17",)


@dataclass(frozen=True)
class _JudgedLaunch(CudaLaunch):
    """A launch of the very binary that was judged."""

    judged: CudaBinary | None = None

    @cached_property
    def binary(self) -> CudaBinary:
        """The judged binary."""
        if self.judged is None:
            raise UnsupportedError(f"{self.source.function} was not judged.")
        return self.judged


@dataclass(frozen=True)
class _Bound:
    """A launch with its numbers worked out; `places` says what each argument is: a tensor, scratch or itself."""

    launch: _JudgedLaunch
    places: tuple[str, ...]


class CudaCandidate:
    """Called like a candidate's own function, with outputs and then inputs.

    Args:
        request: The candidate.
        launching: Makes the context in which each launch runs.
    """

    def __init__(self, request: LoadCuda, launching: Callable[[], AbstractContextManager[None]]) -> None:
        self._request, self._launching = request, launching
        self._bound_launches: dict[tuple[Any, ...], tuple[list[_Bound], dict[str, int]]] = {}
        self._judged: dict[tuple[str, ...], tuple[CudaSource, CudaBinary]] = {}

    def __call__(self, *tensors: Any) -> None:
        """Launch all kernels on the current stream."""
        import torch

        key = tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors)
        if key not in self._bound_launches:
            self._bound_launches[key] = self._bind(tensors, load_gpu(self._request.gpu))
        bound, scratch = self._bound_launches[key]
        named = dict(zip(self._request.arguments, tensors, strict=True))
        device = tensors[0].device
        for one in bound:
            with self._launching():
                if not scratch.keys() <= named.keys():
                    # What an earlier call left there is gone.
                    for name, num_bytes in scratch.items():
                        named[name] = torch.full((num_bytes,), _POISON, dtype=torch.uint8, device=device)
                places = zip(one.places, one.launch.arguments, strict=True)
                one.launch.enqueue([named.get(place, value) for place, value in places])

    def compiled(self, tensors: Sequence[Any], gpu_name: str) -> Iterator[Kernel]:
        """Every kernel that a call launches, compiled for a named GPU; the tensors have no memory."""
        gpu = load_gpu(gpu_name)
        for every in self._request.launches:
            # A launch for other sizes is judged here, too.
            self._binary(gpu, every.kernel, _types_of(self._layouts(tensors)))
        for one in self._bind(tensors, gpu)[0]:
            launch = one.launch
            stated = launch.compiled().stated
            yield Kernel(
                name=launch.source.function.partition("<")[0],
                threads_per_block=math.prod(launch.block),
                smem_bytes=stated.smem_bytes,
                registers=stated.registers_per_thread,
                accumulator_registers=0,
                spill_bytes=stated.spill_bytes,
                num_blocks=math.prod(launch.grid),
            )

    def _bind(self, tensors: Sequence[Any], gpu: GpuModel) -> tuple[list[_Bound], dict[str, int]]:
        """The launches of a call on such tensors, and the bytes of its scratch memory."""
        layouts = self._layouts(tensors)
        values = sizes.values_of(layouts)
        scratch = {name: sizes.number(text, values) for name, text in self._request.scratch.items()}
        for name, num_bytes in scratch.items():
            if not 0 < num_bytes <= gpu.memory.dram.size_bytes:
                raise UnsupportedError(f"scratch.{name} has {num_bytes} bytes.")
        named = dict(zip(self._request.arguments, tensors, strict=True)) | dict.fromkeys(scratch)
        launches = [one for one in self._request.launches if sizes.holds(one.when, values)]
        return [self._bound(one, layouts, named, gpu) for one in launches], scratch

    def _bound(
        self,
        one: KernelLaunch,
        layouts: Sequence[TensorLayout],
        named: dict[str, Any],
        gpu: GpuModel,
    ) -> _Bound:
        values = sizes.values_of(layouts)
        grid, block = (tuple(sizes.number(text, values) for text in texts) for texts in (one.grid, one.block))
        check_grid(one.kernel, grid)
        if any(count < 1 for count in block):
            raise UnsupportedError(f"{one.kernel} asks for a block of {block} threads.")
        arguments = tuple(
            named[text] if text in named else np.int64(sizes.number(text, values)) for text in one.arguments
        )
        smem_bytes = sizes.number(one.smem_bytes, values)
        if smem_bytes < 0:
            raise UnsupportedError(f"{one.kernel} asks for {smem_bytes} bytes of shared memory.")
        places = tuple(text if text in named else "" for text in one.arguments)
        source, binary = self._binary(gpu, one.kernel, _types_of(layouts))
        return _Bound(_JudgedLaunch(gpu, source, grid, block, arguments, smem_bytes, judged=binary), places)

    def _binary(self, gpu: GpuModel, kernel: str, types: dict[str, str]) -> tuple[CudaSource, CudaBinary]:
        """A kernel compiled and judged, once for each combination of types."""
        key = (gpu.arch.target, kernel, *types.values())
        if key not in self._judged:
            source = CudaSource(prelude() + self._request.source, kernel, types, OPTIONS, name="candidate.cu")
            binary, ptx = compile_with_ptx(gpu, source)
            judge(kernel.partition("<")[0], {"ptx": ptx, "cubin": binary.cubin})
            self._judged[key] = source, binary
        return self._judged[key]

    def _layouts(self, tensors: Sequence[Any]) -> list[TensorLayout]:
        return [layout_of(name, tensor) for name, tensor in zip(self._request.arguments, tensors, strict=True)]


def _types_of(layouts: Sequence[TensorLayout]) -> dict[str, str]:
    """The macros that name the types of tensors."""
    return {f"{layout.name}_t": _TYPES[layout.dtype] for layout in layouts}


@lru_cache(maxsize=1)
def prelude() -> str:
    """The types of 16 bits; messages of the compiler count the candidate's own lines."""
    return Path(__file__).with_name("prelude.cuh").read_text() + "#line 1\n"
