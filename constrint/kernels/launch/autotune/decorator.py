"""`constrint.autotune`: the decorator, and the kernel that it returns for a `triton.jit` function."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.autotune import stored
from constrint.kernels.launch.autotune.call import Call, Grid, Signature
from constrint.kernels.launch.autotune.call_space import CallSpec, Space
from constrint.kernels.launch.autotune.cases import CallCase, Checks, Restored
from constrint.kernels.launch.autotune.fitting import device_of, first_that_runs, is_captured, on_device
from constrint.kernels.launch.autotune.tuning import Tuning
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.triton import TritonKernelSpec
from constrint.select import Ranking, rank
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.spec import KernelSpec
from constrint.select.winners import when_reloaded
from constrint.select.workload import Workload
from constrint.tune.store.record import TuningRecord

#: When candidates are measured: never, or at the first call of a key.
MODES = ("never", "first_call")
#: Candidates that are tried in place, and candidates in reserve where nothing is measured.
TRIALS, RESERVE = 8, 16
#: The model that ranks where a device has none, and in Triton's interpreter, where nothing limits a configuration.
STAND_IN = "A100"


def autotune(
    spec: Space | TritonKernelSpec,
    key: Iterable[str] = (),
    *,
    tune: str = "never",
    trials: int = TRIALS,
    gpu: str | GpuModel | None = None,
    reset_to_zero: Iterable[str] = (),
    restore_value: Iterable[str] = (),
) -> Callable[[Any], AutotunedKernel]:
    """Decorate a `triton.jit` function: its configuration follows from constraints and a hardware model.

    The call stays `kernel[grid](...)`, without the parameters that the spec has. The first call of a key
    takes the winner of an earlier tuning, else the model's first choice (or, on request, the best of several trials).

    Args:
        spec: `constrint.space(...)`, or a `TritonKernelSpec`, whose sizes and options are arguments of the kernel.
        key: Names of the arguments that the choice depends on; the types of all tensors always count.
        tune: "never", or "first_call" to measure at the first call of a key.
        trials: Number of the model's best candidates that are then tried.
        gpu: The hardware model, where it is not to be that of the tensors' device.
        reset_to_zero: Tensors that have to be zero before every launch of a trial.
        restore_value: Tensors that have to be as the call gave them before every launch of a trial.

    Raises:
        UsageError: For names that are no arguments, parameters that cannot be set, and rules that cannot be read.
    """
    if not isinstance(spec, Space | TritonKernelSpec):
        raise UsageError(
            f"constrint.autotune takes constrint.space(...) or a TritonKernelSpec, got {type(spec).__name__}."
        )
    if tune not in MODES:
        raise UsageError(f"tune must be {' or '.join(map(repr, MODES))}, got {tune!r}.")
    if type(trials) is not int or trials < 1:
        raise UsageError(f"trials must be a whole number from 1, got {trials!r}.")
    model = load_gpu(gpu) if isinstance(gpu, str) else gpu
    if isinstance(key, str):
        raise UsageError(f"key takes a list of names, got the text {key!r}.")
    names, restored = tuple(key), (reset_to_zero, restore_value)

    def decorate(function: Any) -> AutotunedKernel:
        kernel = AutotunedKernel(function, spec, names, model)
        listed = [kernel.signature.check_arguments(some, what) for some, what in zip(restored, _RESTORED, strict=True)]
        kernel.tune, kernel.trials, kernel.restored = tune, trials, Restored(*listed)
        return kernel

    return decorate


_RESTORED = ("reset_to_zero", "restore_value")


class AutotunedKernel:
    """A `triton.jit` function whose configuration is chosen; called as `kernel[grid](...)`.

    Attributes:
        fn: The function below the decorator.
        spec: The kernel spec or the space of the decorator.
        keys: Names of the arguments that the choice depends on.
        cache: Triton's `Config` by the key of a call.
        best_config: The `Config` of the last call; None before the first.
        records: Records of trials in place, by the key of a call; the best trial is the first.
    """

    tune: str = MODES[0]
    trials: int = TRIALS
    restored: Restored = Restored()

    def __init__(
        self, function: Any, spec: Space | TritonKernelSpec, key: tuple[str, ...], gpu: GpuModel | None
    ) -> None:
        self.fn, self.spec, self.gpu = function, spec, gpu
        self.signature = Signature(function)
        self.arg_names, self.base_fn = list(self.signature.names), self.signature.base
        self.__name__, self.__doc__ = self.signature.name, self.signature.base.__doc__
        self.keys = self.signature.check_arguments(key, "key")
        if isinstance(spec, Space):
            spec.check(self.signature, self.keys)
        else:
            self._check_spec(spec)
        self.cache: dict[tuple[Any, ...], Any] = {}
        self.best_config: Any = None
        self.records: dict[tuple[Any, ...], list[TuningRecord]] = {}
        #: Chosen values, by the key's values, the types and the first tensor's device.
        self._seen: dict[tuple[Any, ...], tuple[Mapping[str, Any], Any]] = {}
        _KERNELS.add(self)

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        """The launcher for a grid: a tuple, or a function of the arguments and parameters by name."""
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args: Any, grid: Grid, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch the kernel with the configuration that is chosen for these arguments."""
        values, self.best_config = self._chosen(args, kwargs, grid)
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **values)

    def warmup(self, *args: Any, grid: Grid, **kwargs: Any) -> list[Any]:
        """Compile the launches of a call with these arguments; launch nothing."""
        return [self.run(*args, grid=grid, warmup=True, **kwargs)]

    def ranking(
        self, *args: Any, grid: Grid, gpu: str | GpuModel | None = None, top: int = 10, **kwargs: Any
    ) -> Ranking:
        """The model's ranking for a call with these arguments, which may be on the device `meta`; launches nothing.

        Args:
            args: Arguments of the call.
            grid: Its grid.
            gpu: A GPU's name or model; that of the decorator or of the tensors' device if None.
            top: Number of candidates.
            kwargs: Further arguments of the call.
        """
        call = Call(self.signature, args, kwargs, grid, self.keys)
        spec, workload = self._spec_and_workload(call)
        model = load_gpu(gpu) if isinstance(gpu, str) else gpu
        return rank(spec, model or self._model(call), workload, top=top)

    def compile(
        self, *args: Any, grid: Grid, gpu: str | GpuModel | None = None, **kwargs: Any
    ) -> tuple[Config, CompiledKernel]:
        """The model's first choice for a call with these arguments, compiled for a GPU that need not be here."""
        ranking = self.ranking(*args, grid=grid, gpu=gpu, top=1, **kwargs)
        call = Call(self.signature, args, kwargs, grid, self.keys)
        spec, workload = self._spec_and_workload(call)
        config = ranking.candidates[0].config
        if not isinstance(spec, CallSpec):
            return config, spec.compile(ranking.gpu, workload, config)
        arguments = call.all_named | self.signature.computed(call.all_named | dict(spec.values_of(config)))
        return config, spec.launches(ranking.gpu, workload, config, arguments, {})[-1].compile(ranking.gpu)

    def _check_spec(self, spec: TritonKernelSpec) -> None:
        """Check that a whole spec is for this function, and that its sizes are arguments."""
        if not hasattr(spec, "function"):
            spec.function = self.fn
        self.signature.check_arguments(spec.size_names, f"sizes of {spec.full_name}")
        self.signature.check_arguments((option.name for option in spec.options), f"options of {spec.full_name}")
        gpu = self.gpu or load_gpu(STAND_IN)
        self.signature.check_params(param.name for param in spec.params(gpu, spec.default_workload(gpu)))

    def _chosen(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Grid) -> tuple[Mapping[str, Any], Any]:
        """The values of the configuration for a call, and the same as Triton's `Config`."""
        named = dict(zip(self.arg_names, args, strict=False))
        named.update(kwargs)
        seen, device = [named.get(name, self.signature.defaults.get(name)) for name in self.keys], None
        for value in named.values():
            if hasattr(value, "dtype"):
                seen.append(value.dtype)
                device = device or getattr(value, "device", None)
        place = (*seen, device)
        try:
            chosen = self._seen.get(place)
        except TypeError:
            raise UsageError(f"{self.__name__}: values of the key must be hashable, got {seen}.") from None
        if chosen is None:
            call = Call(self.signature, args, kwargs, grid, self.keys)
            key = (*call.choice_key, self._model(call).name)
            values = self._choose(call, key)
            chosen = self._seen[place] = values, _triton_config(values)
            self.cache[key] = chosen[1]
        return chosen

    def _choose(self, call: Call, key: tuple[Any, ...]) -> Mapping[str, Any]:
        spec, workload = self._spec_and_workload(call)
        self._check_arguments(call, spec, workload)
        gpu = self._model(call)
        origin = stored.origin_of(self.signature, spec, call.compiled_in)
        config = stored.recall(spec, gpu, workload, origin)
        if config is not None:
            return spec.values_of(config)
        if self.tune == MODES[0] or is_captured(call):
            candidates = rank(spec, gpu, workload, top=RESERVE).candidates
            return spec.values_of(first_that_runs(call, spec, candidates).config)
        candidates = rank(spec, gpu, workload, top=self.trials).candidates
        with on_device(call):
            tuning = Tuning(spec, gpu, workload, origin, self._case(call, spec, gpu, workload), device_of(call))
            records = self.records[key] = tuning.try_all(candidates)
        stored.keep(records, spec, gpu, origin)
        return dict(records[0].config)

    def _case(self, call: Call, spec: KernelSpec, gpu: GpuModel, workload: Workload) -> Checks:
        """The data for checks: fresh inputs where the spec has a reference, else copies of the call's arguments."""
        from constrint.tune.check import Case

        has_own = type(spec).reference is not KernelSpec.reference and type(spec).inputs is not KernelSpec.inputs
        if has_own:
            return Case(spec, gpu, workload, device=device_of(call))
        return CallCase(spec, workload, call, self.restored)

    def _spec_and_workload(self, call: Call) -> tuple[KernelSpec, Workload]:
        if isinstance(self.spec, Space):
            spec = CallSpec(self.spec, call)
            return spec, spec.workload
        options = [option.name for option in self.spec.options]
        return self.spec, call.workload(self.spec.operation, self.spec.size_names, options)

    def _check_arguments(self, call: Call, spec: KernelSpec, workload: Workload) -> None:
        """Raise for a call that sets a parameter itself, or lacks an argument.

        Raises:
            UsageError: For such a call.
        """
        params = {param.name for param in spec.params(self._model(call), workload)}
        twice = sorted(params & {*call.named, *call.kwargs})
        if twice:
            raise UsageError(f"{self.__name__}: {', '.join(twice)} is chosen by constrint.autotune; leave it out.")
        present = {*call.all_named, *params}
        missing = [name for name in self.signature.names if name not in present]
        # An argument that `triton.heuristics` computes may be missing.
        if missing and self.fn is self.signature.jitted:
            kinds = [f"{name} (a tl.constexpr)" if name in self.signature.constants else name for name in missing]
            raise UsageError(f"{self.__name__}: the call lacks {', '.join(kinds)}, which is no parameter of the space.")

    def _model(self, call: Call) -> GpuModel:
        if self.gpu is not None:
            return self.gpu
        device = call.device
        model = gpu_of(device) if device is not None and device.type == "cuda" else None
        return model or load_gpu(STAND_IN)


_KERNELS: weakref.WeakSet[AutotunedKernel] = weakref.WeakSet()


@when_reloaded
def _choose_again() -> None:
    """Let kernels that `constrint tune` may have tuned look for winners at their next call."""
    for kernel in _KERNELS:
        if kernel.tune == MODES[0]:
            kernel._seen.clear()


def _triton_config(values: Mapping[str, Any]) -> Any:
    """The configuration as users of `triton.autotune` know it."""
    import triton

    own = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    rest = {name: value for name, value in values.items() if name not in own}
    return triton.Config(rest, **{name: values[name] for name in own if name in values})
