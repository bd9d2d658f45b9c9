"""When torch's own product is chosen before our kernels: unless ours are predicted to be faster by enough.

Who has the library is no worse off than without us. So where predictions do not tell the two apart the library is
taken, except where calls from Python take longer than the product: ours take the host less.
"""

from __future__ import annotations

from functools import lru_cache

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.library.cost import left_out_error, library_s
from constrint.kernels.gemm.library.points import PLAIN, WIDE, Kind, place_of
from constrint.kernels.gemm.library.spec import LIBRARY, inability
from constrint.kernels.gemm.product import Product
from constrint.select.first_choice import Choice

#: The share of the library's time that our kernels have to save at least.
LEAST_SHARE = 0.02
#: What a call takes the host by a plan of ours, by one that copies an operand first, and by the library: calls from
#: Python take no less, however fast the device is. `benchmarks.gemm.bench --drawn` times all: 7 to 16, 15 to 18, and 17
#: to 29 us, while torch's own calls take 9 to 22; what was picked lies between those of a quick and of a slow host.
OUR_HOST_S, COPIED_HOST_S, LIBRARY_HOST_S = 10e-6, 15e-6, 22e-6
#: The library's products that a plan asks cuBLAS for itself (`step.py`): 12 us where a plan of ours took 7 and torch's
#: own call 11, on a quick host.
DIRECT_HOST_S, DIRECT_DTYPES = 16e-6, ("bf16", "fp16")
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
    """The share that our kernels have to save: at least the median error of the library's predictions of this kind."""
    error = left_out_error(load_gpu(gpu), kind)
    return UNKNOWN_SHARE if error is None else max(LEAST_SHARE, error.median)


def library_host_s(product: Product) -> float:
    """What a call of the library takes the host."""
    is_plain = place_of(product).kind.end in (PLAIN, WIDE)
    is_direct = is_plain and product.dtype in DIRECT_DTYPES and product.batch == 1
    return DIRECT_HOST_S if is_direct else LIBRARY_HOST_S


def better(product: Product, ours: Choice, library: Choice | None) -> Choice:
    """The library, unless our choice is predicted to be faster by enough, or the host has no time for it."""
    if library is None or library.gpu is None:
        return ours
    share = least_share(library.gpu.name, place_of(product).kind)
    theirs_s, ours_s = max(library.seconds, library_host_s(product)), max(ours.seconds, OUR_HOST_S)
    return ours if ours_s <= (1 - share) * theirs_s else library
