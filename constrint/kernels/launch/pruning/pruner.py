"""`prune` leaves out configurations that cannot run on a GPU; `perf_model` predicts the time of those that can.

Certain rules prune: a configuration that takes more threads or more shared memory than a block can have, or that breaks
a rule the user stated. Estimates only order: `perf_model` puts a configuration that may be slow at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from constrint.errors import InfeasibleError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.autotune.call_space import Space
from constrint.kernels.launch.device import warn_once
from constrint.kernels.launch.pruning.limits import (
    CallFacts,
    ConfigLimits,
    Names,
    Spec,
    broken_by_all,
    is_surely_wide,
    limits_of_space,
    limits_of_spec,
    model_of,
    names_for,
    target_of,
    workload_for,
)
from constrint.select.rank import predict, requests
from constrint.select.spec import KernelSpec, Operation, Param
from constrint.select.toolchain import caution, triton_version
from constrint.select.workload import ELEMENT_BYTES, Workload

#: Callback for each configuration that is left out, with the reason.
Say = Callable[[Any, str], None]
#: Most statements in memory: `triton.autotune` asks for all configurations of one call in sequence.
_MOST_KNOWN = 64


class Pruner:
    """The callback that `triton.autotune` takes as `early_config_prune`; see `prune`."""

    def __init__(
        self,
        spec: Spec,
        gpu: str | GpuModel | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        dtype: str | None = None,
        say: Say | None = None,
    ) -> None:
        self.target, self.gpu, self.dtype, self.say = target_of(spec), gpu, dtype, say
        self._rename = rename

    def __call__(self, configs: Sequence[Any], named_args: Mapping[str, Any], **kwargs: Any) -> list[Any]:
        """Return the configurations of a call that can run; Triton calls this.

        Args:
            configs: Objects of `triton.Config`.
            named_args: The call's positional arguments by name.
            kwargs: Its other arguments.

        Raises:
            InfeasibleError: When none can run.
        """
        arguments = {**named_args, **kwargs}
        facts = CallFacts.of(arguments)
        if self.gpu is None and facts.is_on_unknown:
            return list(configs)  # nothing is certain of a device that has no model
        return self.remaining(configs, facts, set(arguments))

    def remaining(self, configs: Iterable[Any], facts: CallFacts, arguments: set[str]) -> list[Any]:
        """Return the configurations that may run, in their order."""
        listed = list(configs)
        gpu = model_of(self.gpu, facts)
        settings = [settings_of(config) for config in listed]
        names = names_for(self.target, self._rename, gpu)
        names.check_used({*arguments, *(name for one in settings for name in one)}, "the configs and the call have")
        judged = [names.ours(one) for one in settings]
        reasons = broken_by_all(self._limits(gpu, names, facts), judged)
        remaining = []
        for config, reason in zip(listed, reasons, strict=True):
            if not reason:
                remaining.append(config)
            elif self.say is not None:
                self.say(config, reason)
        if listed and not remaining:
            first = " ".join(f"{name}={value}" for name, value in settings[0].items())
            raise InfeasibleError(f"none of the {len(listed)} configs can run on {gpu.name}. {first}: {reasons[0]}.")
        return remaining

    def _limits(self, gpu: GpuModel, names: Names, facts: CallFacts) -> list[ConfigLimits]:
        if isinstance(self.target, Space):
            element_bytes = ELEMENT_BYTES.get(self.dtype or "", 0) or facts.element_bytes
            numbers = {names.rename.get(name, name): value for name, value in facts.numbers.items()}
            return [limits_of_space(self.target, gpu, numbers, element_bytes)]
        workload = workload_for(self.target, gpu, names, facts.numbers, self.dtype or facts.dtype or None)
        able, _ = requests(self.target, gpu, workload)
        is_wide = facts.is_aligned and is_surely_wide(workload)
        limits = []
        for request in able:
            own = limits_of_spec(request.spec, gpu, request.workload)
            if _is_built_in(request.spec):
                _warn_of_version()
                # Our kernels tell the compiler of multiples below 16; another one, with narrow loads, takes less.
                own = own if is_wide else own.of_threads
            limits.append(own)
        return limits


@overload
def prune(
    configs: Iterable[Any],
    spec: Spec,
    *,
    gpu: str | GpuModel | None = ...,
    rename: Mapping[str, str] | None = ...,
    dtype: str | None = ...,
    say: Say | None = ...,
    **sizes: int,
) -> list[Any]: ...


@overload
def prune(
    configs: None = ...,
    spec: Spec = ...,
    *,
    gpu: str | GpuModel | None = ...,
    rename: Mapping[str, str] | None = ...,
    dtype: str | None = ...,
    say: Say | None = ...,
) -> Pruner: ...


def prune(
    configs: Iterable[Any] | None = None,
    spec: Spec | None = None,
    *,
    gpu: str | GpuModel | None = None,
    rename: Mapping[str, str] | None = None,
    dtype: str | None = None,
    say: Say | None = None,
    **sizes: int,
) -> list[Any] | Pruner:
    """Leave out configurations that provably cannot run on a GPU; without `configs`, return a `Pruner` for all calls.

    prune(configs, "gemm.pointer", gpu="a100", rename={"BLOCK_M": "tile_m", ...}, m=4096, n=4096, k=4096, dtype="fp16")
    @triton.autotune(configs, key, prune_configs_by={"early_config_prune": prune(spec="gemm.pointer", rename={...})})

    A kernel's name says that the configurations are of a kernel that stages its operands as ours does: `gemm.pointer`
    is any loop of `tl.load` and `tl.dot`. Of an operation's name (`gemm`), a configuration is left out where no
    implementation could run it. Only limits of the hardware count then, not the rules of our kernels. In
    `constrint.space(...)` the user states the resources of a block (`smem_bytes`), and its rules count too.

    Args:
        configs: Objects of `triton.Config`, or mappings of names to values.
        spec: A kernel's name, a `KernelSpec` or operation, or a `constrint.space(...)` of the user's own names.
        gpu: A GPU's name or model; if None that of a call's tensors, else that of this machine.
        rename: Our names of parameters and sizes by the user's, where they differ in more than capitals.
        dtype: Type of the operands; that of a call's first tensor if None, else that of the default workload.
        say: Callback for each configuration that is left out, with the reason.
        sizes: All sizes of the workload, and options that differ from their defaults, under either name. Without them
            those of the default workload. Where one is no multiple of 16, of a built-in kernel the threads count alone:
            Triton loads less at once then, and what that takes is not certain.

    Returns:
        The same objects in their order, without those that cannot run; or a `Pruner`.

    Raises:
        InfeasibleError: When none can run; says why of the first.
        UsageError: When no GPU is named and none is here, or a name is unknown.
    """
    if spec is None:
        raise UsageError("say what the configs are of: spec='gemm.pointer', a KernelSpec, or constrint.space(...).")
    pruner = Pruner(spec, gpu, rename=rename, dtype=dtype, say=say)
    if configs is None:
        if sizes:
            raise UsageError(f"{', '.join(sizes)}: sizes are those of each call; give configs to prune a list at once.")
        return pruner
    if isinstance(configs, str | Mapping):
        raise UsageError(f"configs takes a list of triton.Config or of mappings, got {type(configs).__name__}.")
    return pruner.remaining(configs, CallFacts(dict(sizes)), set(sizes))


def settings_of(config: Any) -> dict[str, Any]:
    """A configuration's values by name.

    Raises:
        UsageError: For configurations that are neither `triton.Config` nor mappings.
    """
    if isinstance(config, Mapping):
        return {str(name): value for name, value in config.items()}
    if hasattr(config, "all_kwargs"):
        return dict(config.all_kwargs())
    raise UsageError(f"a config is a triton.Config or a mapping of names to values, got {config!r}.")


def _is_built_in(spec: KernelSpec) -> bool:
    """Whether a kernel is built in; the user's own kernel then stages data in the same way but differs otherwise."""
    return spec.home.startswith(f"{__name__.partition('.')[0]}.")


