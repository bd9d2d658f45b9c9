"""The decision for tensors of this machine: which back-end runs them, with which configuration.

`decide_for` takes the decision of `constrint.choose` once per kind of layer (cell, batch class, heads, units, dtype,
device) and stores it with its back-end; the operators call `decide_for` for every recurrence that has no plan.
`decide_module` does the same for whole calls of modules.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from constrint import choose
from constrint.choose import FORWARD, Decision, Refusal, Request
from constrint.errors import InfeasibleError
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.rnn.candidates import PLANNED_TIME, RECOMPUTED, LayerDetail, implementations_of
from constrint.kernels.rnn.spec import SUFFIX, workload_of
from constrint.select.winners import when_reloaded

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from constrint.kernels.rnn.interface import RnnBackend

#: Name of a back-end that leaves the choice of an implementation to `decide`.
AUTO = "auto"
#: Pre-activations of up to this size are stored: a GPU writes and reads them in some 30 us, and the host takes longer
#: than that to enqueue their recomputation.
STORED_BYTES = 64 << 20
#: Forced configurations, as in `LayerDetail.configs`.
Configs = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
Result = TypeVar("Result")


class Dispatch(NamedTuple):
    """The back-end that runs one direction of a layer, and the decision for this direction."""

    backend: RnnBackend
    choice: Decision


#: Dispatches by request, direction and `recompute`; a cache in front of the memo of `constrint.choose`.
_DISPATCHES: dict[tuple[Hashable, ...], Dispatch] = {}
#: Decisions for whole calls of modules, by signature.
MODULES: dict[Hashable, Decision] = {}
#: Entries of `MODULES`, at most.
MODULES_CAPACITY = 4096


def request_for(cell: str, wx: Tensor, backend: str, configs: Configs = ()) -> Request:
    """The request of `rnn` for projected inputs: the same for every T, and for every B up to the next power of two.

    Args:
        cell: A key of `CELLS`.
        wx: (B, T, G, N, D) projected inputs.
        backend: An implementation's name, or `auto`.
        configs: Configurations that the caller forces.
    """
    batch, _, _, heads, dim = wx.shape
    detail = LayerDetail(is_projected=True, configs=configs)
    return layer_request(cell, (batch, heads, dim), dtype_name(wx.dtype), wx.device, backend, detail)


def layer_request(
    cell: str, sizes: tuple[int, int, int], dtype: str, device: torch.device, backend: str, detail: LayerDetail
) -> Request:
    """The request for a layer of (sequences, heads, units) on a device, planned for `PLANNED_TIME` steps."""
    batch, heads, dim = sizes
    workload = workload_of(cell, (1 << max(batch - 1, 0).bit_length(), PLANNED_TIME, heads, dim), dtype)
    gpu = gpu_of(device) if device.type == "cuda" else None
    kernel = "" if backend == AUTO else backend
    return Request(cell, workload, gpu, device, tuple(SUFFIX), kernel=kernel, detail=detail)


def decide_for(
    cell: str, wx: Tensor, backend: str, direction: str, *, recompute: bool, configs: Configs = ()
) -> Dispatch:
    """The back-end and the configuration of one direction of a layer.

    `auto` takes the implementation that is best for training, in inference as well. Where its decision
    on recomputing pre-activations differs from `recompute`, the configuration is chosen anew for `recompute`.

    Args:
        cell: A key of `CELLS`.
        wx: (B, T, G, N, D) projected inputs.
        backend: An implementation's name, or `auto`.
        direction: "forward" or "backward".
        recompute: Whether pre-activations are recomputed (forward: not stored).
        configs: Configurations that the caller forces.

    Raises:
        UnknownNameError: When there is no such implementation.
        ConstrintError: When the implementation cannot run the layer here, or not with these configurations; says why.
    """
    batch, _, _, heads, dim = wx.shape
    size_class = max(batch - 1, 0).bit_length()
    key = cell, size_class, heads, dim, dtype_name(wx.dtype), wx.device, backend, direction, recompute, configs
    dispatch = _DISPATCHES.get(key)
    if dispatch is None:
        decision = _decision(request_for(cell, wx, backend, configs), direction, recompute)
        spec = implementations_of(cell)[decision.program.name][direction]
        dispatch = _DISPATCHES[key] = Dispatch(spec.backend(), decision.of(direction))
    return dispatch


def decide_module(signature: Hashable, request: Request) -> Decision:
    """The decision for a module's call, stored in `MODULES` by the call's signature."""
    if len(MODULES) >= MODULES_CAPACITY:
        MODULES.clear()
    decision = MODULES[signature] = choose.decide(request)
    return decision


def _decision(request: Request, direction: str, recompute: bool) -> Decision:
    name = request.kernel
    if not name:
        decision = choose.decide(request)
        name = decision.program.name
        if decision.program.step(direction).fixed.get("recompute", recompute) == recompute:
            return decision
    fixed = {"recompute": int(recompute)}
    return choose.decide(replace(request, kernel=name, fixed=fixed, directions=(direction,)))


def run_decided(
    cell: str,
    wx: Tensor,
    backend: str,
    direction: str,
    run: Callable[[Dispatch], Result],
    *,
    recompute: bool,
    configs: Configs = (),
) -> Result:
    """Run the dispatch of `decide_for`; where no configuration fits the device, `auto` takes the next implementation.

    A part of a GPU may hold fewer blocks at a time than any configuration of a large layer needs.

    Args:
        cell, wx, backend, direction, recompute, configs: Those of `decide_for`.
        run: Runs a dispatch.

    Raises:
        InfeasibleError: When no configuration of the named implementation fits; carries the conflict.
    """
    dispatch = decide_for(cell, wx, backend, direction, recompute=recompute, configs=configs)
    while True:
        try:
            return run(dispatch)
        except InfeasibleError as error:
            if backend != AUTO:
                raise
            following = decide_for(cell, wx, backend, direction, recompute=recompute, configs=configs)
            if following.choice.kernel == dispatch.choice.kernel:
                raise
            warnings.warn(
                f"{dispatch.choice.kernel}: {str(error).partition(chr(10))[0]} From now on "
                f"{following.choice.kernel} is used.",
                RuntimeWarning,
                stacklevel=2,
            )
            dispatch = following


def backend_text(backend: str, configs: Configs) -> str:
    """A back-end and forced configurations as one text, which operators take: `cuda?forward.units=8&...`."""
    if not configs:
        return backend
    return f"{backend}?" + "&".join(f"{d}.{name}={value}" for d, values in configs for name, value in values)


@lru_cache(maxsize=1024)
def parse_backend(text: str) -> tuple[str, Configs]:
    """The back-end and the forced configurations of a `backend_text`."""
    backend, _, pairs = text.partition("?")
    configs: dict[str, list[tuple[str, int]]] = {}
    for pair in filter(None, pairs.split("&")):
        name, _, value = pair.partition("=")
        direction, _, parameter = name.partition(".")
        configs.setdefault(direction, []).append((parameter, int(value)))
    return backend, tuple((direction, tuple(values)) for direction, values in configs.items())


def saves_gates(cell: str, wx: Tensor, backend: str) -> bool:
    """Whether training stores pre-activations: yes, unless they are large and predicted faster to recompute."""
    if wx.numel() * wx.element_size() <= STORED_BYTES:
        return True
    if backend != AUTO and not implementations_of(cell)[backend][FORWARD].may_recompute:
        return True
    program = choose.decide(request_for(cell, wx, AUTO)).program
    recomputes = any(step.fixed.get("recompute") == RECOMPUTED for step in program.steps)
    return backend not in (AUTO, program.name) or not recomputes


def refuse(choice: Decision, refusal: Refusal) -> Decision:
    """Remember that a device refused a configuration, and decide again; later dispatches heed the refusal.

    Raises:
        InfeasibleError: When nothing else fits; carries the conflict.
    """
    try:
        return choose.refuse(
            choice, Refusal(choice.kernel, dict(refusal.config), refusal.what, refusal.required, refusal.limit)
        )
    finally:
        forget()


@when_reloaded
def forget() -> None:
    """Drop all dispatches, so that every decision is taken anew."""
    _DISPATCHES.clear()
    MODULES.clear()


def list_backends(cell: str) -> tuple[str, ...]:
    """Names of the implementations of a cell."""
    return tuple(implementations_of(cell))


def dtype_name(dtype: torch.dtype) -> str:
    """The spec's name of a dtype: fp32 products are tf32 ones where torch's own may be."""
    import torch

    if dtype == torch.float32:
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp32"
    return {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}[dtype]
