"""Workloads from a YAML file: a list of kernels, types and sizes.

    - {kernel: gemm, dtype: bf16, m: [16, 4096], n: 4096, k: 4096}
    - {kernel: lstm, heads: 12, head_dim: 64}

A list of values stands for each of them, several lists for all combinations. What is left out has its default.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from constrint.cli.asked.kernel_options import kernel_file_errors
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel
from constrint.select import Operation, Workload

#: The largest file, and the most workloads that it may name.
MAX_BYTES, MAX_WORKLOADS = 1 << 20, 10_000
#: Keys that are no sizes.
KERNEL, DTYPE = "kernel", "dtype"


def read_workloads(path: Path, default: str, gpu: GpuModel) -> list[tuple[Operation, Workload]]:
    """The workloads of a file.

    Args:
        path: The file.
        default: The kernel that is meant where an entry names none.
        gpu: The GPU, by which default types are decided.

    Raises:
        UsageError: When it cannot be read, or an entry is no workload; names the entry.
    """
    import yaml

    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise UsageError(f"{path} has more than {MAX_BYTES} bytes: it is no list of workloads.")
        entries = yaml.safe_load(text)
    except OSError as error:
        raise UsageError(f"cannot read the workloads {path}: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} is no YAML: {reason}") from None
    if isinstance(entries, dict):
        entries = entries.get("workloads", [entries])
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} holds no list of workloads, such as `- {{kernel: gemm, m: 4096, n: 4096, k: 4096}}`.")
    found: list[tuple[Operation, Workload]] = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise UsageError(f"{path}, entry {number}: it is no mapping of sizes but {type(entry).__name__}.")
        found += _of_entry(entry, default, gpu, f"{path}, entry {number}")
        if len(found) > MAX_WORKLOADS:
            raise UsageError(f"{path}: more than {MAX_WORKLOADS} workloads; split the file.")
    return found


def of_sizes(operation: Operation, gpu: GpuModel, sizes: Mapping[str, int], dtype: str | None) -> Workload:
    """The operation's default workload with some sizes, options and the type replaced."""
    preset = operation.default_workload(gpu)
    names = {size.name for size in operation.sizes}
    given = {name: value for name, value in sizes.items() if name in names}
    options = {name: value for name, value in sizes.items() if name not in names}
    return Workload(preset.operation, {**preset.sizes, **given}, dtype or preset.dtype, {**preset.options, **options})


def _of_entry(entry: dict[Any, Any], default: str, gpu: GpuModel, where: str) -> list[tuple[Operation, Workload]]:
    name = entry.get(KERNEL, default)
    if not isinstance(name, str):
        raise UsageError(f"{where}: kernel is no name but {name!r}.")
    with kernel_file_errors(name):
        operation = load_kernel(name)
    known = [size.name for size in (*operation.sizes, *operation.options)]
    axes: dict[str, list[Any]] = {}
    for key, value in entry.items():
        if key == KERNEL:
            continue
        if key != DTYPE and key not in known:
            raise UsageError(f"{where}: {UnknownNameError('size', str(key), known)}")
        axes[key] = values = value if isinstance(value, list) else [value]
        for each in values:
            is_right = isinstance(each, str) if key == DTYPE else isinstance(each, int) and not isinstance(each, bool)
            if not is_right:
                wanted = "a type's name" if key == DTYPE else "a whole number"
                raise UsageError(f"{where}: {key} must be {wanted} or a list of them, got {each!r}.")
    found = []
    for each_one in itertools.islice(itertools.product(*axes.values()), MAX_WORKLOADS + 1):
        asked = dict(zip(axes, each_one, strict=True))
        dtype = asked.pop(DTYPE, None)
        found.append((operation, of_sizes(operation, gpu, asked, dtype)))
    return found
