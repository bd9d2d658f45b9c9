"""Prepared launches of kernels that others have compiled and loaded, in CUDA or HIP."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.core import compiled
from constrint.errors import UsageError
from constrint.kernels.launch.plan.arguments import ADDRESS_BYTES, Argument
from constrint.kernels.launch.plan.driver import driver, reads_tensors


def prepare_cuda(
    function: Any, grid: tuple[int, ...], block: tuple[int, ...], *args: Any, shared_bytes: int = 0
) -> PreparedCuda:
    """Prepare the launch of a loaded CUDA or HIP kernel; launches nothing.

    Args:
        function: The kernel's handle (a CUfunction, CUkernel or hipFunction_t) as an integer, or what has one as
            `handle`, such as a kernel of cuda.core.
        grid: Blocks along each grid dimension.
        block: Threads along each dimension of a block; one.
        args: Its arguments: tensors for addresses, and numbers of numpy's types, whose sizes the kernel expects.
        shared_bytes: Dynamic shared memory of a block.

    Returns:
        What launches it, called with tensors and numbers in the same order.

    Raises:
        UsageError: For arguments of other types, and where there is no driver.
    """
    if compiled is None or driver() is None:
        raise UsageError("prepare_cuda needs a GPU and the compiled core.")
    if len(block) != 1:
        raise UsageError(f"prepare_cuda launches blocks of one dimension, got {block}.")
    reads_tensors()
    handle = int(getattr(function, "handle", function))
    laid: list[Argument] = []
    floats = []
    for slot, value in enumerate(args):
        if isinstance(value, Tensor):
            laid.append(("integer", ADDRESS_BYTES, slot, 0))
        elif isinstance(value, np.integer | np.bool_):
            laid.append(("integer", value.dtype.itemsize, slot, 0))
        elif isinstance(value, np.float32 | np.float64):
            laid.append(("fp32" if isinstance(value, np.float32) else "fp64", slot))
            floats.append(slot)
        else:
            raise UsageError(
                f"argument {slot} is {type(value).__name__}: give tensors, and numbers as numpy.int32, numpy.float32 "
                "and the like, since the kernel expects a certain size."
            )
    whole = (*grid, 1, 1)[:3]
    step = ("kernel", handle, whole, int(block[0]), int(shared_bytes), 1, 0, 0, laid)
    index = next((value.device.index for value in args if isinstance(value, Tensor)), torch.cuda.current_device())
    with torch.cuda.device(index):
        plan = compiled.plan(driver(), len(args), [step], [])
    return PreparedCuda(plan, index, floats)


class PreparedCuda:
    """A CUDA or HIP kernel that is ready to be launched; see `prepare_cuda`."""

    def __init__(self, plan: Any, index: int, floats: list[int]) -> None:
        self._plan, self._index, self._floats = plan, index, floats

    def __call__(self, *args: Any) -> None:
        """Launch the kernel on the current stream of its device; numbers may be Python's."""
        assert compiled is not None
        given = [value.item() if isinstance(value, np.generic) else value for value in args]
        for slot in self._floats:
            given[slot] = float(given[slot])
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        if not compiled.launch(self._plan, stream, *given):
            with torch.cuda.device(self._index):
                if not compiled.launch(self._plan, stream, *given):
                    raise RuntimeError("the kernel was prepared in another context of this device; prepare it again.")
