"""A kernel for the tuner's tests: a product by torch on the CPU, with configurations that misbehave."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select import KernelSpec, Param, Workload
from constrint.select.candidate import Config
from constrint.select.limits import BlockUse
from constrint.select.spec import Launch, Rule, Vars
from constrint.select.workload import Size
from constrint.tune import CompiledKernel

RIGHT, SLOW, ONE_ELEMENT_OFF, UNWRITTEN, RAISES, DIES, HANGS, REFUSED, KILLS_THE_COMPILER = range(9)
TORCH = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


@dataclass(frozen=True)
class TorchLaunch:
    """A launch that torch does."""

    a: Any
    b: Any
    out: Any
    what: int

    def run(self) -> None:
        if self.what == RAISES:
            raise RuntimeError("this configuration cannot be launched")
        if self.what == DIES:
            os._exit(3)
        if self.what == HANGS:
            time.sleep(1000)
        if self.what == SLOW:
            time.sleep(0.01)
        if self.what != UNWRITTEN:
            wide = self.a.double() @ self.b.double()
            self.out.copy_(wide.to(self.out.dtype))
        if self.what == ONE_ELEMENT_OFF:
            self.out[0, 0] += 1

    def warm_up(self) -> None:
        if self.what == REFUSED:
            raise UnsupportedError("the compiler refuses this configuration")
        if self.what == KILLS_THE_COMPILER:
            os._exit(5)

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        self.warm_up()
        return CompiledKernel(gpu.arch.target, "none", 1024 * self.what, 32, 0, 0, "")


class TinySpec(KernelSpec):
    """A product."""

    operation = "tiny"
    summary = "C = A B, by torch"
    sizes = (Size("m", 8, "rows"), Size("n", 8, "columns"), Size("k", 8, "depth"))
    dtypes = ("fp32", "bf16", "int8")

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return (Param("what", tuple(range(9)), "how it behaves", "one value for each behaviour"),)

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        yield from ()

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        return None

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        import torch

        m, n, k = (workload.sizes[name] for name in "mnk")
        if device == "meta":
            return {"a": torch.empty(m, k, device=device), "b": torch.empty(k, n, device=device)}
        generator = torch.Generator().manual_seed(seed)
        a, b = (5 * torch.randn(shape, generator=generator) for shape in ((m, k), (k, n)))
        dtype = getattr(torch, TORCH[workload.dtype])
        return {"a": a.to(dtype), "b": b.to(dtype)}

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        a, b = inputs["a"], inputs["b"]
        dtype = torch.int32 if a.dtype == torch.int8 else a.dtype
        return {"out": torch.empty(a.shape[0], b.shape[1], dtype=dtype, device=a.device)}

    def launches(
        self,
        gpu: GpuModel,
        workload: Workload,
        config: Config,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> Sequence[Launch]:
        return [TorchLaunch(inputs["a"], inputs["b"], outputs["out"], config["what"])]

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"out": inputs["a"].double() @ inputs["b"].double()}

    def num_terms(self, workload: Workload) -> int:
        return workload.sizes["k"]


def baseline(workload: Workload, inputs: Mapping[str, Any]) -> Any:
    """The competitor: torch itself."""
    return lambda: inputs["a"] @ inputs["b"]


SPEC = TinySpec()
