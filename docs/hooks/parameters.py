"""The glossary of the kernels' parameters, generated from their spaces on two GPUs, one per vendor."""

from __future__ import annotations

from collections.abc import Iterator

from constrint import list_kernels, load_gpu, load_kernel
from constrint.errors import ConstrintError
from constrint.select import KernelSpec, Param

#: Spaces differ between vendors, and between GPUs of one.
GPUS = ("h200", "mi300x")
#: Most values that a row shows.
MOST_VALUES = 8


def pages() -> Iterator[tuple[str, str]]:
    """The page's path and its text."""
    lines = [
        "# Parameters of the kernels",
        "Here you can look up what a parameter of a configuration means, and why it has these values. The page is made "
        "of the kernels' spaces at their default workloads. Values stand in order of preference.",
    ]
    shown: set[tuple[str, ...]] = set()
    for name in list_kernels():
        for spec in load_kernel(name).implementations:
            rows = _rows(spec)
            # The cells of recurrent layers have the same parameters.
            if rows and tuple(rows) not in shown:
                shown.add(tuple(rows))
                head = "| parameter | values | meaning | why these values |\n|---|---|---|---|"
                lines += [f"## {spec.full_name}", f"{spec.summary}.", "\n".join([head, *rows])]
    yield "reference/parameters.md", "\n\n".join(lines) + "\n"


def _rows(spec: KernelSpec) -> list[str]:
    """The lines of a kernel's table; a row that differs between the GPUs names its GPU."""
    by_name: dict[str, list[tuple[str, Param]]] = {}
    asked = []
    for name in GPUS:
        gpu = load_gpu(name)
        try:
            workload = spec.default_workload(gpu)
            spec.check_dtype(gpu, workload)
            params = list(spec.params(gpu, workload))
        except ConstrintError:
            continue
        asked.append(gpu.name)
        for param in params:
            by_name.setdefault(param.name, []).append((gpu.name, param))
    return [_row(name, found, asked) for name, found in by_name.items()]


def _row(name: str, found: list[tuple[str, Param]], asked: list[str]) -> str:
    first = found[0][1]
    title = f" (`{first.title}`)" if first.title else ""
    is_same = len({param.values for _, param in found}) == 1 and len(found) == len(asked)
    values = _values(first) if is_same else "; ".join(f"{gpu}: {_values(param)}" for gpu, param in found)
    return f"| `{name}`{title} | {values} | {_cell(first.meaning)} | {_cell(first.because)} |"


def _values(param: Param) -> str:
    shown = ", ".join(str(value) for value in param.values[:MOST_VALUES])
    return shown if len(param.values) <= MOST_VALUES else f"{shown}, ... ({len(param.values)} values)"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("[", "\\[")
