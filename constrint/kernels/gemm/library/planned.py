"""A call of torch's own product as a plan: plain data to keep, and the function that is made of it. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.launch import Call
from constrint.kernels.gemm.library.launch import NARROW_SUMS, Ask, ask_of, function_of, has_scale
from constrint.kernels.launch.plan.shape import NotPlannedError

#: Places of A, B and what is added among a call's tensors: a, b, bias, c.
A, B, SOURCE = 0, 1, 3


def planned_of(call: Call, tensors: Sequence[Tensor | None], result_shape: Sequence[int]) -> dict[str, Any]:
    """What `planned_function` needs to make the call's product of the tensors that a user gave.

    Raises:
        NotPlannedError: When the call's operands are copies of these.
    """
    ask = ask_of(call)
    stated: dict[str, Any] = {
        "dtype": _name(ask.dtype),
        "kind": _name(ask.kind),
        "is_batched": ask.is_batched,
        "end": ask.end,
        "alpha": ask.alpha,
        "beta": ask.beta,
        "views": {},
        "shape": None,
    }
    used = [(A, call.a), (B, call.b)]
    if call.epilogue.source is not None:
        used.append((SOURCE, call.epilogue.source))
    for place, tensor in used:
        given = tensors[place]
        if given is None or given.data_ptr() != tensor.data_ptr():
            raise NotPlannedError("an operand is a copy")
        wanted = tensor if ask.is_batched else tensor[0]
        if (wanted.shape, wanted.stride()) != (given.shape, given.stride()):
            stated["views"][str(place)] = [list(wanted.shape), list(wanted.stride())]
    shape = list(call.out.shape if ask.is_batched else call.out.shape[1:])
    if shape != list(result_shape):
        stated["shape"] = list(result_shape)
    return stated


def planned_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    """The function of a call's tensors (a, b, bias, c) that gives its result, on the current device.

    Raises:
        NotPlannedError: For 8-bit operands, when a graph is captured before any call was made.
    """
    dtype, kind = (getattr(torch, stated[name]) for name in ("dtype", "kind"))
    is_scaled = dtype.is_floating_point and dtype.itemsize == 1
    if is_scaled and not has_scale(torch.device("cuda", torch.cuda.current_device())):
        raise NotPlannedError("there is no scale yet, and a graph is captured")
    ask = Ask(dtype, kind, stated["is_batched"], stated["end"], stated["alpha"], stated["beta"])
    exact = _exactly(function_of(ask), dtype)
    views = {int(place): (tuple(shape), tuple(strides)) for place, (shape, strides) in stated["views"].items()}
    if not views and stated["shape"] is None:
        return exact
    result_shape = stated["shape"]

    def reshaped(*tensors: Tensor | None) -> Tensor:
        given = list(tensors)
        for place, (shape, strides) in views.items():
            tensor = given[place]
            assert tensor is not None
            given[place] = tensor.as_strided(shape, strides)
        made = exact(*given)
        return made if result_shape is None else made.view(result_shape)

    return reshaped


def _exactly(multiply: Callable[..., Tensor], dtype: torch.dtype) -> Callable[..., Tensor]:
    """The same with sums of 32 bits."""
    narrow = NARROW_SUMS.get(dtype)
    if narrow is None:
        return multiply
    enter, leave = narrow.enter, narrow.leave

    def exact(a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None) -> Tensor:
        # As `exact_sums` does, without what a context manager takes.
        enter()
        try:
            return multiply(a, b, bias, c)
        finally:
            leave()

    return exact


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
