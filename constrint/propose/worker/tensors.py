"""Tensors of a call: laid out as they were asked for, between guards, and taken apart again."""

from __future__ import annotations

import math
from typing import Any

from constrint.propose.wire import Array, TensorLayout

#: Elements before and after an output that nobody may write.
GUARD = 64
_TORCH = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64", "i64": "int64"}


def torch_dtype(name: str) -> Any:
    """PyTorch's dtype of a name."""
    import torch

    return getattr(torch, _TORCH[name])


def dtype_name(dtype: Any) -> str:
    """The name of PyTorch's dtype."""
    return {value: key for key, value in _TORCH.items()}[str(dtype).removeprefix("torch.")]


def layout_of(name: str, tensor: Any) -> TensorLayout:
    """The layout of a tensor."""
    return TensorLayout(
        name=name, dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape), strides=tuple(tensor.stride())
    )


def array_of(name: str, tensor: Any) -> Array:
    """A tensor with its values."""
    import torch

    # What has one element counts as contiguous, whatever its stride; then its bytes cannot be looked at.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().flatten())
    return Array(layout=layout_of(name, tensor), data=flat.view(torch.uint8).numpy().tobytes())


def values_of(array: Array) -> Any:
    """The values of an array as a contiguous tensor on the CPU.

    Raises:
        ValueError: When there are more or fewer of them than its shape says.
    """
    return values_from(array.data, array.layout.dtype, array.layout.shape)


def values_from(data: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    """Bytes as a contiguous tensor on the CPU.

    Raises:
        ValueError: When there are more or fewer of them than the shape says.
    """
    import torch

    kind, count = torch_dtype(dtype), math.prod(shape)
    if len(data) != count * kind.itemsize:
        raise ValueError(f"{len(data)} bytes for {count} elements of {dtype}")
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(shape) if count else torch.empty(shape, dtype=kind)


def poison_of(dtype: Any) -> Any:
    """A value that no kernel computes: NaN, or nearly the least integer."""
    import torch

    if dtype == torch.bool:
        return True
    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).min + 1


class TensorMemory:
    """Memory in which one tensor lies with guards around it; everything that is not the tensor is poison.

    Args:
        layout: The tensor's layout.
        device: Where it is.
    """

    def __init__(self, layout: TensorLayout, device: str) -> None:
        import torch

        dtype = torch_dtype(layout.dtype)
        strides = layout.strides or _contiguous(layout.shape)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(layout.shape, strides, strict=True))
        self._all = torch.empty(extent + 2 * GUARD, dtype=dtype, device=device)
        self.tensor = self._all.as_strided(layout.shape, strides, GUARD)
        self._poison = poison_of(dtype)
        self.poison()

    def poison(self) -> None:
        """Fill the tensor and all around it with what no kernel computes."""
        self._all.fill_(self._poison)

    def is_overrun(self) -> bool:
        """Whether the guards were written."""
        import torch

        guards = torch.cat([self._all[:GUARD], self._all[-GUARD:]])
        untouched = guards.isnan() if guards.is_floating_point() else guards == self._poison
        return not bool(untouched.all())


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()
