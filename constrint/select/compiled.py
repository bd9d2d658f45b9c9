"""What compilers made of configurations: as data, and kept on disk to be looked up before a kernel is compiled again.

An entry belongs to a GPU's model, a kernel, a workload, a configuration, the compilers' versions, and the state of this
package's files. Kernels from outside have no entries: nothing tells when their code has changed.
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

#: What entries are kept as.
_KIND = "compiled"


def recall(
    gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Mapping[str, int], given: Sequence[str] = ()
) -> CompiledKernel | str | None:
    """What the compiler made of a configuration, or said when it refused; None where nobody has asked it.

    Args:
        gpu: The GPU compiled for.
        spec: The kernel.
        workload: What it was compiled for; sizes that make no difference may differ.
        config: The configuration.
        given: What else decides: names of optional inputs.
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
    """Keep what the compiler made of a configuration, or why it refused."""
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
    """What the compiler makes of a configuration, or says when it refuses; asked once, then looked up.

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
