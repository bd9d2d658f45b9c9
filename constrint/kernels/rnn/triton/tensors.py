"""What the recurrent Triton kernels are checked, timed and compiled with; see `rnn/tensors.py`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.tensors import exact_outputs, make_inputs, make_optional_inputs, make_outputs
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.workload import Workload
from constrint.tune.compile import require_triton

if TYPE_CHECKING:
    from constrint.kernels.rnn.triton.spec import TritonSpec

__all__ = ["compile_given", "exact_outputs", "make_inputs", "make_outputs"]


def compile_given(
    spec: TritonSpec, gpu: GpuModel, workload: Workload, config: Config, given: Collection[str]
) -> CompiledKernel:
    """See `TritonSpec.compile`."""
    require_triton()
    inputs = spec.inputs(gpu, workload)
    inputs |= make_optional_inputs(spec.cell, spec.direction, inputs["wx"], given)
    outputs = spec.outputs(gpu, workload, inputs)
    return spec.launches(gpu, workload, config, inputs, outputs)[-1].compile(gpu)
