"""Results of compilers, stored on disk and looked up before a kernel is compiled again.

An entry belongs to a GPU's model, a kernel, a workload, a configuration, the compilers' versions, and the state of this
package's files. Kernels from outside of the package have no entries, since nothing tells that their code has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from constrint import cache
from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select.candidate import CompiledKernel
from constrint.select.disk_key import key_of

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec
    from constrint.select.workload import Workload

#: Kind of the entries in the cache.
_KIND = "compiled"


def recall(
    gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Mapping[str, int], given: Sequence[str] = ()
) -> CompiledKernel | str | None:
    """The stored result for a configuration: the compiled kernel, or the compiler's refusal; None where none is stored.

    Args:
        gpu: The GPU compiled for.
        spec: The kernel.
        workload: The workload compiled for; sizes that do not change the compiled kernel may differ.
        config: The configuration.
        optional: Names of optional inputs that change the compiled kernel.
    """
    key = _key(gpu, spec, workload, config, given)
    data = None if key is None else cache.load(_KIND, key)
    if data is not None:
        with suppress(TypeError, ValueError):
            compiled, refusal = json.loads(data)
            return str(refusal) if compiled is None else CompiledKernel(**compiled)
    return None


def keep(
    gpu: GpuModel,
    spec: KernelSpec,
    workload: Workload,
    config: Mapping[str, int],
    found: CompiledKernel | str,
    given: Sequence[str] = (),
) -> None:
    """Store the compiled kernel of a configuration, or the compiler's refusal."""
    key = _key(gpu, spec, workload, config, given)
    if key is not None:
        told = (None, found) if isinstance(found, str) else (asdict(found), "")
        cache.store(_KIND, key, json.dumps(told).encode())


def _key(
    gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Mapping[str, int], given: Sequence[str]
) -> bytes | None:
    alike = spec.compiled_as(workload)
    asked = alike.dtype, tuple(alike.sizes.items()), tuple(sorted(alike.options.items()))
    return key_of(gpu, (spec,), *compilers(), *asked, tuple(sorted(config.items())), tuple(sorted(given)))


@lru_cache(maxsize=1)
def triton_version() -> str:
    """Triton's version without importing it; empty where it is not installed."""
    return _version("triton")


@lru_cache(maxsize=1)
def compilers() -> tuple[str, str]:
    """The versions of Triton and NVRTC without importing them; empty for what is not installed."""
    return triton_version(), _version("nvidia-cuda-nvrtc")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def compile_known(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Mapping[str, int]
) -> CompiledKernel | str:
    """The compiled kernel of a configuration, or the compiler's refusal; compiled once, then looked up.

    Raises:
        UsageError: When triton or torch is not installed.
    """
    known = recall(gpu, spec, workload, config)
    if known is None:
        try:
            known = spec.compile(gpu, workload, config)
        except UnsupportedError as error:
            known = str(error)
        keep(gpu, spec, workload, config, known)
    return known
