"""A kernel for a GPU whose configurations hang it, break its context, take its memory, or write where they may not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from constrint.hwmodels import GpuModel
from constrint.kernels.launch import TritonKernelSpec
from constrint.model import Const
from constrint.select import BlockUse, Param, Rule, Size, Workload
from constrint.select.candidate import Config
from constrint.select.spec import Vars
from constrint.tune import Outcome

#: What each value of the parameter does, and what has to be recorded of it.
BEHAVIOURS = {
    "right": Outcome.OK,
    "wrong": Outcome.WRONG_RESULT,
    "hangs": Outcome.TIMED_OUT,
    "breaks_context": Outcome.LAUNCH_FAILED,
    "writes_inputs": Outcome.WRONG_RESULT,
    "too_large": Outcome.LAUNCH_FAILED,
}
NAMES = tuple(BEHAVIOURS)


@triton.jit
def hostile_kernel(x, y, n, what: tl.constexpr, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = at < n
    values = tl.load(x + at, mask=inside)
    if what == 1:
        values += 1
    if what == 2:
        # The host never stores what this waits for.
        while tl.load(x, volatile=True) < 1e30:
            pass
    if what == 3:
        tl.store(y + (at.to(tl.int64) + 1) * (1 << 40), values)
    if what == 4:
        tl.store(x + at, values * 0, mask=inside)
    tl.store(y + at, 2 * values, mask=inside)


class HostileGpuSpec(TritonKernelSpec):
    """Doubles its input, or does something else."""

    operation, summary, dtypes = "hostile_gpu", "y = 2 x, or something else", ("fp32",)
    sizes = (Size("n", 4096, "elements"),)
    function = hostile_kernel

    def params(self, gpu: GpuModel, workload: Workload) -> Iterator[Param]:
        yield Param("what", tuple(range(len(NAMES))), "how it behaves", "one value for each behaviour")
        yield Param("tile", (128, 256), "elements of a block", "powers of two")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        yield from ()

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        return BlockUse(Const(4), Const(32), smem_bytes=Const(0))

    def grid(self, workload: Workload, config: Config) -> tuple[int, ...]:
        blocks: int = triton.cdiv(workload.sizes["n"], config["tile"])
        return (blocks, 1, 1 << 20) if NAMES[config["what"]] == "too_large" else (blocks,)

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        if device == "meta":
            return {"x": torch.empty(workload.sizes["n"], device=device)}
        generator = torch.Generator(device).manual_seed(seed)
        return {"x": torch.randn(workload.sizes["n"], device=device, generator=generator)}

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": torch.empty_like(inputs["x"])}

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": 2 * inputs["x"].double()}


SPEC = HostileGpuSpec()
