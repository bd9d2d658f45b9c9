"""Launches of the GEMM's kernels: the call, arguments of the epilogue, memory of split-K grids.

Nothing is checked or chosen here: `op.py` and `first_call.py` have done that. Needs torch and triton. Each kernel
states its own arguments in its `launch.py`, once for launching and for compiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import FP8_PROMOTION_INTERVAL
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch

if TYPE_CHECKING:
    from constrint.kernels.gemm.traced.text import TracedEnd

#: Blocks along the second grid dimension, on both vendors.
MAX_GRID_BATCH = 65535


@dataclass(frozen=True)
class Epilogue:
    """out = activation(alpha * A @ B + bias + beta * source), or a user's epilogue of A @ B.

    Args:
        bias: (N,), or None.
        source: (batch, M, N), any strides, or None.
        traced: A user's epilogue, for gemm.cuda alone, which replaces the activation and both factors.
        operands: Its operands besides the bias and the source, in the order of `traced.extras`.
    """

    bias: Tensor | None = None
    source: Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None
    traced: TracedEnd | None = None
    operands: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Machine:
    """Figures of the device that a launch needs.

    Args:
        sm_count: Blocks of a persistent grid.
        num_xcds: Dies with an L2 of their own.
        is_hopper: Whether fp8 sums have to be moved to fp32 registers.
        knobs: Parameters that Triton's back-end takes as options.
        gpu: The hardware model, which kernels in CUDA C++ are compiled for; None where there is none.
    """

    sm_count: int
    num_xcds: int = 1
    is_hopper: bool = False
    knobs: tuple[str, ...] = ()
    gpu: GpuModel | None = None

    @staticmethod
    def of(gpu: GpuModel) -> Machine:
        """The figures of a modelled GPU."""
        is_hopper = gpu.arch.target.startswith("sm_90")
        return Machine(gpu.device.sm_count, gpu.device.num_xcds, is_hopper, gpu.traits.compiler_knobs, gpu)


@dataclass(frozen=True)
class GemmCall:
    """One product, or a batch of them, to launch: out = epilogue(a @ b).

    Args:
        a: (batch, M, K), any strides.
        b: (batch, K, N), likewise.
        out: (batch, M, N), contiguous rows.
        machine: The device.
        epilogue: The operations on the sums before they are stored.
        precision: Precision of products of fp32 operands, in Triton's words.
        scratch: Allocates further memory of the launches.
    """

    a: Tensor
    b: Tensor
    out: Tensor
    machine: Machine
    epilogue: Epilogue
    precision: str
    scratch: Scratch = TORCH_SCRATCH

    def with_scratch(self, scratch: Scratch) -> GemmCall:
        """The same call with another source of scratch memory."""
        return replace(self, scratch=scratch)

    def parts(self) -> list[GemmCall]:
        """The call, split into several where the batch exceeds the grid's second dimension."""
        batch = self.a.shape[0]
        if batch <= MAX_GRID_BATCH:
            return [self]
        slices = [slice(start, start + MAX_GRID_BATCH) for start in range(0, batch, MAX_GRID_BATCH)]
        return [replace(self, a=self.a[s], b=self.b[s], out=self.out[s], epilogue=self._end(s)) for s in slices]

    def _end(self, products: slice) -> Epilogue:
        source = self.epilogue.source
        return self.epilogue if source is None else replace(self.epilogue, source=source[products])


def grid_arguments(call: GemmCall, config: Mapping[str, int]) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid, and the arguments that the pointer and the descriptor kernel share."""
    import triton.language as tl

    a, out, end = call.a, call.out, call.epilogue
    (batch, m, k), n = a.shape, call.b.shape[2]
    tiles = -(-m // config["tile_m"]) * -(-n // config["tile_n"])
    split = config["split_k"]
    blocks = min(tiles, call.machine.sm_count) if config["persistent"] else tiles * split
    source_strides = end.source.stride() if end.source is not None else (0, 0, 0)
    is_hopper_fp8 = call.machine.is_hopper and a.element_size() == 1 and a.dtype.is_floating_point
    arguments: dict[str, Any] = {name: config[name] for name in ("tile_m", "tile_n", "tile_k", "group_m", "split_k")}
    arguments |= {"m": m, "n": n, "k": k, "num_blocks": blocks, "batched": batch > 1}
    arguments |= {"c_ptr": out, "stride_cb": out.stride(0), "stride_cm": out.stride(1)}
    arguments |= {"bias_ptr": end.bias, "source_ptr": end.source, "alpha": float(end.alpha), "beta": float(end.beta)}
    arguments |= dict(zip(("stride_sb", "stride_sm", "stride_sn"), source_strides, strict=True))
    arguments |= {"workspace_ptr": None, "counters_ptr": None, "persistent": bool(config["persistent"])}
    arguments |= {"has_alpha": end.alpha != 1.0, "activation": end.activation, "input_precision": call.precision}
    arguments |= {
        "max_imprecise": min(FP8_PROMOTION_INTERVAL, config["tile_k"]) if is_hopper_fp8 else None,
        "acc_dtype": tl.int32 if a.dtype == torch.int8 else tl.float32,
    }
    if split > 1:
        sums = batch * tiles * split * config["tile_m"] * config["tile_n"]
        partial = torch.int32 if a.dtype == torch.int8 else torch.float32
        arguments["workspace_ptr"] = call.scratch.empty((sums,), partial, a.device)
        arguments["counters_ptr"] = call.scratch.counters(batch * tiles, a.device)
    return (blocks, batch), arguments


def compiler_options(call: GemmCall, config: Mapping[str, int]) -> dict[str, int]:
    """Options of Triton's back-end."""
    return {name: config[name] for name in ("num_warps", "num_stages", *call.machine.knobs) if name in config}


def runtime_precision(dtype: torch.dtype) -> str:
    """Precision of products of fp32 operands: tf32 where torch's setting allows it, else three tf32 passes."""
    if dtype != torch.float32 or torch.version.hip is not None:
        return "ieee"
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def modelled_precision(product: Product) -> str:
    """`runtime_precision` for a product without a device."""
    if product.dtype != "tf32":
        return "ieee"
    return "tf32x3" if product.is_three_pass else "tf32"
