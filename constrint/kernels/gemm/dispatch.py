"""From a product on a GPU to a launch: the model of the device, the configuration, and what to do without either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import first_choice
from constrint.kernels.gemm.implementations import AUTO, LIBRARY_ALONE, OTHERS_ASKED, kernel_names
from constrint.kernels.gemm.launch import Call, Epilogue, Machine, runtime_precision
from constrint.kernels.gemm.library.launch import refusal_of_call
from constrint.kernels.gemm.library.spec import LIBRARY, inability
from constrint.kernels.gemm.operands import product_of, with_aligned_stride
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.reference import DTYPE_NAMES, gemm_reference
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.kernels.launch.device import describe, gpu_of, warn_once
from constrint.kernels.launch.look import look
from constrint.kernels.launch.policy import Start, launch_what_fits
from constrint.select.first_choice import Choice, Refusal
from constrint.select.spec import Config, Launch
from constrint.tune.triton_versions import caution

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
    implementation: str = AUTO,
) -> Tensor:
    """Choose a configuration and launch it; products without a kernel run as plain PyTorch on the device."""
    out = torch.empty((a.shape[0], a.shape[1], b.shape[2]), dtype=out_dtype, device=a.device)
    prepared = prepare(a, b, bias, c, alpha, beta, activation, out, implementation)
    if prepared is None:
        return gemm_reference(a, b, bias, c, alpha, beta, activation, out_dtype)
    product, choice, call = prepared

    def start(chosen: Choice, /, *, may_spill: bool) -> None:
        key = chosen.kernel, tuple(chosen.config.items()), product, activation
        if key not in _CLEAN and not may_spill and a.is_cuda:
            look(launches_of(chosen.kernel, call, chosen.config))
            _CLEAN.add(key)
        launch(chosen.kernel, call, chosen.config)

    if implementation == LIBRARY_ALONE:
        start(choice, may_spill=True)
    else:
        fitting(product, choice, start, given=(activation,) if activation else ())
    return out


#: Kernels that were looked at and do not spill, by everything that they are compiled for.
_CLEAN: set[tuple[object, ...]] = set()


def prepare(
    a: Tensor,  # (batch, M, K)
    b: Tensor,  # (batch, K, N)
    bias: Tensor | None,  # (N,)
    c: Tensor | None,  # (batch, M, N)
    alpha: float,
    beta: float,
    activation: str | None,
    out: Tensor,  # (batch, M, N)
    implementation: str = AUTO,
    *,
    chosen_for_rows: int | None = None,
) -> tuple[Product, Choice, Call] | None:
    """The product, the first choice for it, and the call that a kernel is to launch; None where no kernel does.

    With `chosen_for_rows` the choice is one for a product of so many rows whose kernel serves any number of them.

    Raises:
        UnsupportedError: When one implementation is asked for that does not compute the product.
    """
    (batch, m, k), n = a.shape, b.shape[2]
    if not batch * m * n or not k or a.dtype not in DTYPE_NAMES or out.dtype == torch.float64:
        return None
    a, b = with_aligned_stride(a), with_aligned_stride(b)
    gpu, machine = machine_of(a.device)
    source = c if beta != 0.0 else None
    precision = runtime_precision(a.dtype)
    product = product_of(
        a,
        b,
        bias,
        source,
        out.dtype,
        is_three_pass=precision == "tf32x3",
        has_nvrtc=has_nvrtc(),
        no_library=OTHERS_ASKED.get(implementation)
        or refusal_of_call(a, b, bias, source, alpha, activation, out.dtype),
    )
    call = Call(a, b, out, machine, Epilogue(bias, source, alpha, beta, activation), precision)
    if implementation == LIBRARY_ALONE:
        return product, library_alone(gpu, product), call
    if implementation in kernel_names():
        return product, kernel_alone(gpu, product, implementation), call
    if chosen_for_rows is not None:
        product = replace(product, m=chosen_for_rows)
    choice = choose(gpu, product)
    if chosen_for_rows is not None and choice is not None:
        choice = _for_any_rows(product, choice)
    if choice is None:
        return None
    return product, choice, call


def kernel_alone(gpu: GpuModel | None, product: Product, name: str) -> Choice:
    """One of our kernels, by its name.

    Raises:
        UnsupportedError: When it does not compute the product, or there is no model of the device.
    """
    if gpu is None:
        raise UnsupportedError(f"matmul: implementation={name!r} needs a model of the device.")
    return first_choice.choose_of(gpu, product, first_choice.gemm_spec(f"gemm.{name}"))


def library_alone(gpu: GpuModel | None, product: Product) -> Choice:
    """Torch's own product, measured or not.

    Raises:
        UnsupportedError: When it does not compute the product.
    """
    reason = product.no_library or inability(product)
    if reason:
        raise UnsupportedError(f"matmul: implementation='{LIBRARY_ALONE}' does not compute this product: {reason}.")
    return Choice(gpu, LIBRARY, {}, workload=product.workload)


#: How far down the choices one of them is looked for.
NEAR = 32


def _for_any_rows(product: Product, choice: Choice) -> Choice:
    """The first of the next choices whose kernel serves any number of rows; the choice itself where there is none."""
    if choice.gpu is None or first_choice.gemm_spec(choice.kernel).serves_any_rows:
        return choice
    others = first_choice.best(choice.gpu, product, NEAR)
    return next((other for other in others if first_choice.gemm_spec(other.kernel).serves_any_rows), choice)


def fitting(product: Product, choice: Choice, launch: Start, given: Sequence[str] = ()) -> Choice:
    """Launch a choice; where it spills or the device refuses it, the next ones, at last what fits anywhere."""

    def refuse(refused: Choice, refusal: Refusal) -> Choice:
        try:
            return first_choice.refuse(product, refused, refusal)
        except InfeasibleError:
            if refused.config == CONSERVATIVE:
                raise
            return conservative(refused.gpu)

    return launch_what_fits(choice, launch, refuse, given)


def choose(gpu: GpuModel | None, product: Product) -> Choice | None:
    """The first choice; None where the GPU has no matrix instruction for the dtype."""
    if gpu is None:
        return conservative(None)
    try:
        return first_choice.choose(gpu, product)
    except InfeasibleError:
        return conservative(gpu)
    except UnsupportedError as error:
        warn_once(f"{error} matmul runs as plain PyTorch there.")
        return None


def conservative(gpu: GpuModel | None) -> Choice:
    """What fits anywhere."""
    return Choice(gpu, "gemm.pointer", CONSERVATIVE)


@lru_cache(maxsize=1)
def has_nvrtc() -> bool:
    """Whether kernels in CUDA C++ can be compiled here."""
    return bool(nvrtc_here())


@lru_cache(maxsize=64)
def machine_of(device: torch.device) -> tuple[GpuModel | None, Machine]:
    """The model of a device, if there is one, and the figures that a launch needs."""
    import triton

    other_version = caution(triton.__version__)
    if other_version:
        warn_once(other_version)
    gpu = gpu_of(device)
    if gpu is not None:
        return gpu, Machine.of(gpu)
    seen = describe(device)
    return None, Machine(seen.sm_count or 1, 1, seen.target == "sm_90")


def launches_of(kernel: str, call: Call, config: Mapping[str, int]) -> Sequence[Launch]:
    """The launches of a call by one of the operation's kernels, by its full name.

    Raises:
        UsageError: For what the kernel is not for.
    """
    return first_choice.gemm_spec(kernel).call_launches(call, config)


def launch(kernel: str, call: Call, config: Mapping[str, int]) -> None:
    """Enqueue a call on the current stream with one of the operation's kernels, by its full name.

    Raises:
        UsageError: For what the kernel is not for.
        triton.runtime.errors.OutOfResources: When the configuration does not fit the device.
    """
    for part in launches_of(kernel, call, config):
        part.run()
