"""From a product on a GPU to a launch: the model of the device, the configuration, and what to do without either."""

from __future__ import annotations

import warnings
from functools import lru_cache

import torch
from torch import Tensor

from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.hwmodels.detect import describe_torch_device
from constrint.kernels.gemm.alignment import rows_of, settled
from constrint.kernels.gemm.choose import Request, choose
from constrint.kernels.gemm.launch import Epilogue, Machine, input_precision, is_k_major, launch
from constrint.kernels.gemm.pack import copies_needed
from constrint.kernels.gemm.reference import DTYPE_NAMES, gemm_reference
from constrint.kernels.gemm.triton_versions import caution, is_verified
from constrint.select.spec import Config

#: For a GPU without a model: at most 24 KiB of shared memory and few registers, even where tl.dot becomes plain FMA.
CONSERVATIVE: Config = {
    "tile_m": 64,
    "tile_n": 32,
    "tile_k": 32,
    "num_warps": 4,
    "num_stages": 2,
    "split_k": 1,
    "persistent": 0,
    "group_m": 8,
}


def run_on_gpu(
    a: Tensor,  # (batch, M, K)
    b: Tensor,  # (batch, K, N)
    bias: Tensor | None,  # (N,)
    c: Tensor | None,  # (batch, M, N)
    alpha: float,
    beta: float,
    activation: str | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """Choose a configuration and launch it; products without a kernel run as plain PyTorch on the device."""
    (batch, m, k), n = a.shape, b.shape[2]
    if not batch * m * n or not k or a.dtype not in DTYPE_NAMES or out_dtype == torch.float64:
        return gemm_reference(a, b, bias, c, alpha=alpha, beta=beta, activation=activation, out_dtype=out_dtype)
    a, b = settled(a), settled(b)
    gpu, machine = _machine(a.device.index)
    source = c if beta != 0.0 else None
    config = _config(gpu, a, b, bias, source, out_dtype)
    if config is None:
        return gemm_reference(a, b, bias, c, alpha=alpha, beta=beta, activation=activation, out_dtype=out_dtype)
    out = torch.empty((batch, m, n), dtype=out_dtype, device=a.device)
    epilogue = Epilogue(bias, source, alpha, beta, activation)
    from triton.runtime.errors import OutOfResources

    try:
        launch(a, b, out, config, machine, epilogue)
    except OutOfResources as error:
        # The rules hold for the versions of Triton they are checked with; another one may take more.
        _warn_once(f"matmul: {dict(config)} does not fit after all ({error}); a conservative configuration is used.")
        launch(a, b, out, CONSERVATIVE, machine, epilogue)
    return out


def _config(
    gpu: GpuModel | None, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, out_dtype: torch.dtype
) -> Config | None:
    """The first choice; None where the GPU has no matrix instruction for the dtype."""
    if gpu is None:
        return CONSERVATIVE
    try:
        return choose(gpu.name, request_of(a, b, bias, source, out_dtype))
    except InfeasibleError:
        return CONSERVATIVE
    except UnsupportedError as error:
        _warn_once(f"{error} matmul runs as plain PyTorch there.")
        return None


def request_of(a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, out_dtype: torch.dtype) -> Request:
    """What the model has to know about these operands."""
    dtype = DTYPE_NAMES[a.dtype]
    copies, rows_a, rows_b = copies_needed(a, b), rows_of(a), rows_of(b)
    return Request(
        batch=a.shape[0],
        m=a.shape[1],
        n=b.shape[2],
        k=a.shape[2],
        dtype=dtype,
        width_a=rows_a.width_bytes,
        width_b=rows_b.width_bytes,
        step_a=rows_a.step_bytes,
        step_b=rows_b.step_bytes,
        packed_bytes=sum(t[0].numel() * t.element_size() for name, t in (("a", a), ("b", b)) if name in copies),
        # A copy of an expanded operand would be larger than what it is copied from.
        has_descriptors=0 not in (*a.stride(), *b.stride()),
        is_a_k_major=is_k_major(a, 2),
        is_b_k_major=is_k_major(b, 1),
        is_a_copied="a" in copies,
        is_b_copied="b" in copies,
        is_a_turned=copies.get("a", False),
        is_b_turned=copies.get("b", False),
        output_bytes=out_dtype.itemsize,
        has_bias=bias is not None,
        has_source=source is not None,
        is_three_pass=input_precision(a.dtype) == "tf32x3",
        allows_producer=_allows_producer(),
    )


@lru_cache(maxsize=1)
def _allows_producer() -> bool:
    """Whether Triton is of a verified version: Gluon's interface moves between versions."""
    import triton

    return is_verified(triton.__version__)


@lru_cache(maxsize=64)
def _machine(index: int) -> tuple[GpuModel | None, Machine]:
    """The model of a device, if there is one, and the figures that a launch needs."""
    import triton

    other_version = caution(triton.__version__)
    if other_version:
        _warn_once(other_version)
    found = describe_torch_device(index)
    sm_count = found.sm_count or 1
    is_hopper = found.target == "sm_90"
    if found.model is None:
        _warn_once(
            f"constrint has no hardware model of {found.name} ({found.target}): matmul uses a conservative "
            "configuration there. Add a model (see CONTRIBUTING.md) for a chosen one."
        )
        return None, Machine(sm_count, 1, is_hopper)
    gpu = load_gpu(found.model)
    return gpu, Machine(sm_count, gpu.device.num_xcds, is_hopper)


@lru_cache(maxsize=256)
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
