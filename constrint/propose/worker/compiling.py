"""Compiles what a candidate launches, for a named GPU, on a machine that may have none.

The candidate's function is called with tensors that have no memory, and every launch that it asks for is compiled in
place of being run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.triton import TritonLaunch
from constrint.propose.allowed import LAUNCH_OPTIONS
from constrint.propose.machine.judge import judge
from constrint.propose.wire import Kernel
from constrint.propose.worker.held import blocks, bound, released
from constrint.tune.compile import build_triton

#: Most launches of one call of a candidate, and most blocks of a grid along its first and its other dimensions.
MAX_KERNELS, MAX_BLOCKS_X, MAX_BLOCKS_YZ = 16, 2**31 - 1, 65535
#: Triton's number of warps where a launch names none.
NUM_WARPS = 4


def compile_launches(entry: Any, tensors: Sequence[Any], gpu_name: str) -> Iterator[Kernel]:
    """Every kernel that a call launches, compiled.

    Raises:
        UnsupportedError: When the compiler refuses one, it holds what no candidate may, or no GPU takes its grid.
    """
    gpu = load_gpu(gpu_name)
    for launch in _recorded(entry, tensors):
        built = build_triton(gpu, launch.source())
        judge(launch.function.__name__, built.asm)
        compiled = built.taken
        yield Kernel(
            name=launch.function.__name__,
            threads_per_block=int(launch.options.get("num_warps", NUM_WARPS)) * _warp_size(gpu),
            smem_bytes=compiled.smem_bytes,
            registers=compiled.registers_per_thread,
            accumulator_registers=compiled.accumulator_registers,
            spill_bytes=compiled.spill_bytes,
            num_blocks=math.prod(launch.grid),
        )


def judge_loaded_kernels() -> None:
    """Let Triton load the binaries alone that were judged, whatever they were compiled for."""
    from triton.compiler.compiler import CompiledKernel

    load: Any = CompiledKernel._init_handles

    def load_judged(kernel: Any) -> Any:
        if kernel.module is None:
            binary = {form: kernel.kernel for form in ("cubin", "hsaco") if form in kernel.asm}
            judge(kernel.name, {**kernel.asm, **binary})
        return load(kernel)

    CompiledKernel._init_handles = load_judged


def _recorded(entry: Any, tensors: Sequence[Any]) -> list[TritonLaunch]:
    from triton.runtime.jit import JITFunction

    launches: list[TritonLaunch] = []
    launch: Any = JITFunction.run

    def record(function: Any, *arguments: Any, grid: Any, warmup: bool = False, **named: Any) -> None:
        if len(launches) == MAX_KERNELS:
            raise UnsupportedError(f"one call launches more than {MAX_KERNELS} kernels.")
        launches.append(_launch_of(function, arguments, grid, named))

    JITFunction.run = record
    try:
        entry(*tensors)
    finally:
        JITFunction.run = launch
    return launches


def _launch_of(function: Any, arguments: Sequence[Any], grid: Any, named: Mapping[str, Any]) -> TritonLaunch:
    """One launch; arguments that the kernel does not have are options of Triton."""
    known, options = bound(function, arguments, named)
    _check_options(function.__name__, options)
    shape = tuple(int(count) for count in blocks(grid, lambda: known))
    check_grid(function.__name__, shape)
    return TritonLaunch(function, shape, {name: released(value) for name, value in known.items()}, options)


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """See that a launch states no option that replaces a stage of the compiler, or reads a file.

    Raises:
        UnsupportedError: When it does.
    """
    for option in sorted(options.keys() - LAUNCH_OPTIONS):
        allowed = ", ".join(sorted(LAUNCH_OPTIONS))
        raise UnsupportedError(f"{name} has no parameter {option!r}, and a launch states only {allowed}.")


def check_grid(name: str, blocks: tuple[int, ...]) -> None:
    """See that some GPU takes a grid.

    Raises:
        UnsupportedError: When none does.
    """
    limits = (MAX_BLOCKS_X, MAX_BLOCKS_YZ, MAX_BLOCKS_YZ)
    if not 1 <= len(blocks) <= 3 or any(not 1 <= n <= most for n, most in zip(blocks, limits, strict=False)):
        raise UnsupportedError(f"{name} asks for a grid of {blocks} blocks, which no GPU takes.")


def _warp_size(gpu: GpuModel) -> int:
    return gpu.sm.warp_size
