"""Calls of torch's own products with the accuracy that `matmul` promises. Needs torch.

torch lets libraries add the parts of a 16-bit product that is split along K in 16 bits, and fp16 operands be
accumulated in fp16 where a user says so. `matmul` accumulates in 32 bits, so both are switched off while the library is
called, and then restored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from constrint.errors import CompileError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.launch import Epilogue, GemmCall
from constrint.kernels.gemm.library.fused import FusedLaunch, takes_bias, takes_source
from constrint.kernels.gemm.reference import ACTIVATIONS, default_out_dtype
from constrint.kernels.launch.plan.matmul_library import has_matmul
from constrint.select.candidate import CompiledKernel

#: Switches of torch that let a type's sums be narrower than 32 bits.
SWITCHES = {
    torch.float16: ("fp16_reduced_precision_reduction", "fp16_accumulation"),
    torch.bfloat16: ("bf16_reduced_precision_reduction",),
}


class NarrowSums:
    """Switches of torch's that are off while any thread is inside, and restored afterwards.

    Args:
        names: Names of the switches; those that this torch lacks are left out.
    """

    def __init__(self, names: Sequence[str]) -> None:
        getters: Any = [getattr(torch._C, f"_get_cublas_allow_{name}", None) for name in names]
        setters: Any = [getattr(torch._C, f"_set_cublas_allow_{name}", None) for name in names]
        self._switches = [pair for pair in zip(getters, setters, strict=True) if None not in pair]
        self._lock = threading.Lock()
        self._inside = 0
        self._on: list[tuple[Any, tuple[bool, ...]]] = []

    def enter(self) -> None:
        """Switch them off."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                for get, switch in self._switches:
                    # Newer versions have a second figure, which does not change.
                    before = get()
                    before = before if isinstance(before, tuple) else (before,)
                    if before[0]:
                        self._on.append((switch, before))
                        switch(False, *before[1:])

    def leave(self) -> None:
        """Switch them back, if nobody else is inside."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for switch, before in self._on:
                    switch(*before)
                self._on.clear()


#: Switches by the operands' dtype; other dtypes have none.
NARROW_SUMS = {dtype: NarrowSums(names) for dtype, names in SWITCHES.items()}


@contextmanager
def exact_sums(dtype: torch.dtype) -> Iterator[None]:
    """Sums of products of this type are of 32 bits inside."""
    narrow = NARROW_SUMS.get(dtype)
    if narrow is None:
        yield
        return
    narrow.enter()
    try:
        yield
    finally:
        narrow.leave()


@contextmanager
def _multiplied_in(precision: str) -> Iterator[None]:
    """Multiply fp32 operands in tf32 inside where the call says so, whatever torch's setting is."""
    before = torch.get_float32_matmul_precision()
    if precision != "tf32" or before != "highest":
        yield
        return
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Ask:
    """Options of a call of the library, besides its operands.

    Args:
        dtype: Type of the operands.
        kind: Type of the result.
        is_batched: Whether the operands have three axes; else two.
        end: "plain", "bias" or "source".
        alpha, beta: Factors, where a matrix is added.
        activation: Name of an activation that commutes with rounding, or None.
    """

    dtype: torch.dtype
    kind: torch.dtype
    is_batched: bool
    end: str
    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None


def function_of(ask: Ask, device: torch.device | None = None) -> Callable[..., Tensor]:
    """Torch's operator as a function of (a, b, bias, c), and perhaps of `out`; sums may be narrow.

    The device is the current GPU if left out.
    """
    if ask.activation is not None:
        linear, activate = function_of(replace(ask, activation=None), device), ACTIVATIONS[ask.activation]
        return lambda a, b, bias, c, **out: activate(linear(a, b, bias, c, **out), inplace=True)  # type: ignore[call-arg]
    if ask.dtype == torch.int8:
        return lambda a, b, bias, c, **out: torch._int_mm(a, b, **out)
    if ask.dtype.itemsize == 1:
        one = _one(device or torch.device("cuda", torch.cuda.current_device()))
        scaled: Any = partial(torch._scaled_mm, scale_a=one, scale_b=one, out_dtype=ask.kind)
        return lambda a, b, bias, c, **out: scaled(a, b, **out)
    multiply: Any = torch.bmm if ask.is_batched else torch.mm
    if ask.end == "bias":
        return lambda a, b, bias, c, **out: torch.addmm(bias, a, b, **out)
    if ask.end == "source":
        add: Any = torch.baddbmm if ask.is_batched else torch.addmm
        factors = {"alpha": ask.alpha, "beta": ask.beta}
        return lambda a, b, bias, c, **out: add(c, a, b, **factors, **out)
    if ask.kind != default_out_dtype(ask.dtype):
        return lambda a, b, bias, c, **out: multiply(a, b, out_dtype=ask.kind, **out)
    return lambda a, b, bias, c, **out: multiply(a, b, **out)


