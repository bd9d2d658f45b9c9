"""The things that a candidate's launch code holds: tensors that refuse to compute, and modules without the rest.

The reader refuses source that names more. Values decide what an operator does, and a reader does not know values:
`math.e ** x` is PyTorch's work if x is its tensor. So launch code never holds one, only `HeldTensor`.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from constrint.propose.allowed import (
    BUILTINS,
    IMPORTS,
    LIBDEVICE,
    MODULES,
    NAMES,
    TORCH_DTYPES,
    TORCH_MEMORY,
    VIEWS,
    words,
)
from constrint.propose.worker.tensors import poison_of

#: Operators of Python, which a tensor of PyTorch would compute.
_TWO_SIDED = words("add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift")
_ONE_SIDED = words("neg pos abs invert eq ne lt le gt ge bool int float index complex round getitem setitem iter len")
#: Whether memory that is taken is poisoned, as outputs are: what an earlier call left there is not found.
poisons = ContextVar("poisons", default=False)


class HeldTensor:
    """A tensor as launch code may hold it: it has a shape, a type and memory, and no operation.

    Args:
        tensor: The tensor.
    """

    __slots__ = ("_strides", "_tensor", "device", "dtype", "is_contiguous", "itemsize", "ndim", "shape")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: Any) -> None:
        # They are asked for once, so that a timed call does not wait for a watched tensor's answers.
        self._tensor, self._strides, self.shape = tensor, tensor.stride(), tensor.shape
        self.dtype, self.device, self.ndim, self.itemsize = tensor.dtype, tensor.device, tensor.ndim, tensor.itemsize
        is_contiguous = bool(tensor.is_contiguous())
        self.is_contiguous = lambda: is_contiguous

    def stride(self, dim: int | None = None) -> Any:
        """All strides, or one."""
        return self._strides if dim is None else self._strides[dim]

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or one."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """How many dimensions."""
        return int(self.ndim)

    def numel(self) -> int:
        """How many elements."""
        return int(self.shape.numel())

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.itemsize)

    def __getattr__(self, name: str) -> Any:
        if name not in VIEWS:
            raise AttributeError(f"{name} of a tensor: PyTorch may not do the work; a kernel of its own has to.")
        found = getattr(self._tensor, name)
        if not callable(found):
            return HeldTensor(found)

        def view(*arguments: Any, dtype: Any = None, device: Any = None) -> HeldTensor:
            named = {"dtype": dtype, "device": device}
            made = found(*arguments, **{key: one for key, one in named.items() if one is not None})
            return HeldTensor(_poisoned(made) if name == "new_empty" else made)

        return view

    def __repr__(self) -> str:
        return "a tensor"


def _refuse(name: str) -> Callable[..., Any]:
    def operator(self: HeldTensor, *others: Any) -> Any:
        raise TypeError(f"{name} of a tensor: PyTorch may not do the work; a kernel of its own has to.")

    return operator


for _name in (*_ONE_SIDED, *_TWO_SIDED, *(f"r{name}" for name in _TWO_SIDED)):
    setattr(HeldTensor, f"__{_name}__", _refuse(_name))


def released(value: Any) -> Any:
    """A value as PyTorch and Triton take it: the tensor itself, also in a tuple or a list."""
    if isinstance(value, HeldTensor):
        return value._tensor
    return type(value)(map(released, value)) if type(value) in (tuple, list) else value


def bound(function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a kernel by name, and the options of its launch, which are no arguments."""
    own = {name: value for name, value in named.items() if name in function.arg_names}
    known = _signature(function.fn).bind(*arguments, **own)
    known.apply_defaults()
    return dict(known.arguments), {name: value for name, value in named.items() if name not in own}


@lru_cache(maxsize=64)
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)


def blocks(grid: Any, arguments: Callable[[], Mapping[str, Any]]) -> Any:
    """The grid of a launch. A function that computes it is called here, where it is watched, and not by Triton.

    Args:
        grid: The grid, or the candidate's function of the kernel's arguments.
        arguments: The arguments by name, as launch code holds them.
    """
    return grid(arguments()) if callable(grid) else grid


def namespace() -> dict[str, Any]:
    """Globals of a candidate: the built-in functions on the list, and imports of the modules on it."""
    modules = _modules()

    def load(name: str, globals_: Any = None, locals_: Any = None, names: Any = (), level: int = 0) -> ModuleType:
        # `import a.b` asks for a, and looks for b in it; `from a import b` also finds b among all loaded modules.
        is_known = name in IMPORTS if not names else (name, *names) == (LIBDEVICE, "libdevice")
        if level or not is_known:
            raise ImportError(f"a candidate imports {', '.join(IMPORTS)} and {LIBDEVICE}.libdevice, not {name}.")
        return modules[name if names else name.partition(".")[0]]

    kept = {name: getattr(builtins, name) for name in BUILTINS}
    return {"__builtins__": {**kept, "__import__": load}}


def _modules() -> dict[str, ModuleType]:
    import math

    import torch
    import triton
    import triton.language

    own = ModuleType("torch")
    for name in TORCH_DTYPES:
        setattr(own, name, getattr(torch, name))
    for name in TORCH_MEMORY:
        setattr(own, name, _taking(getattr(torch, name)))
    # They are named by annotations alone.
    own.Tensor, own.Size, own.dtype, own.device = HeldTensor, tuple, type(torch.float32), type(torch.device("cpu"))  # type: ignore[attr-defined]
    launching = ModuleType("triton")
    for name in ("jit", "language", *NAMES["triton"]):
        setattr(launching, name, getattr(triton, name))
    extra = ModuleType(LIBDEVICE)
    extra.libdevice = import_module(MODULES["libdevice"])  # type: ignore[attr-defined]
    return {"torch": own, "triton": launching, "math": math, LIBDEVICE: extra}


def _taking(function: Any) -> Callable[..., HeldTensor]:
    """A function of PyTorch that takes memory; nothing else can be asked of it, such as to write to other memory."""
    is_empty = function.__name__.startswith("empty")

    def take(*arguments: Any, dtype: Any = None, device: Any = None) -> HeldTensor:
        made = function(*map(released, arguments), dtype=dtype, device=device)
        return HeldTensor(_poisoned(made) if is_empty else made)

    return take


def _poisoned(tensor: Any) -> Any:
    from torch.utils._python_dispatch import _disable_current_modes

    if poisons.get():
        with _disable_current_modes():
            tensor.fill_(poison_of(tensor.dtype))
    return tensor
