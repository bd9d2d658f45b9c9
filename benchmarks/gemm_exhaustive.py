"""What `bench_gemm_exhaustive.py` hands from process to process: the plan, and the results as they come in.

Results lie in files that every process maps, so that a process that hangs or dies loses one kernel's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Parameters that need a kernel of their own; the order of tiles does not.
KERNEL_KEYS = (
    "tile_m",
    "tile_n",
    "tile_k",
    "num_warps",
    "num_stages",
    "split_k",
    "persistent",
    "descriptor",
    "epilogue_subtile",
    "producer",
)
#: Values of `group_m`, the one that `choose` takes for most grids first, where it is valid.
ORDERS = (8, 4, 2, 1, 16, 32)
NOT_RUN, RIGHT, WRONG, NOT_COMPILED, REFUSED, HUNG, CRASHED = range(7)
OUTCOMES = ("not run", "ok", "wrong", "not compiled", "refused", "hung", "crashed")
DTYPE = "bf16"


@dataclass(frozen=True)
class Shape:
    """One shape's part of the plan.

    Args:
        sizes: M, N, K.
        configs: (rows, parameters) as in `KERNEL_KEYS`, every valid configuration.
        valid: (rows, orders) whether this order of tiles is valid; the first valid one is what `choose` takes.
        items: (rows,) number of the kernel to compile.
        choices: (choices, 2) row and order of the model's choices, best first.
        load_s: Rough seconds that one GPU needs for it.
    """

    sizes: tuple[int, int, int]
    configs: NDArray[np.int64]
    valid: NDArray[np.bool_]
    items: NDArray[np.int64]
    choices: NDArray[np.int64]
    load_s: float

    @property
    def name(self) -> str:
        """MxNxK."""
        return "x".join(map(str, self.sizes))

    def config(self, row: int, order: int) -> dict[str, int]:
        """A point of the space."""
        values = dict(zip(KERNEL_KEYS, map(int, self.configs[row]), strict=True))
        return values | {"group_m": ORDERS[order]}


@dataclass(frozen=True)
class Plan:
    """Every shape, and of which (shape, row) each kernel is compiled first, in the order of compilation."""

    shapes: list[Shape]
    jobs: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write an npz file."""
        arrays: dict[str, Any] = {"jobs": self.jobs}
        for i, shape in enumerate(self.shapes):
            arrays |= {f"sizes{i}": np.array(shape.sizes), f"configs{i}": shape.configs.astype(np.int16)}
            arrays |= {f"valid{i}": shape.valid, f"items{i}": shape.items.astype(np.int32)}
            arrays |= {f"choices{i}": shape.choices, f"load{i}": np.array(shape.load_s)}
        np.savez_compressed(path, **arrays)

    @staticmethod
    def load(path: Path) -> Plan:
        """Read what `save` wrote."""
        with np.load(path) as file:
            shapes = []
            for i in range(sum(name.startswith("sizes") for name in file)):
                sizes = tuple(map(int, file[f"sizes{i}"]))
                parts = (file[f"{name}{i}"] for name in ("configs", "valid", "items", "choices"))
                configs, valid, items, choices = parts
                shapes.append(
                    Shape(sizes, configs.astype(np.int64), valid, items, choices, float(file[f"load{i}"]))  # type: ignore[arg-type]
                )
            return Plan(shapes, file["jobs"])

    def deal(self, num_gpus: int) -> list[list[int]]:
        """Shapes of every GPU: the longest first, each to the GPU with the least so far."""
        dealt: list[list[int]] = [[] for _ in range(num_gpus)]
        for i in sorted(range(len(self.shapes)), key=lambda i: -self.shapes[i].load_s):
            min(dealt, key=lambda own: sum(self.shapes[j].load_s for j in own)).append(i)
        return dealt


class Results:
    """Measured figures of one shape, per (row, order): microseconds, nan where there are none, and outcomes."""

    def __init__(self, folder: Path, number: int, shape: Shape, mode: str = "r+") -> None:
        def mapped(name: str, kind: Any, size: tuple[int, ...]) -> Any:
            return np.memmap(folder / f"{name}{number}", kind, mode, shape=size)  # type: ignore[call-overload]

        size = shape.valid.shape
        self.outcome = mapped("outcome", np.uint8, size)
        self.quick_us, self.cold_us, self.warm_us, self.again_us = (
            mapped(name, np.float32, size) for name in ("quick", "cold", "warm", "again")
        )
        #: The best so far, then cuBLAS cold and warm.
        self.figures = mapped("figures", np.float64, (3,))
        if mode == "w+":
            for column in (self.quick_us, self.cold_us, self.warm_us, self.again_us, self.figures):
                column[:] = np.nan
            self.figures[0] = np.inf
