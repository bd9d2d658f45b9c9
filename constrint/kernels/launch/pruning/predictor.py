"""Predicted times of configurations, as `triton.autotune` asks for them to time the most promising ones only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.autotune.call_space import Space
from constrint.kernels.launch.pruning.asked import CallFacts, Names, Spec, asked_of, model_of, names_for, workload_for
from constrint.kernels.launch.pruning.limits import Limits, limits_of_spec
from constrint.select.rank import predict, requests
from constrint.select.spec import KernelSpec, Operation, Param
from constrint.select.workload import Workload

#: A model is asked about every configuration of one call in turn.
_MOST_KNOWN = 64


class PerfModel:
    """What `triton.autotune` takes as `perf_model`; see `perf_model`."""

    def __init__(
        self,
        spec: Spec,
        gpu: str | GpuModel | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        dtype: str | None = None,
    ) -> None:
        asked = asked_of(spec)
        if isinstance(asked, Space):
            raise UsageError(
                "a kernel's cost model predicts times, and constrint.space(...) has none: name a kernel, "
                "perf_model('gemm.pointer', rename={...}), or give a KernelSpec with a cost."
            )
        self.operation: Operation = asked
        self.gpu, self.dtype, self._rename = gpu, dtype, rename
        self._known: dict[tuple[Any, ...], tuple[KernelSpec, Workload, tuple[Param, ...], Limits]] = {}

    def __call__(self, **arguments: Any) -> float:
        """Predicted seconds of a call with these arguments and parameters; infinite where it cannot run.

        Args:
            arguments: The call's arguments and a configuration's values, by name.
        """
        facts = CallFacts.of(arguments)
        if self.gpu is None and facts.is_on_unknown:
            return 0.0  # all the same where the device has no model
        gpu = model_of(self.gpu, facts)
        names = names_for(self.operation, self._rename, gpu)
        names.check_used(set(arguments), "the call has")
        spec, workload, params, limits = self._stated(gpu, names, facts)
        given = names.ours(facts.numbers)
        config = {param.name: int(given.get(param.name, param.values[0])) for param in params}
        if limits.broken([config])[0] is not None:
            return math.inf
        columns = {name: np.array([value]) for name, value in config.items()}
        return float(predict(spec, gpu, workload, columns).seconds[0])

    def _stated(
        self, gpu: GpuModel, names: Names, facts: CallFacts
    ) -> tuple[KernelSpec, Workload, tuple[Param, ...], Limits]:
        """The kernel that is asked for this workload, its parameters, and their limits."""
        workload = workload_for(self.operation, gpu, names, facts.numbers, self.dtype or facts.dtype or None)
        key = (gpu.name, str(workload))
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            # The last implementation is the most general one.
            spec = requests(self.operation, gpu, workload)[0][-1].spec
            params = tuple(spec.params(gpu, workload))
            self._known[key] = spec, workload, params, limits_of_spec(spec, gpu, workload)
        return self._known[key]


def perf_model(
    spec: Spec,
    gpu: str | GpuModel | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    dtype: str | None = None,
) -> PerfModel:
    """What predicts the time of a call under a configuration, for `prune_configs_by` of `triton.autotune`.

    @triton.autotune(configs, key, prune_configs_by={"perf_model": perf_model("gemm.pointer", rename=...), "top_k": 10})

    The time is that of our kernel with these parameters: an estimate, which orders configurations and rules out none.
    Parameters that a configuration does not name have the values that our kernel prefers.

    Args:
        spec: A kernel's name, a `KernelSpec` or an operation, whose most general implementation is asked.
        gpu: A GPU's name or model; if None that of a call's tensors, else that of this machine.
        rename: Our names of parameters and sizes by the user's, where they differ in more than capitals.
        dtype: Type of the operands; that of a call's first tensor if None.

    Raises:
        UsageError: For a `constrint.space(...)`, which says nothing of time.
    """
    return PerfModel(spec, gpu, rename=rename, dtype=dtype)
