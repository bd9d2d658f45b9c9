"""The quantised GEMM as an operation: X (M, K) of 16 bits times weights of 4 or 8 bits in groups, for up to 16 rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.quantised.shape import (
    MOST_ROWS,
    NARROW,
    READ,
    READ_BYTES,
    SCALE_BYTES,
    STAGES,
    WARP_ROWS,
    WARPS,
    block_use,
    columns_of,
    packed_bytes,
    padded,
    rules,
    takes,
    tiles_of,
)
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions, dram_bytes_per_s, launch_offset_s, loaded_clock_hz
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import Size, Workload

INSTRUCTION = "mma"
#: Start and end of a launch; a read; a turn of a warp beside its reads; sums of warps, and of a cluster; the share of
#: the bandwidth that reads reach, and bytes that arrive at an SM per clock. From times of 280 configurations for 35
#: products on an H200: measured over predicted 0.76 to 1.35, first over best of them 1.03.
LAUNCH_S, LATENCY_S, TURN_S, GROUP_S, CLUSTER_S = 7.44e-6, 0.166e-6, 0.0656e-6, 0.0, 1.56e-6
DRAM_SHARE, PORT_BYTES_PER_CLK = 0.70, 26.9
#: The same share where turns lie in shared memory, of 25 products on an H200.
STAGED_DRAM_SHARE = 0.735
#: Bytes of weights that a warp widens and multiplies per clock, by their bits, and the share of it where sums are kept
#: for 16 rows of X. Likewise.
WARP_BYTES_PER_CLK, WIDE_SHARE = {4: 2.09, 8: 2.71}, 1.2
#: Most tiles that a block takes at a time.
MOST_TILES = 8


class QuantisedSpec(KernelSpec):
    """Warps read weights once, in the order in which matrix instructions take them."""

    operation = "quantised_gemm"
    name = "cuda"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("rows", "tiles"),
        "vectorise": ("warps", "resident"),
        "split": ("split_k",),
        "pipeline": ("stages", "x_turns"),
        "fuse": ("of_sums",),
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
        own = (folder / "source" / name for name in ("kernel.cu", "cluster.cuh", "numbers.cuh"))
        return (*own, folder.parent / "cuda" / "source" / "epilogue.cuh")

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
            Param("rows", tuple(range(1, MOST_TILES + 1)), "tiles of 16 rows that a block takes at a time", "", "r"),
            Param("tiles", (1, 2, 4, 8), "reads of a warp in turn along K", power, "t"),
            Param("warps", WARPS, "warps of a block, which divide K", "more read more at a time", "w"),
            Param("resident", (1, 2, 3, 4), "blocks that an SM is to hold", "leaves threads so many registers", "res"),
            Param("split_k", (1, 2), "blocks of a cluster, which divide K", "few rows fill no GPU", "sk"),
            Param("stages", STAGES, "turns of a warp in shared memory; 0: in registers", "more are under way", "st"),
            Param("x_turns", (0, 1), "1: turns have their vectors of X in shared memory, too", "X in registers", "xt"),
            Param("of_sums", (0, 1), "1: zeros are subtracted from sums of groups, not from numbers", "exact", "os"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules of the kernel."""
        yield from rules(gpu, workload.sizes, *facts_of(workload), v)

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
        """Predicted time per row: the busiest SM's reads, at the rate of what is under way, of its warps, of DRAM."""
        v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        (bits, group), (m, n, k) = facts_of(workload), (workload.sizes[name] for name in ("m", "n", "k"))
        _, depth = padded(n, k, bits)
        tiles, sms, clock = tiles_of(n), gpu.device.sm_count, loaded_clock_hz(gpu, workload.dtype)
        blocks = np.minimum(tiles, np.maximum(sms * v["resident"] // v["split_k"], 1))
        of_block = np.ceil(tiles / blocks)
        per_sm = np.ceil(blocks * v["split_k"] / sms)
        turns = np.ceil(depth / READ[bits] / v["split_k"] / (v["tiles"] * v["warps"]))
        tile_bytes = WARP_ROWS * (depth * bits / 8 + -(-depth // group) * SCALE_BYTES)
        # Some tiles are read and multiplied twice where a share is no multiple of those that are taken at a time.
        groups = np.ceil(of_block / v["rows"])
        x_bytes = 2 * m * depth * groups
        busiest = per_sm * (groups * np.minimum(v["rows"], of_block) * tile_bytes + x_bytes) / v["split_k"]
        is_staged = v["stages"] > 0
        ahead = np.minimum(np.maximum(v["stages"] - 1, 1.0), turns * groups)
        under_way = per_sm * v["warps"] * v["tiles"] * np.minimum(v["rows"], of_block) * READ_BYTES * ahead
        own = WARP_BYTES_PER_CLK[bits] * (WIDE_SHARE if columns_of(m) > NARROW else 1.0)
        rate = np.minimum(under_way / LATENCY_S, per_sm * v["warps"] * own * clock)
        sm_s = busiest / np.minimum(rate, PORT_BYTES_PER_CLK * clock)
        sm_s = sm_s + per_sm * groups * (turns * TURN_S + np.where(v["split_k"] > 1, CLUSTER_S, GROUP_S))
        shares = np.where(is_staged, STAGED_DRAM_SHARE, DRAM_SHARE)
        dram_s = self.moved_bytes(workload) / dram_bytes_per_s(gpu, DRAM_SHARE) * (DRAM_SHARE / shares)
        seconds = np.maximum(sm_s, dram_s) + 0.25 * np.minimum(sm_s, dram_s)
        return CostColumns(LAUNCH_S + launch_offset_s(gpu) + seconds, {"DRAM": dram_s, "latency": sm_s})

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of every kernel, and one on the constants of its model."""
        constants = f"{self.full_name}: its constants were fitted to 280 times on one H200"
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
        from constrint.kernels.gemm.quantised.weights import QuantisedWeight

        bits, group = facts_of(workload)
        sizes = workload.sizes["n"], workload.sizes["k"]
        x = inputs["x"]
        weight = QuantisedWeight(inputs["packed"], inputs["scales"], *sizes, bits, group, x.dtype)
        return self.launches_of()(gpu, x, weight, outputs["out"], config)

    def launches_of(self) -> Callable[..., Sequence[Launch]]:
        """The function that states the launch of (GPU, X, weights, output, configuration, bias). Needs torch."""
        from constrint.kernels.gemm.quantised.launch import quantised_launches

        return quantised_launches

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C in fp64."""
        from constrint.kernels.gemm.quantised.weights import exact_product

        sizes = workload.sizes["n"], workload.sizes["k"]
        return {"out": exact_product(inputs["x"], inputs["packed"], inputs["scales"], *sizes, *facts_of(workload))}


def facts_of(workload: Workload) -> tuple[int, int]:
    """Bits of a weight, and the size of a group."""
    return workload.options.get("bits", 4), workload.options.get("group", 128)


SPECS = (QuantisedSpec(),)
