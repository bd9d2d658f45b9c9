"""Check a candidate: poisoned outputs, fresh random inputs, and the kernel's reference.

The bound of an element follows from the types and from the length of its sum. With roundoff u of the operands' type and
v of the output's, and n products in a sum whose elements have the root mean square s:

    |output - reference| <= (2 v + r u) |reference| + (2 sqrt(n) e + r u) s

where e is the rounding of the sum relative to the sum of magnitudes (n 2^-24 for fp32 sums), which is at most sqrt(n)
times s for random operands, and r is how often a value is rounded to the operands' type on its way (recurrent states).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.select import Config, KernelSpec, Workload
from constrint.select.spec import Launch

#: Unit roundoff by dtype; fp32 operands go through three products in tf32.
ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "tf32": 2.0**-11, "fp32": 2.0**-22, "fp64": 2.0**-53, "fp8": 2.0**-4}
#: Rounding of a sum relative to its magnitudes, where it does not grow with its length: tf32 rounds operands once, and
#: Hopper keeps 13 bits of 8-bit products between promotions.
SUM_ERROR = {"tf32": 2.0**-10, "fp8": 2.0**-13}


@dataclass(frozen=True)
class Tolerance:
    """Bounds of the error that rounding explains.

    Args:
        relative: Share of the element itself, beside the rounding of the output.
        of_rms: Share of the root mean square of the output's elements.
    """

    relative: float
    of_rms: float

    @staticmethod
    def of(spec: KernelSpec, workload: Workload) -> Tolerance:
        """The tolerance of a kernel's outputs for a workload."""
        terms = spec.num_terms(workload)
        step = SUM_ERROR.get(workload.dtype, terms * 2.0**-24)
        states = spec.roundings(workload) * ROUNDOFF.get(workload.dtype, 0.0)
        return Tolerance(states, 2 * math.sqrt(terms) * step + states)


class KeptInputs:
    """Inputs that nothing may write to, and copies by which it is noticed and undone."""

    inputs: Mapping[str, Any]

    def keep(self) -> None:
        """Copy the inputs as they are."""
        self._before = {name: value.clone() for name, value in self.inputs.items() if hasattr(value, "clone")}

    def changed_inputs(self) -> list[str]:
        """Names of the inputs that are not what they were."""
        return [name for name, value in self._before.items() if not is_same(value, self.inputs[name])]

    def restore(self) -> None:
        """Make the inputs what they were."""
        for name in self.changed_inputs():
            self.inputs[name].copy_(self._before[name])


class Case(KeptInputs):
    """A kernel's random inputs, its outputs, and what these have to be; one for all configurations of a workload.

    `unusual` numbers the kinds of inputs that the kernel may go wrong on (`KernelSpec.unusual_inputs`); 0: random ones.
    """

    def __init__(
        self, spec: KernelSpec, gpu: GpuModel, workload: Workload, *, device: str, seed: int = 0, unusual: int = 0
    ) -> None:
        self.spec, self.gpu, self.workload = spec, gpu, workload
        self.inputs = spec.inputs(gpu, workload, device=device, seed=seed)
        if unusual:
            self.inputs = spec.unusual_inputs(workload, self.inputs, unusual)
        self.outputs = spec.outputs(gpu, workload, self.inputs)
        tolerance = Tolerance.of(spec, workload)
        reference = spec.reference(workload, self.inputs)
        self._expected = {
            name: (value, _bound(value, self.outputs[name], tolerance)) for name, value in reference.items()
        }
        self.keep()

    def renew(self) -> None:
        """Take other memory for the outputs: nothing that was computed before is in reach."""
        # The old memory is given back after the new one is taken, so that it is not the same.
        self.outputs = self.spec.outputs(self.gpu, self.workload, self.inputs)

    def launches(self, config: Config) -> Sequence[Launch]:
        """The launches of one configuration on these inputs and outputs."""
        return self.spec.launches(self.gpu, self.workload, config, self.inputs, self.outputs)

    def check(self, launches: Sequence[Launch]) -> float:
        """Poison the outputs, run, and give the largest error over its bound: right up to 1; inf for a NaN."""
        poison(self.outputs)
        for launch in launches:
            launch.run()
        return self.error()

    def error(self) -> float:
        """The largest error of the outputs as they are, over its bound."""
        return max(self._error(name) for name in self._expected)

    def _error(self, name: str) -> float:
        expected, bound = self._expected[name]
        return _largest((self.outputs[name].to(expected.dtype) - expected).abs() / bound)


def is_same(one: Any, other: Any) -> bool:
    """Whether two tensors hold the same bytes."""
    import torch

    return bool(torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)))


def poison(outputs: Mapping[str, Any]) -> None:
    """Fill outputs with values that no kernel computes: NaN, or nearly the least integer."""
    import torch

    for output in outputs.values():
        output.fill_(math.nan if output.is_floating_point() else torch.iinfo(output.dtype).min + 1)


def _bound(expected: Any, output: Any, tolerance: Tolerance) -> Any:
    """The largest error that rounding explains, per element; less than 1 where the output holds integers."""
    import torch

    if not output.is_floating_point():
        return torch.full_like(expected, 0.5, dtype=torch.float64)
    facts = torch.finfo(output.dtype)
    rms = expected.square().mean().sqrt() if expected.numel() else 0.0
    relative = facts.eps + tolerance.relative
    return relative * expected.abs() + tolerance.of_rms * rms + facts.eps * facts.smallest_normal


def error_over_bound(output: Any, expected: Any, tolerance: Tolerance) -> float:
    """The largest error of an output over its rounding bound; equal elements, infinities and NaNs count as right."""
    import torch

    converted = output.to(expected.dtype)
    if not output.is_floating_point():
        return 0.0 if torch.equal(converted, expected) else math.inf
    finite = expected.isfinite()
    bound = _bound(torch.where(finite, expected, 0.0), output, tolerance)
    is_same = (converted == expected) | (converted.isnan() & expected.isnan())
    return _largest(torch.where(is_same, 0.0, (converted - expected).abs() / bound))


def _largest(error: Any) -> float:
    return float(error.nan_to_num(nan=math.inf, posinf=math.inf).max().item()) if error.numel() else 0.0
