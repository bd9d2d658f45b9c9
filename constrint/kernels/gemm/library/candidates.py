"""The library's product as a candidate: with its own epilogue, or followed by one pointwise kernel. No torch.

Where predictions do not separate the library and our kernels the library runs, so that nobody is worse off with this
package than without; except where a call from Python takes longer than the product, since our calls take the host less.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from constrint.choose.decision import ErrorBand, Evidence, Program, Step
from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import implementations
from constrint.kernels.gemm.library.cost import (
    Error,
    Kind,
    ended_s,
    is_published,
    left_out_error,
    origin_of,
    place_of,
    table_name,
)
from constrint.kernels.gemm.library.estimate import band_of, estimated_s
from constrint.kernels.gemm.library.spec import LIBRARY, library_refusal, takes_bias
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.select.cost import launch_s

#: Share of the library's time that a kernel of ours has to save at least.
LEAST_SHARE = 0.02
#: The same at least where the error of the library's predictions is not known, or others measured the library and
#: nobody our kernels.
UNKNOWN_SHARE = 0.2
#: Host time of a call by a plan of ours, by one of two launches (an operand is copied first, or a pointwise kernel
#: follows), and by the library: calls from Python take no less, however fast the device is. `benchmarks.gemm.bench
#: --drawn` measured 7 to 16, 15 to 18, and 17 to 29 us, torch's own calls 9 to 22; these lie between those of a quick
#: and of a slow host.
OUR_HOST_S, COPIED_HOST_S, LIBRARY_HOST_S = 10e-6, 15e-6, 22e-6
#: Host time of products that a plan calls cuBLASLt for: 12 us on an H100's host, as torch's own product, where a plan
#: of ours took 7.4.
DIRECT_HOST_S, DIRECT_DTYPES = 16e-6, ("bf16", "fp16", "tf32", "fp8", "int8")
#: Types of products that a pointwise kernel follows.
COMPOSED_DTYPES = ("bf16", "fp16", "tf32")
#: The library, then a pointwise kernel.
COMPOSED = f"gemm.{implementations.COMPOSED}"
#: Share of a launch that a kernel takes which follows another one on the stream, beside its bytes, and share of the
#: data sheet's bandwidth that it reaches: the L2 still has a part of the product. On an H100 products of 4 to 50 MB
#: took 2.7 to 33.6 us longer with the kernel than without.
FOLLOWING_SHARE, PASS_SHARE = 0.2, 0.95
#: Products of one launch of the pointwise kernel, at most.
MAX_BATCH = 65535


def library_program(gpu: GpuModel, product: Product) -> Program | None:
    """The library's product with its whole epilogue; None where it does not run, or nothing near it was measured."""
    if library_refusal(gpu, product):
        return None
    seconds = ended_s(gpu, product)
    if seconds is None:
        return None
    return _program(gpu, product, Step("product", LIBRARY, workload=product.workload, seconds=seconds))


def estimated(gpu: GpuModel, product: Product) -> Program | None:
    """The library's product, with a pointwise kernel where one is needed, by an estimate; None where none runs it.

    No choice rests on it: it is tried beside our kernels.
    """
    if not library_refusal(gpu, product):
        return _estimated(gpu, product)
    if _no_composition(gpu, product):
        return None
    library = _estimated(gpu, begun(product))
    return None if library is None else replace(_composed(gpu, product, library), note=library.note)


def _estimated(gpu: GpuModel, product: Product) -> Program | None:
    seconds = estimated_s(gpu, product)
    if seconds is None:
        return None
    step = Step("product", LIBRARY, workload=product.workload, seconds=seconds)
    note = "estimated from the roofline, as nothing near it was measured: it runs where a trial finds it faster"
    return Program(LIBRARY, (step,), note=note, band=band_of(gpu, product))


def unmeasured_library(gpu: GpuModel | None, product: Product) -> Program:
    """The library's product for a caller who names it, predicted where it was measured.

    Raises:
        UnsupportedError: When one call of the library does not compute the product; says why.
    """
    reason = library_refusal(gpu, product)
    if reason:
        raise UnsupportedError(f"matmul: kernel='library' does not compute this product: {reason}.")
    seconds = None if gpu is None else ended_s(gpu, product)
    step = Step("product", LIBRARY, workload=product.workload, seconds=seconds)
    return Program(LIBRARY, (step,)) if gpu is None or seconds is None else _program(gpu, product, step)


def _program(gpu: GpuModel, product: Product, step: Step) -> Program:
    """A program that begins with the library's product."""
    error = error_of(gpu.name, place_of(product).kind)
    table = table_name(gpu.name)
    band = None if error is None else ErrorBand(error.median, error.nine_in_ten, f"{table}, each product left out once")
    if not is_published(gpu.name):
        return Program(LIBRARY, (step,), note="interpolated between measured products", table=table, band=band)
    step = replace(step, evidence=Evidence.ELSEWHERE)
    note = f"{Evidence.ELSEWHERE.value}, interpolated: {origin_of(gpu.name)}"
    return Program(LIBRARY, (step,), note=note, table=table, band=band)


