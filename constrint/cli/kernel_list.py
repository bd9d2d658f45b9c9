"""The facts that `constrint kernels` lists.

Those of built-in kernels ship with them (`shipped.py`). Kernels of other packages, which may import a whole framework,
are asked about every GPU once for an installation, and then read from the cache on disk. The cache belongs to this
version of this package; its key has the packages that offer kernels, with the sizes and times of their files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from constrint import cache, plugins
from constrint.cli.shipped import ImplementationFacts, KernelList, OperationFacts, SizeFacts, shipped
from constrint.kernels import registry

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel
    from constrint.select import KernelSpec, Operation, Workload

#: The kind of the cache's entries, and their key where no package offers kernels.
KIND = "kernel-list"
_NO_PACKAGES = b"[]"


def all_kernels() -> KernelList:
    """The facts of all kernels; those of a list with a warning are not kept, so that the warning comes again."""
    key = None if registry.is_extended() else _key()
    if key == _NO_PACKAGES and shipped().kernels.operations:
        return shipped().kernels
    data = None if key is None else cache.load(KIND, key)
    if data is not None:
        return msgspec.json.decode(data, type=KernelList)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = _found()
    for one in told:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if key is not None and not told:
        cache.store(KIND, key, msgspec.json.encode(found))
    return found


def kernel_named(name: str) -> KernelList:
    """The facts of one operation, or of one implementation.

    Raises:
        UnknownNameError: When there is no such kernel.
    """
    facts = [one for one in shipped().kernels.operations if one.name == name.lower()]
    if facts and registry.is_as_shipped(name.lower()):
        return KernelList(shipped().kernels.makers, tuple(facts))
    return kernels_of([registry.load_kernel(name)])


def _found() -> KernelList:
    """The facts of all kernels: those of built-in operations as they ship, all others computed."""
    facts = {one.name: one for one in shipped().kernels.operations if registry.is_as_shipped(one.name)}
    names = registry.list_kernels()
    others = kernels_of([registry.load_kernel(name) for name in names if name not in facts])
    facts |= {one.name: one for one in others.operations}
    return KernelList(others.makers, tuple(facts[name] for name in names))


def kernels_of(operations: Sequence[Operation]) -> KernelList:
    """The facts of some operations."""
    from constrint.hwmodels import load_all

    gpus = load_all()
    return KernelList({gpu.name: gpu.maker.title for gpu in gpus}, tuple(_facts(one, gpus) for one in operations))


def _facts(operation: Operation, gpus: Sequence[GpuModel]) -> OperationFacts:
    from constrint.cli.question import takes

    implementations = tuple(
        ImplementationFacts(
            spec.full_name,
            operation.name,
            spec.name or spec.operation,
            spec.summary,
            tuple(spec.dtypes),
            {size.name: size.default for size in spec.sizes},
            {size.name: size.default for size in spec.options},
            tuple(gpu.name for gpu in gpus if any(takes(spec, gpu, workload) for workload in _tried(spec, gpu))),
        )
        for spec in operation.implementations
    )
    sizes, options = (tuple(map(_size, some)) for some in (operation.sizes, operation.options))
    return OperationFacts(operation.name, tuple(operation.dtypes), sizes, options, implementations)


def _size(size: Any) -> SizeFacts:
    return SizeFacts(size.name, size.default, size.meaning, size.least, size.most)


def _tried(spec: KernelSpec, gpu: GpuModel) -> Iterator[Workload]:
    """The default workload, other operand types, and each size at its minimum."""
    usual = spec.default_workload(gpu)
    yield usual
    yield from (replace(usual, dtype=dtype) for dtype in spec.dtypes)
    yield from (replace(usual, sizes={**usual.sizes, size.name: size.least}) for size in spec.sizes)


def _key() -> bytes | None:
    """The packages that offer kernels, and their files; None where they cannot be told apart from others."""
    points = [(point.name, point.value, _stamps(point.value)) for point in plugins.offered(registry.ENTRY_POINTS)]
    return None if any(stamps is None for *_, stamps in points) else msgspec.json.encode(sorted(points))


def _stamps(value: str) -> list[tuple[str, int, int]] | None:
    """Name, size and time of every Python file of an entry point's package, not imported; None where none is found."""
    top = value.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top)
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    files = [Path(str(spec.origin))] if folders is None else [f for one in folders for f in Path(one).rglob("*.py")]
    stated = [(str(file), file.stat()) for file in sorted(files) if file.is_file()]
    return [(name, status.st_size, status.st_mtime_ns) for name, status in stated]
