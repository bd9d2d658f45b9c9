"""What was tuned in place, kept on disk: the record of the best trial of a call's key, for later processes.

An entry belongs to the kernel's source, its space, the GPU's model, the toolchain and the workload; whatever of these
changes, it is not found.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from constrint import cache
from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.hwmodels.load import content_of
from constrint.kernels.launch.autotune.call import Signature
from constrint.kernels.launch.autotune.call_space import CallSpec
from constrint.select.spec import Config, KernelSpec, Workload
from constrint.tune.store.record import TuningRecord, digest

#: What entries are kept as.
_KIND = "autotuned"


class Origin(NamedTuple):
    """What a tuned choice rests on beside GPU and workload: hashes of the kernel and of its space, and versions."""

    source_hash: str
    spec_hash: str
    toolchain: dict[str, str]


def origin_of(signature: Signature, spec: KernelSpec, given: Any) -> Origin:
    """The origin of what is chosen for a kernel.

    Args:
        signature: The kernel's.
        spec: Its space.
        given: What else the caller said that compiles to other code.
    """
    jitted = signature.jitted
    # Triton's key covers the functions that the kernel calls, and constants that it reads.
    source = getattr(jitted, "cache_key", None) or inspect.getsource(signature.base)
    return Origin(_hash(source), _hash(repr(_stated(spec)) + repr(given)), toolchain())


@lru_cache(maxsize=1)
def toolchain() -> dict[str, str]:
    """Versions that a measured choice depends on."""
    import torch
    import triton

    versions = {"triton": triton.__version__, "torch": str(torch.__version__)}
    found = {"cuda": torch.version.cuda, "rocm": torch.version.hip}
    return versions | {name: version for name, version in found.items() if version}


def recall(spec: KernelSpec, gpu: GpuModel, workload: Workload, origin: Origin) -> TuningRecord | None:
    """The best trial that some process has kept; None where there is none."""
    data = cache.load(_KIND, _key(spec, gpu, workload, origin))
    try:
        record = None if data is None else msgspec.json.decode(data, type=TuningRecord)
    except msgspec.DecodeError:
        return None
    return record if record is not None and _is_of(record.config, spec, gpu, workload) else None


def keep(record: TuningRecord, spec: KernelSpec, gpu: GpuModel, origin: Origin) -> None:
    """Keep the best trial of a workload."""
    cache.store(_KIND, _key(spec, gpu, record.workload, origin), msgspec.json.encode(record))


def config_of(record: TuningRecord, spec: KernelSpec) -> Config:
    """A record's configuration as the spec codes it.

    Raises:
        UsageError: For a value that its parameter does not have.
    """
    if isinstance(spec, CallSpec):
        return spec.space.stated.encoded(record.config)
    if not all(type(value) is int for value in record.config.values()):
        raise UsageError(f"{record.kernel}: the recorded configuration {record.config} is not of whole numbers.")
    return {name: int(value) for name, value in record.config.items() if value is not None}


def _is_of(config: Any, spec: KernelSpec, gpu: GpuModel, workload: Workload) -> bool:
    return {param.name for param in spec.params(gpu, workload)} == set(config)


def _key(spec: KernelSpec, gpu: GpuModel, workload: Workload, origin: Origin) -> bytes:
    asked = [spec.full_name, workload.dtype, dict(workload.sizes), dict(workload.options)]
    return content_of(gpu) + digest([asked, origin.source_hash, origin.spec_hash, origin.toolchain]).encode()


def _stated(spec: KernelSpec) -> object:
    """What a spec says: the texts of a stated space, or the file that another one is written in."""
    if isinstance(spec, CallSpec):
        space, stated = spec.space, spec.space.stated
        rules = [rule if isinstance(rule, str) else getattr(rule, "__code__", rule) for rule in stated.rules]
        texts = (space.registers, space.smem_bytes, space.operations, space.moved_bytes, space.outputs)
        return {name: tuple(domain.labels or domain) for name, domain in stated.domains.items()}, rules, texts
    file = getattr(sys.modules.get(type(spec).__module__), "__file__", None)
    return type(spec).__qualname__, Path(file).read_text(encoding="utf-8") if file else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
