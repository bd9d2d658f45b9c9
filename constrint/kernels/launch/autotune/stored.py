"""Measured choices by a call's key, stored on disk for later processes.

For a whole spec these are the records and the table of winners that `constrint tune` keeps; for a stated space, the
record of the best trial under the kernel's source, the texts, the GPU's model, the tools and the workload. The memory
of `choose.decide` cannot hold the latter: it stores decisions about kernels that a name finds in every process.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from constrint import cache
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import GpuModel
from constrint.hwmodels.load import content_of
from constrint.kernels.launch.autotune.call import Signature
from constrint.kernels.launch.autotune.call_space import CallSpec
from constrint.select import winners
from constrint.select.candidate import Config
from constrint.select.fingerprint import fingerprint_of
from constrint.select.spec import KernelSpec
from constrint.select.toolchain import toolchain
from constrint.select.winners import winner
from constrint.select.workload import Workload
from constrint.tune.store.record import TuningRecord, digest

#: Kind of the entries in the cache.
_KIND = "autotuned"


class Origin(NamedTuple):
    """Origin of a tuned choice besides GPU and workload: hashes of the kernel and of its space, and versions."""

    source_hash: str
    spec_hash: str
    toolchain: Mapping[str, str]


def origin_of(signature: Signature, spec: KernelSpec, compiled_in: Any) -> Origin:
    """The origin of a choice for a kernel.

    Args:
        signature: The kernel's signature.
        spec: Its space.
        compiled_in: Further arguments of the caller that change the compiled code.
    """
    if not isinstance(spec, CallSpec):
        return Origin(*fingerprint_of(spec), toolchain())
    jitted = signature.jitted
    # Triton's key covers the functions that the kernel calls, and constants that it reads.
    source = getattr(jitted, "cache_key", None) or inspect.getsource(signature.base)
    return Origin(_hash(source), _hash(repr(_stated(spec)) + repr(compiled_in)), toolchain())


def recall(spec: KernelSpec, gpu: GpuModel, workload: Workload, origin: Origin) -> Config | None:
    """The best configuration that was measured; None where there is none.

    For a whole spec that is the winner of `constrint tune` or of any process; for a stated space, the best
    one that some process has stored for the same kernel and texts.
    """
    if not isinstance(spec, CallSpec):
        entry = winner((spec,), gpu, workload)
        return None if entry is None else _codes(entry.config, spec, gpu, workload)
    data = cache.load(_KIND, _key(spec, gpu, workload, origin))
    try:
        record = None if data is None else msgspec.json.decode(data, type=TuningRecord)
    except msgspec.DecodeError:
        return None
    return None if record is None else _codes(record.config, spec, gpu, workload)


def keep(records: Sequence[TuningRecord], spec: KernelSpec, gpu: GpuModel, origin: Origin) -> None:
    """Store the records of trials, the best one first, for later processes; warn where that fails."""
    if isinstance(spec, CallSpec):
        best = records[0]
        cache.store(_KIND, _key(spec, gpu, best.workload, origin), msgspec.json.encode(best))
        return
    folder = cache.user_folder()
    if folder is None or not origin.source_hash:
        return
    from constrint.tune.store.choices import publish
    from constrint.tune.store.store import RecordStore

    try:
        with RecordStore.open() as store:
            store.add(records)
            publish(store, gpu.name, folder)
    except ConstrintError as error:
        warnings.warn(f"{spec.full_name}: what was measured is not kept: {error}", RuntimeWarning, stacklevel=2)
        return
    winners.reload()


def _codes(values: Mapping[str, Any], spec: KernelSpec, gpu: GpuModel, workload: Workload) -> Config | None:
    """Recorded values as the spec codes them; None where they are of other parameters or values."""
    params = {param.name: param.values for param in spec.params(gpu, workload)}
    try:
        codes = spec.space.stated.encoded(values) if isinstance(spec, CallSpec) else dict(values)
    except (KeyError, UsageError):
        return None
    same = params.keys() == codes.keys() and all(code in params[name] for name, code in codes.items())
    return codes if same else None


def _key(spec: KernelSpec, gpu: GpuModel, workload: Workload, origin: Origin) -> bytes:
    facts = [spec.full_name, workload.dtype, dict(workload.sizes), dict(workload.options)]
    return content_of(gpu) + digest([facts, origin.source_hash, origin.spec_hash, dict(origin.toolchain)]).encode()


def _stated(spec: CallSpec) -> object:
    """The texts of a stated space; of functions, their code."""
    space, stated = spec.space, spec.space.stated
    rules = [rule if isinstance(rule, str) else _code_of(rule) for rule in stated.rules]
    texts = (space.registers, space.smem_bytes, space.operations, space.moved_bytes, space.outputs)
    return {name: tuple(domain.labels or domain) for name, domain in stated.domains.items()}, rules, texts


def _code_of(function: Any) -> object:
    code = getattr(function, "__code__", None)
    return type(function).__name__ if code is None else (code.co_code, code.co_names, repr(code.co_consts))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
