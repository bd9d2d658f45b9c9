"""The `cudnn` implementation: a whole layer by cuDNN, through the operator that `torch.nn` calls.

It has no parameters. Its time is predicted on GPU models with measured layers; elsewhere it is no candidate: an
unchecked estimate must not win.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cudnn.cost import CudnnLayer, layer_s, left_out_error, measured
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec
from constrint.select.cost import PARTS, CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    import torch

    from constrint.kernels.rnn.interface import RnnBackend

#: The implementation's name, as a module names it.
CUDNN = "cudnn"
#: Cells that cuDNN has.
CUDNN_CELLS = ("lstm", "gru", "elman", "elman_relu")


class CudnnSpec(RnnSpec):
    """One direction of a layer with one head."""

    name = CUDNN
    projects = True
    how = "cuDNN, which projects the inputs itself"
    dtypes = ("bf16", "fp16", "fp32", "tf32")

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """None: the library chooses."""
        return ()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None: `check_workload` refuses layers that cuDNN does not take."""
        return iter(())

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        """None: its launches are the library's."""
        return None

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse several heads, and layers that no measured ones surround."""
        super().check_workload(gpu, workload)
        if workload.sizes["heads"] != 1:
            raise UnsupportedError(
                f"cuDNN's layers have one head, the workload has {workload.sizes['heads']}: use another back-end."
            )
        if not measured(gpu.name):
            raise UnsupportedError(
                f"cuDNN's layers were not measured on {gpu.name}: nothing is predicted, so nothing is offered."
            )
        if self._seconds(gpu, workload) is None:
            raise UnsupportedError(f"no cuDNN layer near {workload} was measured on {gpu.name}: nothing is offered.")

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """The measured time, interpolated."""
        seconds = self._seconds(gpu, workload) or float("inf")
        return CostColumns(np.array([seconds]), dict.fromkeys(PARTS, 0.0) | {"latency": seconds})

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """The basis of its prediction."""
        return "times measured with as many inputs as units, interpolated between sizes; the projection is left out"

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """The error of the interpolation."""
        error = left_out_error(gpu.name)
        return (f"times of cuDNN are interpolated: off by up to {error:.0%} at sizes left out",)

    def refusal_on(self, device: torch.device, gpu: GpuModel | None) -> str:
        """Why it cannot run: the GPU's model needs measurements; empty if it can."""
        if device.type != "cuda":
            return f"cuDNN's layers need a GPU, the device is {device}"
        return "" if gpu is not None else "cuDNN's layers were not measured on this GPU"

    def backend(self) -> RnnBackend:
        """There is none for projected inputs.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(self.modules_alone)

    def _seconds(self, gpu: GpuModel, workload: Workload) -> float | None:
        batch, time, dim = (workload.sizes[name] for name in ("batch", "time", "head_dim"))
        shape = CudnnLayer(self.cell.name, workload.dtype, batch, dim, dim)
        return layer_s(gpu.name, shape, time, self.direction)


SPECS = tuple(CudnnSpec(CELLS[cell], direction) for cell in CUDNN_CELLS for direction in SUFFIX)
