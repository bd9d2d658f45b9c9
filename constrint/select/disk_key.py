"""The key under which results for a GPU are stored on disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from constrint.hwmodels import GpuModel
from constrint.hwmodels.load import content_of
from constrint.select.triton_versions import triton_version

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec

_PACKAGE = f"{__name__.partition('.')[0]}."


def key_of(gpu: GpuModel, specs: Iterable[KernelSpec], *facts: object) -> bytes | None:
    """The key of a result that depends on a GPU's model, on kernels, on Triton's version, and on further facts.

    Triton's version decides which resource rules hold, and what is known of a measurement.

    Args:
        gpu: The hardware model, all of which counts.
        specs: The kernels.
        facts: Numbers, texts, and tuples of them.

    Returns:
        None where a vendor or a kernel comes from another package: nothing on disk tells that its code has changed.
    """
    specs = tuple(specs)
    if not all(home.startswith(_PACKAGE) for home in (type(gpu.maker).__module__, *(spec.home for spec in specs))):
        return None
    names = tuple(spec.full_name for spec in specs)
    return content_of(gpu) + repr((names, triton_version(), facts)).encode()
