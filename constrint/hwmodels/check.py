"""What types cannot say about a GPU's file: sources resolve, unknowns are declared, and the numbers agree.

Each function yields (key path, rule broken); `load.py` turns the first into a HardwareModelError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.hwmodels.schema import DTYPES, GpuModel
from constrint.hwmodels.targets import target_findings
from constrint.hwmodels.vendors.interface import Finding


def findings(raw: dict[str, Any], model: GpuModel) -> Iterator[Finding]:
    """Every broken rule of one file; `raw` is the parsed file that `model` was made from."""
    yield from _sources(raw, model)
    yield from _unknowns(raw, model)
    yield from _numbers(model)
    yield from target_findings(model)
    yield from model.maker.findings(model)


def _sources(raw: dict[str, Any], model: GpuModel) -> Iterator[Finding]:
    used: set[str] = set()
    for path, keys in _walk_sources(raw, ""):
        used |= set(keys)
        for key in keys:
            if key not in model.sources:
                yield path, f"source {key!r} is not among the keys of the top-level 'sources' block"
    for key in model.sources:
        if key not in used:
            yield f"sources.{key}", "no block names this source; remove it, or name it where its values stand"


def _walk_sources(value: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{path}.{key}" if path else key
            if key == "sources" and isinstance(inner, list):
                yield where, inner
            else:
                yield from _walk_sources(inner, where)


def _unknowns(raw: dict[str, Any], model: GpuModel) -> Iterator[Finding]:
    present: dict[str, bool] = {}
    for path, is_null in _walk_keys(raw, ""):
        present[path] = present.get(path, False) or is_null
    for path in model.maker.required_keys:
        if path not in present:
            yield (path, f"missing; {model.vendor} files state it (null, and under 'unconfirmed', when unknown)")
    declared = {entry.partition(":")[0].strip() for entry in model.unconfirmed}
    for path, is_null in present.items():
        if is_null and path not in declared:
            yield (path, "null is unknown, so it must be listed under 'unconfirmed' (leave out what does not apply)")
    for path in sorted(declared):
        if path not in present:
            yield ("unconfirmed", f"{path!r} is no key of this file; an entry starts with a key's path and a colon")


def _walk_keys(value: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Key paths of the file and whether the value is null; items of a list share the list's path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{path}.{key}" if path else key
            yield where, inner is None
            yield from _walk_keys(inner, where)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk_keys(inner, path)


def _numbers(model: GpuModel) -> Iterator[Finding]:
    sm, device = model.sm, model.device
    widest = max(sm.warp_sizes, default=0)
    if not sm.warp_sizes or list(sm.warp_sizes) != sorted(set(sm.warp_sizes)):
        yield "sm.warp_sizes", "must list sizes in increasing order"
    elif sm.max_threads_per_block < widest or sm.max_threads_per_sm < sm.max_threads_per_block:
        yield "sm.max_threads_per_sm", "must hold a block of max_threads_per_block, and that a warp"
    if sm.max_warps_per_sm * sm.warp_size != sm.max_threads_per_sm:
        yield "sm.max_threads_per_sm", "must be max_warps_per_sm times the warp size"
    if sm.max_smem_bytes_per_block + sm.smem_reserved_bytes_per_block > sm.smem_bytes_per_sm:
        yield "sm.max_smem_bytes_per_block", "with smem_reserved_bytes_per_block it exceeds smem_bytes_per_sm"
    if device.max_clock_hz and device.boost_clock_hz and device.max_clock_hz < device.boost_clock_hz:
        yield "device.max_clock_hz", "is below boost_clock_hz"
    small, large = device.max_cluster_blocks_portable, device.max_cluster_blocks_nonportable
    if small and large and small > large:
        yield "device.max_cluster_blocks_portable", "exceeds max_cluster_blocks_nonportable"
    for index, key in enumerate(model.matrix.instructions):
        if key.dtype not in model.compute.matrix_flop_per_s and key.dtype not in ("int4", "b1"):
            yield f"matrix.instructions[{index}]", f"{key.name}: compute.matrix_flop_per_s has no {key.dtype}"
        if key.kind not in model.maker.matrix_kinds:
            known = ", ".join(model.maker.matrix_kinds)
            yield f"matrix.instructions[{index}].kind", f"{key.kind!r} is none of {model.maker.title}'s: {known}"
    for dtype in model.compute.vector_flop_per_s:
        if dtype not in DTYPES[:2]:
            yield f"compute.vector_flop_per_s.{dtype}", "only fp64 and fp32 have a plain rate here"
