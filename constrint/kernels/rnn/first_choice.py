"""The first choice for a recurrent layer's tensors: which implementation runs them, with which configuration.

The plan of `plan.py` decides. The decision is made once for every kind of layer and remembered; the forward and the
backward operator look it up here, and so does the question whether pre-activations are stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.measured import measured_layer
from constrint.kernels.rnn.plan import RnnPlan, choose_for, implementations_of, plan_on
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, workload_of
from constrint.select import first_choice as select_first
from constrint.select.first_choice import Choice, Refusal
from constrint.select.winners import when_reloaded

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from constrint.kernels.rnn.interface import RnnBackend
    from constrint.select.spec import Workload

#: The name that leaves the choice of an implementation to the plan.
AUTO = "auto"
#: Pre-activations of up to this size are stored: a GPU writes and reads them in some 30 us, and the host takes longer
#: than that to enqueue what computes them again.
STORED_BYTES = 64 << 20
#: Steps that a plan is made for: the times of all implementations grow with them alike.
USUAL_TIME = 1024


Result = TypeVar("Result")


class Decision(NamedTuple):
    """The code that runs a layer in one direction, and what it was chosen to launch."""

    backend: RnnBackend
    choice: Choice


_Kind = tuple[str, int, int, int, str, "torch.device"]
#: Plans by kind of layer, and decisions by kind, implementation's name, direction and `recompute`.
_PLANS: dict[_Kind, RnnPlan] = {}
_DECISIONS: dict[tuple[object, ...], Decision] = {}


def decide(cell: str, wx: Tensor, backend: str, direction: str, *, recompute: bool) -> Decision:
    """What runs a layer.

    Args:
        cell: A key of `CELLS`.
        wx: (B, T, G, N, D) projected inputs.
        backend: An implementation's name, or `auto`.
        direction: "forward" or "backward".
        recompute: Whether pre-activations are computed again (forward: not stored).

    Raises:
        UnknownNameError: When there is no such implementation.
        ConstrintError: When it cannot run the layer here; says why.
    """
    kind = _kind(cell, wx)
    key = (kind, backend, direction, recompute)
    known = _DECISIONS.get(key)
    if known is None:
        specs, name = implementations_of(cell), _plan(kind).backend if backend == AUTO else backend
        if name not in specs:
            raise UnknownNameError("backend", name, [*specs, AUTO])
        spec = specs[name][direction]
        if spec.projects:
            raise UnsupportedError(spec.modules_alone)
        known = _DECISIONS[key] = Decision(spec.backend(), _choice(kind, spec, direction, recompute))
    return known


def run_decided(
    cell: str, wx: Tensor, backend: str, direction: str, run: Callable[[Decision], Result], *, recompute: bool
) -> Result:
    """Run what `decide` says; where nothing of an implementation fits the device, `auto` takes the next one.

    A part of a GPU may hold fewer blocks at a time than any configuration of a large layer needs.

    Args:
        cell, wx, backend, direction, recompute: As in `decide`.
        run: Runs a decision.

    Raises:
        InfeasibleError: When nothing fits of the implementation that was named; carries the conflict.
    """
    decision = decide(cell, wx, backend, direction, recompute=recompute)
    while True:
        try:
            return run(decision)
        except InfeasibleError as error:
            if backend != AUTO:
                raise
            following = decide(cell, wx, backend, direction, recompute=recompute)
            if following.choice.kernel == decision.choice.kernel:
                raise
            warnings.warn(
                f"{decision.choice.kernel}: {str(error).partition(chr(10))[0]} From now on "
                f"{following.choice.kernel} is used.",
                RuntimeWarning,
                stacklevel=2,
            )
            decision = following


def saves_gates(cell: str, wx: Tensor, backend: str) -> bool:
    """Whether training stores pre-activations: yes, unless they are large and faster to compute again by prediction."""
    if wx.numel() * wx.element_size() <= STORED_BYTES:
        return True
    if backend != AUTO and not implementations_of(cell)[backend]["forward"].may_recompute:
        return True
    plan = _plan(_kind(cell, wx))
    return backend not in (AUTO, plan.backend) or not plan.chosen.recomputes


def predicted_s(
    cell: str, sizes: tuple[int, int, int], dtype: str, device: torch.device, *, trains: bool
) -> float | None:
    """Predicted seconds of `USUAL_TIME` steps of what `auto` runs on projected inputs; None where nothing is predicted.

    Args:
        cell: A key of `CELLS`.
        sizes: Sequences, heads, and units of a head.
        dtype: The spec's name of the dtype.
        device: Where it runs.
        trains: Whether the backward pass counts, too.
    """
    batch, heads, dim = sizes
    seconds = _plan((cell, _batch_class(batch), heads, dim, dtype, device)).chosen.seconds
    if not seconds:
        return None
    return sum(seconds.values()) if trains else seconds["forward"]


def measured_s(
    cell: str, sizes: tuple[int, int, int], dtype: str, device: torch.device, *, trains: bool, time: int
) -> float | None:
    """Seconds of a layer of so many steps as what `auto` runs was measured; None where no direction of it was.

    A direction that was not, and steps beyond the most that were, take what is predicted. Further arguments as in
    `predicted_s`.
    """
    gpu, (batch, heads, dim), total, is_known = gpu_of(device), sizes, 0.0, False
    if gpu is None:
        return None
    chosen = _plan((cell, _batch_class(batch), heads, dim, dtype, device)).chosen
    for direction in SUFFIX if trains else ("forward",):
        spec = implementations_of(cell)[chosen.backend][direction]
        found = measured_layer(
            chosen.backend, spec, gpu, workload_of(cell, (batch, time, heads, dim), dtype, direction)
        )
        seconds, steps = (0.0, 0) if found is None else found
        total += seconds + chosen.seconds[direction] * (time - steps) / USUAL_TIME
        is_known |= found is not None
    return total if is_known else None


def refuse(choice: Choice, refusal: Refusal) -> Choice:
    """Remember that a device refused a choice, and choose again; later decisions follow.

    Raises:
        InfeasibleError: When nothing else fits; carries the conflict.
    """
    try:
        return select_first.refuse(load_spec(choice.kernel), choice, refusal)
    finally:
        forget()


@when_reloaded
def forget() -> None:
    """Let every decision be made again."""
    _PLANS.clear()
    _DECISIONS.clear()


def list_backends(cell: str) -> tuple[str, ...]:
    """Names of the implementations of a cell."""
    return tuple(implementations_of(cell))


def _kind(cell: str, wx: Tensor) -> _Kind:
    """What a decision depends on: the same for every T, and for every B up to the next power of two."""
    batch, _, _, heads, dim = wx.shape
    return cell, _batch_class(batch), heads, dim, dtype_name(wx.dtype), wx.device


def _batch_class(batch: int) -> int:
    return 1 << max(batch - 1, 0).bit_length()


def dtype_name(dtype: torch.dtype) -> str:
    """The spec's name of a dtype: fp32 products are tf32 ones where torch's own may be."""
    import torch

    if dtype == torch.float32:
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp32"
    return {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}[dtype]


def _workload(kind: _Kind, direction: str) -> Workload:
    cell, batch, heads, dim, dtype, _ = kind
    return workload_of(cell, (batch, USUAL_TIME, heads, dim), dtype, direction)


def _plan(kind: _Kind) -> RnnPlan:
    if kind not in _PLANS:
        _PLANS[kind] = plan_on(_workload(kind, "forward"), kind[-1], tuple(SUFFIX), projected=True)
    return _PLANS[kind]


def _choice(kind: _Kind, spec: RnnSpec, direction: str, recompute: bool) -> Choice:
    """The plan's choice, if it has one for this `recompute`; else a choice of its own."""
    plan = _PLANS.get(kind)
    planned = None if plan is None else plan.offer_of(spec.name).choices.get(direction)
    if planned is not None and planned.fixed.get("recompute", recompute) == recompute:
        return planned
    device = kind[-1]
    gpu = gpu_of(device) if device.type == "cuda" else None
    refusal = spec.refusal_on(device, gpu)
    if refusal:
        raise UnsupportedError(f"backend {spec.name!r}: {refusal}. Use 'auto', or 'alternating', which runs anywhere.")
    return choose_for(spec, gpu, _workload(kind, direction), int(recompute))
