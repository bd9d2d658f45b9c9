"""The quantised GEMM as an operation: X (M, K) of 16 bits times weights of 4 or 8 bits in groups, for up to 16 rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.quantised.shape import (
    MOST_ROWS,
    READ,
    ROWS,
    block_use,
    chunk_of,
    packed_bytes,
    padded,
    rules,
    takes,
)
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions, dram_bytes_per_s, launch_offset_s, loaded_clock_hz
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import Size, Workload

INSTRUCTION = "mma"
#: Start and end of a launch; a chunk of a block beside its bytes; blocks that share rows wait for each other, for each
#: block of an SM; the share of the bandwidth that reads reach. From times of 14 products on an H100, by eye.
LAUNCH_S, CHUNK_S, SHARED_S, DRAM_SHARE = 8.0e-6, 0.12e-6, 0.9e-6, 0.74
#: Bytes of weights that the warps of one block widen and multiply per clock, by their bits. Likewise.
BLOCK_BYTES_PER_CLK = {4: 7.4, 8: 12.0}


class QuantisedSpec(KernelSpec):
    """Warps read weights once, in the order in which matrix instructions take them."""

    operation = "quantised_gemm"
    name = "cuda"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("tiles",),
        "vectorise": ("resident",),
    }
    summary = f"C[M,N] = X[M,K] @ W[N,K]^T with W of 4 or 8 bits in groups, M up to {MOST_ROWS}, CUDA C++"
    dtypes = ("bf16", "fp16")
    sizes = (
        Size("m", 1, "rows of X and C", 1, MOST_ROWS),
        Size("n", 4096, "rows of W, columns of C"),
        Size("k", 4096, "columns of X and W"),
    )
    options = (
        Size("bits", 4, "bits of a weight, 4 or 8", 4, 8),
        Size("group", 128, "numbers along K that share a scale and a zero", 32, 1 << 20),
    )

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """Its source, and the epilogue that it shares with the CUDA GEMM."""
        folder = Path(__file__).parent
        return (folder / "source" / "kernel.cu", folder.parent / "cuda" / "source" / "epilogue.cuh")

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for GPUs without mma.sync, and for bits and groups that the kernel does not take."""
        matrix = gpu.dot_unit(workload.dtype)
        bits, group = facts_of(workload)
        if matrix is None or INSTRUCTION not in (matrix.kind, matrix.fallback):
            raise UnsupportedError(
                f"{self.full_name}: it is written for {INSTRUCTION}.sync of NVIDIA's sm_80 and later."
            )
        if not takes(bits, group):
            groups = f"groups of a power of two times {READ[4]} numbers of 4 bits, or {READ[8]} of 8"
            raise UnsupportedError(f"{self.full_name}: it takes {groups}, not {group} of {bits}.")

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Reads of a chunk, and blocks of an SM."""
        power = "powers of two, as groups are"
        return (
            Param("tiles", (8, 4, 16), "reads of a warp for a chunk", power, "t"),
            Param("resident", (2, 3, 1, 4), "blocks that an SM is to hold", "leaves threads so many registers", "res"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules of the kernel."""
        yield from rules(gpu, workload.sizes["m"], *facts_of(workload), v)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, v, workload.sizes["m"], facts_of(workload)[0])

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of packed weights with scales and zeros, X and C."""
        m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
        return packed_bytes(n, k, *facts_of(workload)) + 2 * m * (k + n)

    def num_operations(self, workload: Workload) -> int:
        """Multiplications and additions."""
        return 2 * workload.sizes["m"] * workload.sizes["n"] * workload.sizes["k"]

    def num_terms(self, workload: Workload) -> int:
        """K."""
        return workload.sizes["k"]

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: what is read at a rate that grows with what is under way, whole chunks a block."""
        v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        bits, _ = facts_of(workload)
        rows, depth = padded(workload.sizes["n"], workload.sizes["k"], bits)
        units, slots = rows / ROWS * (depth / chunk_of(v, bits)), gpu.device.sm_count * v["resident"]
        chunks = np.ceil(units / slots)
        share = chunks / (units / slots)
        own = np.minimum(units, slots) * BLOCK_BYTES_PER_CLK[bits] * loaded_clock_hz(gpu, workload.dtype)
        rate = np.minimum(dram_bytes_per_s(gpu, DRAM_SHARE), own)
        seconds = (
            self.moved_bytes(workload) * np.minimum(share, 2.0) / rate + chunks * CHUNK_S + v["resident"] * SHARED_S
        )
        return CostColumns(LAUNCH_S + launch_offset_s(gpu) + seconds, {"DRAM": seconds})

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of every kernel, and one on the constants of its model."""
        constants = f"{self.full_name}: its constants were set by a few times on an H100, not fitted"
        return (*cost_assumptions(gpu, workload.dtype), constants)

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """X and packed weights."""
        from constrint.kernels.gemm.quantised.weights import random_operands

        m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
        return random_operands(m, n, k, *facts_of(workload), workload.dtype, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C, empty."""
        x = inputs["x"]
        return {"out": x.new_empty((x.shape[0], workload.sizes["n"]))}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch. Needs torch."""
        from constrint.kernels.gemm.quantised.launch import quantised_launches
        from constrint.kernels.gemm.quantised.weights import QuantisedWeight

        bits, group = facts_of(workload)
        sizes = workload.sizes["n"], workload.sizes["k"]
        x = inputs["x"]
        weight = QuantisedWeight(inputs["packed"], inputs["scales"], *sizes, bits, group, x.dtype)
        return quantised_launches(gpu, x, weight, outputs["out"], config)

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C in fp64."""
        from constrint.kernels.gemm.quantised.weights import exact_product

        sizes = workload.sizes["n"], workload.sizes["k"]
        return {"out": exact_product(inputs["x"], inputs["packed"], inputs["scales"], *sizes, *facts_of(workload))}


def facts_of(workload: Workload) -> tuple[int, int]:
    """Bits of a weight, and the size of a group."""
    return workload.options.get("bits", 4), workload.options.get("group", 128)


SPECS = (QuantisedSpec(),)