def composition(gpu: GpuModel, product: Product) -> Program | None:
    """The library's product into the result, then a kernel in place for the part of the epilogue that is left.

    None where the library takes the whole product, no plan can make the call, or nothing near it was measured.
    """
    if not library_refusal(gpu, product) or _no_composition(gpu, product):
        return None
    library = library_program(gpu, begun(product))
    return None if library is None else _composed(gpu, product, library)


def unmeasured_composition(gpu: GpuModel | None, product: Product) -> Program:
    """The composition for a caller who names it, predicted where the library was measured.

    Raises:
        UnsupportedError: When the composition does not compute the product; says why.
    """
    reason = _no_composition(gpu, product)
    if not reason and not library_refusal(gpu, product):
        reason = "the library applies its whole epilogue (kernel='library')"
    if reason:
        raise UnsupportedError(
            f"matmul: kernel={COMPOSED.partition('.')[2]!r} does not compute this product: {reason}."
        )
    return _composed(gpu, product, unmeasured_library(gpu, begun(product)))


def _no_composition(gpu: GpuModel | None, product: Product) -> str:
    """Reason why a plan cannot call the library for the beginning of a product; empty if it can."""
    if product.no_library:
        return product.no_library
    if gpu is not None and gpu.traits.product_library != "cuBLAS":
        return "plans call cuBLAS, and this GPU has another library"
    if product.dtype not in COMPOSED_DTYPES:
        return "a pointwise kernel follows products of 16-bit and 32-bit operands alone"
    if product.batch > MAX_BATCH:
        return f"the pointwise kernel takes at most {MAX_BATCH} products"
    return library_refusal(gpu, begun(product))


def _composed(gpu: GpuModel | None, product: Product, library: Program) -> Program:
    seconds = None if gpu is None else pointwise_s(gpu, product)
    pointwise = Step("pointwise", "gemm.pointwise", workload=product.workload, seconds=seconds)
    note = "the product interpolated between measured ones, the pointwise kernel by its bytes"
    return replace(library, name=COMPOSED, steps=(*library.steps, pointwise), note=note)


def reason_for(library: Program, ours: Program | None) -> str:
    """Reason why a program of the library's is preferred to our best kernel."""
    if ours is None:
        return "no kernel of ours computes the product"
    return f"predictions do not tell it from {ours.name} clearly enough, so the library runs"


def begun(product: Product) -> Product:
    """The product that the library begins a composition with: with its linear epilogue if it takes it, else plain."""
    linear = replace(product, activation="", has_bias=product.has_bias and takes_bias(product))
    if not product.no_library_end:
        return linear
    return replace(linear, has_bias=False, has_source=False, no_library_end="")


def pointwise_s(gpu: GpuModel, product: Product) -> float:
    """Time of the pointwise kernel on the product in place: a launch, and its bytes at the rate of copies."""
    is_source_left = product.has_source and bool(product.no_library_end)
    elements = 2 * product.output_bytes + OUTPUT_BYTES[product.dtype] * is_source_left
    moved = product.batch * product.m * product.n * elements
    return FOLLOWING_SHARE * launch_s(gpu) + moved / (PASS_SHARE * gpu.memory.dram.bandwidth_bytes_per_s)


@lru_cache(maxsize=256)
def error_of(gpu: str, kind: Kind) -> Error | None:
    """Error of the library's predictions of a kind; None where it is not known."""
    return left_out_error(load_gpu(gpu), kind)


def least_share(gpu: str, kind: Kind) -> float:
    """Share of its time that has to be saved to prefer a program to another: the median error of predictions."""
    error = error_of(gpu, kind)
    if error is None:
        return UNKNOWN_SHARE
    return max(UNKNOWN_SHARE if is_published(gpu) else LEAST_SHARE, error.median)


def library_host_s(product: Product) -> float:
    """Host time of a call of the library."""
    return DIRECT_HOST_S if product.dtype in DIRECT_DTYPES else LIBRARY_HOST_S


def beats_library(gpu: GpuModel, product: Product, ours: Program, library: Program) -> bool:
    """Whether our kernel runs rather than a program of the library's, by device and host time.

    By the device's alone it takes no longer: where the device has other work, nobody waits for the host.
    """
    if (ours.seconds or 0.0) > (library.seconds or 0.0):
        return False
    ours_s = max(ours.seconds or 0.0, OUR_HOST_S)
    is_composed = library.name == COMPOSED
    host_s = DIRECT_HOST_S + COPIED_HOST_S - OUR_HOST_S if is_composed else library_host_s(product)
    theirs_s = max(library.seconds or 0.0, host_s)
    kind = place_of(begun(product) if is_composed else product).kind
    return ours_s <= (1 - least_share(gpu.name, kind)) * theirs_s
