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
from typing import TYPE_CHECKING

from constrint import cache
from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select.candidate import CompiledKernel
from constrint.select.disk_key import key_of
from constrint.select.triton_versions import triton_version, version_of

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec
    from constrint.select.workload import Workload

#: Kind of the entries in the cache.
_KIND = "compiled"


def recall(
    gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Mapping[str, int], optional: Sequence[str] = ()
) -> CompiledKernel | str | None:
    """The stored result for a configuration: the compiled kernel, or the compiler's refusal; None where none is stored.

    Args:
        gpu: The GPU compiled for.
        spec: The kernel.
        workload: The workload compiled for; sizes that do not change the compiled kernel may differ.
        config: The configuration.
        optional: Names of optional inputs that change the compiled kernel.
    """
    key = _key(gpu, spec, workload, config, optional)
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
    result: CompiledKernel | str,
    optional: Sequence[str] = (),
) -> None:
    """Store the compiled kernel of a configuration, or the compiler's refusal."""
    key = _key(gpu, spec, workload, config, optional)
    if key is not None:
        entry = (None, result) if isinstance(result, str) else (asdict(result), "")
        cache.store(_KIND, key, json.dumps(entry).encode())


def _key(
    gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Mapping[str, int], optional: Sequence[str]
) -> bytes | None:
    compiled_for = spec.compiled_as(workload)
    workload_key = compiled_for.dtype, tuple(compiled_for.sizes.items()), tuple(sorted(compiled_for.options.items()))
    return key_of(gpu, (spec,), *compilers(), *workload_key, tuple(sorted(config.items())), tuple(sorted(optional)))


@lru_cache(maxsize=1)
def compilers() -> tuple[str, str]:
    """The versions of Triton and NVRTC without importing them; empty texts for tools that are not installed."""
    return triton_version(), version_of("nvidia-cuda-nvrtc")


def compile_cached(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Mapping[str, int]
) -> CompiledKernel | str:
    """The compiled kernel of a configuration, or the compiler's refusal; compiled once, then looked up.

    Raises:
        UsageError: When triton or torch is not installed.
    """
    result = recall(gpu, spec, workload, config)
    if result is None:
        try:
            result = spec.compile(gpu, workload, config)
        except UnsupportedError as error:
            result = str(error)
        keep(gpu, spec, workload, config, result)
    return result