@lru_cache(maxsize=64)
def _one(device: torch.device) -> Tensor:
    """The scale of operands that are not scaled, once it is there for every stream."""
    one = torch.ones((), device=device)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return one


_SCALED: set[torch.device] = set()


def has_scale(device: torch.device) -> bool:
    """Whether the scale exists; it is not created while a graph is captured, since the graph would own its memory."""
    if device not in _SCALED and not is_captured(device):
        _one(device)
        _SCALED.add(device)
    return device in _SCALED


def is_captured(device: torch.device) -> bool:
    """Whether launches on a device are now captured into a graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def ask_of(call: GemmCall) -> Ask:
    """The options of the library for a call."""
    end = call.epilogue
    added = "source" if end.source is not None else "bias" if end.bias is not None else "plain"
    factors = float(end.alpha), float(end.beta)
    return Ask(call.a.dtype, call.out.dtype, call.a.shape[0] > 1, added, *factors, end.activation)


@dataclass(frozen=True)
class LibraryLaunch:
    """A product by torch's operator, or with an epilogue by cuBLASLt; there is nothing to compile."""

    call: GemmCall

    def run(self) -> None:
        """Enqueue it on the current stream.

        Raises:
            CompileError: When the library does not take the product after all.
        """
        if self.call.epilogue != Epilogue() and has_matmul():
            FusedLaunch(self.call).run()
            return
        call, ask = self.call, ask_of(self.call)
        a, b, out, source = call.a, call.b, call.out, call.epilogue.source
        if not ask.is_batched:
            a, b, out, source = a[0], b[0], out[0], None if source is None else source[0]
        try:
            with exact_sums(ask.dtype), _multiplied_in(call.precision):
                function_of(ask, a.device)(a, b, call.epilogue.bias, source, out=out)
        except torch.cuda.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            raise CompileError(f"torch's own product refuses {ask}: {str(error).splitlines()[0]}") from error

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """There is nothing to compile.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("gemm.library: the library is compiled already, and does not say what it launches.")


def refusal_of_call(a: Tensor, b: Tensor, kind: torch.dtype | None = None) -> str:
    """Reason why torch's operators do not multiply (batch, M, K) by (batch, K, N), besides sizes; empty if they do.

    Args:
        a, b: The operands.
        kind: Type of the result, if not their usual one: no pointwise kernel changes it.
    """
    if kind is not None and not _gives(a.dtype, kind):
        return "torch's operators do not give this type of result"
    if any(1 not in t.stride()[-2:] for t in (a, b)):
        return "torch copies operands that are contiguous along no axis"
    if torch.are_deterministic_algorithms_enabled():
        return "deterministic algorithms are asked for, and libraries need a setting of the process for them"
    is_fp8 = a.dtype.itemsize == 1 and a.dtype.is_floating_point
    if is_fp8 and not has_scale(a.device):
        return "scales of 8-bit operands are not made while a graph is captured"
    return ""


def _gives(dtype: torch.dtype, kind: torch.dtype) -> bool:
    """Whether torch's operators give results of a type for operands of `dtype`."""
    is_wide = kind == torch.float32 and dtype in SWITCHES
    return kind == default_out_dtype(dtype) or is_wide


def refusal_of_end(
    dtype: torch.dtype, bias: Tensor | None, source: Tensor | None, alpha: float, kind: torch.dtype, batch: int
) -> str:
    """Reason why the library does not take the epilogue of a product of `dtype` into `kind`; empty if it does.

    An activation does not count.
    """
    if has_matmul() and dtype.is_floating_point and dtype.itemsize > 1:
        if bias is not None and not takes_bias(bias, kind, dtype):
            return "the library adds a row of the type of the operands and the result"
        if source is not None and not takes_source(source, kind, dtype):
            return "the library adds a matrix by rows of the type of the operands and the result"
        return ""
    if bias is not None and source is not None:
        return "torch's operators add a row or a matrix, not both"
    if bias is not None and batch > 1:
        return "torch's batched operators add no row"
    if alpha != 1.0 and source is None:
        return "torch's operators have a factor where a matrix is added alone"
    if any(added is not None and added.dtype != dtype for added in (bias, source)):
        return "torch's operators add what has the type of the operands"
    return ""
