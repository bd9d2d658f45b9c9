"""The request: one workload of one operation on one GPU, and everything else that a decision depends on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.select.candidate import Config
from constrint.select.workload import Workload

#: Directions of a recurrent layer; every other operation has the first alone.
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Request:
    """Everything that a decision depends on; the argument of `decide`. Requests are compared and looked up by `key`.

    Args:
        operation: Name in the registry, `gemm` or `lstm`.
        workload: Sizes, dtype and options, in terms of the forward direction.
        gpu: Hardware model; None for a device of this machine without one.
        device: Device of this machine that runs the program, as torch names it; None for a named GPU, where nothing
            runs. A decision for a device is never stored on disk.
        directions: ("forward",), or ("forward", "backward") for a layer that trains: one request for both.
        fixed: Values that parameters must have.
        because: Reason for `fixed`, for conflicts.
        kernel: Name of the only implementation that may run, `pointer`; empty: all compete.
        config: The only configuration that may run; needs `kernel`.
        detail: Hashable value that the operation adds: for products the `Product` (strides, alignments, epilogue), for
            layers whether inputs are projected. Its `repr` is part of the key on disk, so it must not name an address.
    """

    operation: str
    workload: Workload
    gpu: GpuModel | None
    device: Hashable = None
    directions: tuple[str, ...] = (FORWARD,)
    fixed: Mapping[str, int] = field(default_factory=dict)
    because: str = "the request fixes it"
    kernel: str = ""
    config: Config | None = None
    detail: Hashable = None

    @staticmethod
    def of(gpu: GpuModel | None, workload: Workload, **options: Any) -> Request:
        """The request for a workload of its operation; further arguments are those of `Request`."""
        return Request(workload.operation, workload, gpu, **options)

    @cached_property
    def subject(self) -> tuple[Hashable, ...]:
        """Key under which refusals of a device are remembered: everything but the device and the model's figures."""
        gpu = None if self.gpu is None else self.gpu.name
        config = None if self.config is None else _items(self.config)
        rest = _workload_key(self.workload), self.directions, _items(self.fixed), self.detail
        return self.operation, self.kernel, config, gpu, *rest

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        """Key of the decision in memory."""
        return id(self.gpu), str(self.device), self.subject

    def without_device(self) -> Request:
        """The same request for the named GPU, whose decision is stored on disk."""
        return replace(self, device=None)


def _workload_key(workload: Workload) -> tuple[Hashable, ...]:
    return workload.operation, workload.dtype, tuple(workload.sizes.items()), _items(workload.options)


def _items(numbers: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(numbers.items()))
