"""Launches of Triton kernels at a few microseconds each: what reached the driver's launcher once, sent again.

A launch through Triton takes Python 100 us, longer than most products; so a time between two events would be Python's.
Written for the launcher of Triton 3.6.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl

#: Places of the hooks in what the launcher is called with: grid (3), stream, function, cooperative, pdl, scratch (2),
#: kernel's and launch's metadata, hooks (2), arguments.
HOOKS = (11, 12)
CHECK_BLOCK = 4096

Launch = tuple[Callable[..., None], list[Any]]


class Recorder:
    """Collects launches instead of running them; there can be one per process, made before any kernel is loaded."""

    def __init__(self) -> None:
        from triton.backends.nvidia import driver

        self.launches: list[Launch] | None = None
        self.modules: list[int] = []
        self.functions: dict[int, Any] = {}
        wrap, build, start = driver.wrap_handle_tensordesc, driver.compile_module_from_src, driver.CudaLauncher.__init__

        def kept(launcher: Any) -> Any:
            def launch(*args: Any) -> None:
                if self.launches is None:
                    launcher(*args)
                else:
                    self.launches.append((launcher, [*args[: HOOKS[0]], None, None, *args[HOOKS[1] + 1 :]]))

            return launch

        driver.wrap_handle_tensordesc = lambda launcher, *rest: wrap(kept(launcher), *rest)
        # One launcher serves all kernels with the same types of arguments, but is imported again for each.
        modules: dict[str, Any] = {}

        def built(src: str, **options: Any) -> Any:
            if src not in modules:
                modules[src] = build(src=src, **options)
            return modules[src]

        driver.compile_module_from_src = built

        def started(launcher: Any, src: Any, metadata: Any) -> None:
            self.functions[id(src.fn)] = src.fn
            start(launcher, src, metadata)

        driver.CudaLauncher.__init__ = started
        triton.knobs.runtime.kernel_load_end_hook.add(self._loaded)

    def _loaded(self, module: Any, *_: Any) -> None:
        self.modules.append(module)

    def record(self, call: Callable[[], Any]) -> list[Launch]:
        """The launches of a call, none of which runs."""
        self.launches = []
        try:
            call()
            return self.launches
        finally:
            self.launches = None

    def unload(self) -> None:
        """Unload every module that was loaded, once nothing runs, and forget what functions were compiled to."""
        for module in self.modules:
            _libcuda().cuModuleUnload(ctypes.c_void_p(module))
        self.modules.clear()
        for function in self.functions.values():
            for of_device in function.device_caches.values():
                of_device[0].clear()
                of_device[1].clear()


def replay(launches: list[Launch]) -> None:
    """Enqueue recorded launches."""
    for launcher, args in launches:
        launcher(*args)


@lru_cache
def _libcuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@triton.jit
def check_kernel(
    out_ptr,  # (num,)
    expected_ptr,  # (num,) fp32
    bound_ptr,  # (num,) fp32
    wrong_ptr,  # how many are out of bounds is added to it
    num,
    block_size: tl.constexpr,
):
    """Count results that are off by more than the bound (a NaN is), then poison them."""
    offsets = tl.program_id(0).to(tl.int64) * block_size + tl.arange(0, block_size)
    inside = offsets < num
    out = tl.load(out_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    expected = tl.load(expected_ptr + offsets, mask=inside, other=0.0)
    bound = tl.load(bound_ptr + offsets, mask=inside, other=0.0)
    tl.store(out_ptr + offsets, tl.full((block_size,), float("nan"), out_ptr.dtype.element_ty), mask=inside)
    wrong = tl.sum(tl.where(tl.abs(out - expected) <= bound, 0, 1))
    if wrong > 0:
        tl.atomic_add(wrong_ptr, wrong)


class Check:
    """Compares one output with what is expected and poisons it; the output starts poisoned.

    Args:
        recorder: Of this process.
        out: (1, M, N), contiguous, floating-point.
        expected: (M, N).
        bound: (M, N), the largest difference that rounding explains.
        wrong: (num, 4) 32-bit integers, of which the first of each row counts.
    """

    def __init__(
        self,
        recorder: Recorder,
        out: torch.Tensor,
        expected: torch.Tensor,
        bound: torch.Tensor,
        wrong: torch.Tensor,
    ) -> None:
        self.tensors = (out, expected.to(torch.float32).contiguous(), bound.contiguous(), wrong)
        self.first, self.row_bytes = wrong.data_ptr(), wrong.stride(0) * wrong.element_size()
        num = out.numel()

        def call() -> None:
            check_kernel[(triton.cdiv(num, CHECK_BLOCK),)](*self.tensors, num, block_size=CHECK_BLOCK)

        ((self.launcher, self.args),) = recorder.record(call)
        self.place = next(i for i, value in enumerate(self.args) if value is wrong)
        out.fill_(float("nan"))

    def __call__(self, row: int) -> None:
        """Count into this row of `wrong`."""
        self.args[self.place] = self.first + row * self.row_bytes
        self.launcher(*self.args)