def _warn_of_version() -> None:
    """Warn of a version of Triton with which the resources of built-in kernels are unchecked."""
    version = triton_version()
    if version and caution(version):
        warn_once(f"constrint.prune: {caution(version)}")


class PerfModel:
    """The callback that `triton.autotune` takes as `perf_model`; see `perf_model`."""

    def __init__(
        self,
        spec: Spec,
        gpu: str | GpuModel | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        dtype: str | None = None,
    ) -> None:
        target = target_of(spec)
        if isinstance(target, Space):
            raise UsageError(
                "a kernel's cost model predicts times, and constrint.space(...) has none: name a kernel, "
                "perf_model('gemm.pointer', rename={...}), or give a KernelSpec with a cost."
            )
        self.operation: Operation = target
        self.gpu, self.dtype, self._rename = gpu, dtype, rename
        self._known: dict[tuple[Any, ...], tuple[KernelSpec, Workload, tuple[Param, ...], ConfigLimits]] = {}

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
        values = names.ours(facts.numbers)
        config = {param.name: int(values.get(param.name, param.values[0])) for param in params}
        if limits.broken([config])[0] is not None:
            return math.inf
        columns = {name: np.array([value]) for name, value in config.items()}
        return float(predict(spec, gpu, workload, columns).seconds[0])

    def _stated(
        self, gpu: GpuModel, names: Names, facts: CallFacts
    ) -> tuple[KernelSpec, Workload, tuple[Param, ...], ConfigLimits]:
        """Return the kernel for a call's workload, the workload, the kernel's parameters and their limits."""
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
    """Predict the time of a call under a configuration, for `prune_configs_by` of `triton.autotune`.

    @triton.autotune(configs, key, prune_configs_by={"perf_model": perf_model("gemm.pointer", rename=...), "top_k": 10})

    The time is that of our kernel with these parameters: an estimate, which orders configurations and rules out none.
    Parameters that a configuration does not name have the values that our kernel prefers.

    Args:
        spec: A kernel's name, a `KernelSpec` or an operation, whose most general implementation predicts.
        gpu: A GPU's name or model; if None that of a call's tensors, else that of this machine.
        rename: Our names of parameters and sizes by the user's, where they differ in more than capitals.
        dtype: Type of the operands; that of a call's first tensor if None.

    Raises:
        UsageError: For a `constrint.space(...)`, which says nothing of time.
    """
    return PerfModel(spec, gpu, rename=rename, dtype=dtype)
