"""When torch's own product is chosen before our kernels: where its predicted time is less by more than a call costs."""

from __future__ import annotations

from functools import lru_cache

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.library.cost import left_out_error, library_s
from constrint.kernels.gemm.library.points import Kind, place_of
from constrint.kernels.gemm.library.spec import LIBRARY, inability
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.registry import load_spec
from constrint.select.first_choice import Choice

#: The share of our time that it has to save.
LEAST_SHARE = 0.02
#: What a call takes the host by a plan of ours, and by the library: calls from Python take no less, however fast the
#: device is. `benchmarks.bench_call` says the one, `benchmarks.gemm.bench --drawn` the other (17 to 49 us).
OUR_HOST_S, LIBRARY_HOST_S = 10e-6, 30e-6
#: The share where the error of its kind is not known.
UNKNOWN_SHARE = 0.2


def library_choice(gpu: GpuModel, product: Product) -> Choice | None:
    """Torch's own product as a choice; None where it does not run, or was not measured: where its spec refuses it."""
    if product.no_library or inability(product):
        return None
    seconds = library_s(gpu, product)
    return None if seconds is None else Choice(gpu, LIBRARY, {}, seconds, product.workload)


@lru_cache(maxsize=256)
def least_share(gpu: str, kind: Kind) -> float:
    """The share that the library has to save: at least the median error of predictions of its kind."""
    error = left_out_error(load_gpu(gpu), kind)
    return UNKNOWN_SHARE if error is None else max(LEAST_SHARE, error.median)


def optimism_of(kernel: str) -> float:
    """How many times as long one of our kernels takes as predicted: a measured time is compared with that."""
    return spec.optimism if isinstance(spec := load_spec(kernel), GemmSpec) else 1.0


def better(product: Product, ours: Choice, library: Choice | None) -> Choice:
    """Our choice, unless the library is predicted to be faster by enough."""
    if library is None or library.gpu is None:
        return ours
    expected_s = ours.seconds * (1.0 if ours.is_measured else optimism_of(ours.kernel))
    share = least_share(library.gpu.name, place_of(product).kind)
    theirs_s = max(library.seconds, LIBRARY_HOST_S)
    return ours if theirs_s > max(expected_s, OUR_HOST_S) * (1 - share) else library
