"""Measured winners, looked up before the model is asked: those of the user's own tuning, then those that are shipped.

An entry counts for its very workload, as long as the device code is what was measured, the space of today allows the
configuration, and the tools are those of the measurement. Otherwise the model chooses, and the reason is said once.
The tables are read once in a process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from constrint import cache
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.select.fingerprint import source_hash
from constrint.select.spec import KernelSpec, Workload
from constrint.select.toolchain import differences, toolchain, toolchain_of
from constrint.select.tuned import TunedEntry, read_tuned, tuned_path
from constrint.solve import why_not

#: The tables that come with the package.
SHIPPED = Path(__file__).parents[1] / "kernels" / "tuned"
_LOG = logging.getLogger("constrint")
Forget = TypeVar("Forget", bound=Callable[[], None])
_KEEPERS: list[Callable[[], None]] = []


class StaleTableWarning(UserWarning):
    """Given once where a measured winner is not used, since kernels or tools have changed."""


class _Table(NamedTuple):
    """The winners for one GPU by what was asked, and what tells this table from another one."""

    entries: Mapping[tuple[object, ...], Sequence[tuple[TunedEntry, bool]]]
    stamp: str


def winner(
    specs: Sequence[KernelSpec], gpu: GpuModel, workload: Workload, fixed: Mapping[str, int] | None = None
) -> TunedEntry | None:
    """The measured best configuration for a workload; None where there is none that holds today.

    Args:
        specs: The implementations that may run it.
        gpu: The model of the device.
        workload: What is asked; its options may be stated or left out where they have their defaults.
        fixed: Values that the caller has given.
    """
    found = _table(gpu.name, _place()).entries.get(_key(specs[0], workload, fixed or {}))
    if not found:
        return None
    now = toolchain()
    if not {"cuda", "rocm"} & now.keys():
        return None  # nothing can be launched from here
    by_name = {spec.full_name: spec for spec in specs}
    problems = []
    for entry, is_own in found:
        spec = by_name.get(entry.kernel)
        if spec is None:
            continue
        problem = "; ".join(differences(entry.toolchain, toolchain_of(spec, now))) or _changed(spec, entry)
        problem = problem or _invalid(spec, gpu, workload, entry)
        if not problem:
            return entry
        problems.append((problem, is_own))
    for problem, is_own in problems[:1]:
        _say_once(gpu.name, problem, is_own)
    return None


def stamp(gpu: GpuModel) -> str:
    """Tells which tables look-ups for a GPU go by: a choice that is kept on disk holds for these alone."""
    return _table(gpu.name, _place()).stamp


def reload() -> None:
    """Read the tables again when they are asked next, since they were published anew; choices are made again."""
    _table.cache_clear()
    for forget in _KEEPERS:
        forget()


def when_reloaded(forget: Forget) -> Forget:
    """Let a function be called when the tables are read again: it forgets the choices that its module keeps."""
    _KEEPERS.append(forget)
    return forget


def _place() -> str:
    return os.environ.get("CONSTRINT_CACHE", "")


@lru_cache(maxsize=64)
def _table(gpu: str, _place: str) -> _Table:
    entries: dict[tuple[object, ...], list[tuple[TunedEntry, bool]]] = {}
    stamps = []
    for folder, is_own in ((cache.user_folder(), True), (SHIPPED, False)):
        if folder is None:
            continue
        table = read_tuned(tuned_path(folder, gpu))
        if table.problem:
            warnings.warn(table.problem, StaleTableWarning, stacklevel=4)
        if table.gpu != gpu:
            continue
        stamps.append(hashlib.sha256(repr(table.entries).encode()).hexdigest()[:16])
        # Kernels of other compilers have entries of their own for one workload: the fastest that holds here counts.
        for entry in sorted(table.entries, key=lambda entry: entry.seconds):
            asked = (entry.operation, entry.dtype, _items(entry.sizes), _items(entry.options), _items(entry.fixed))
            entries.setdefault(asked, []).append((entry, is_own))
    return _Table(entries, ",".join(stamps))


def _key(spec: KernelSpec, workload: Workload, fixed: Mapping[str, int]) -> tuple[object, ...]:
    preset = {option.name: option.default for option in spec.options}
    options = {name: value for name, value in workload.options.items() if preset.get(name) != value}
    return spec.operation, workload.dtype, _items(workload.sizes), _items(options), _items(fixed)


def _items(numbers: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(numbers.items()))


def _changed(spec: KernelSpec, entry: TunedEntry) -> str:
    return "" if entry.source_hash == source_hash(spec) else f"the device code of {spec.full_name} has changed"


def _invalid(spec: KernelSpec, gpu: GpuModel, workload: Workload, entry: TunedEntry) -> str:
    """Return the rule of the space that forbids a measured configuration; empty for a valid one."""
    if not all(isinstance(value, int) for value in entry.config.values()):
        return ""  # labels of a kernel from outside: whoever launches it encodes them and checks them
    try:
        broken = why_not(spec.problem(gpu, workload), entry.config)
    except ConstrintError as error:
        return f"{spec.full_name} takes no measured configuration: {error}"
    for rule in broken:
        if rule.constraint is None or rule.constraint.kind not in ("redundant", "estimated"):
            return f"the space of {spec.full_name} has no measured configuration: {rule.text}"
    return ""


@lru_cache(maxsize=64)
def _say_once(gpu: str, problem: str, is_own: bool) -> None:
    """Say why a measured winner is not used: a warning for the user's own, a message in the log for shipped ones."""
    text = f"measured winners for {gpu} are not used, the model chooses: {problem}. `constrint tune` measures anew."
    if is_own:
        warnings.warn(text, StaleTableWarning, stacklevel=5)
    else:
        _LOG.info(text)
