"""The streaming kernel of the quantised GEMM: bulk copies to a ring in shared memory, for Hopper and later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, assumed
from constrint.kernels.gemm.quantised.shape import (
    MOST_ROWS,
    NARROW,
    READ,
    READ_BYTES,
    SCALE_BYTES,
    WARP_ROWS,
    columns_of,
)
from constrint.kernels.gemm.quantised.spec import QuantisedSpec, facts_of
from constrint.kernels.gemm.quantised.stream.shape import (
    CLUSTERS,
    ROW_WARPS,
    VARIABLES,
    block_use,
    rules,
    share_of,
    slots_of,
)
from constrint.select.cost import CostColumns, cost_assumptions, dram_bytes_per_s, launch_offset_s, loaded_clock_hz
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

#: Start and end of a launch with the first read from memory; sums of a block, and of a cluster; the share of the
#: bandwidth that reads reach; bytes that arrive at an SM per clock. These and the following are from times of 1,000
#: configurations for 25 products of 4 bits on an H200: measured over predicted 0.92 to 1.10 for those within 1.3 of the
#: fastest of a product, first over best 1.02, 1.07 at most. Those of 8 bits are estimates.
LAUNCH_S, GROUP_S, CLUSTER_S = 7.03e-6, 1.23e-6, 0.775e-6
DRAM_SHARE, PORT_BYTES_PER_CLK = 0.879, 31.9
#: From a copy's start until it ends, memory being busy; a copy of a row of a chunk, which one thread of a block starts.
LATENCY_S, COPY_S = 0.776e-6, 0.0258e-6
#: Instructions of a warp for a read, by the bits of W; more of them for 8 further rows of X, and for vectors of 8 rows.
READ_SLOTS, WIDE_SLOTS, VECTOR_SLOTS = {4: 41.5, 8: 30.0}, {4: 14.2, 8: 7.0}, {4: 4.02, 8: 2.0}
#: Share of an SM's issue slots that warps use, at most, and warps that do; instructions that an SM issues.
ISSUE_SHARE, FULL_WARPS, ISSUES_PER_CLK = 0.8, 12.5, 4.0
#: Share of the bandwidth of shared memory that is reached.
SMEM_SHARE = 0.631


class StreamSpec(QuantisedSpec):
    """One warp copies weights to a ring in shared memory; others multiply."""

    name = "stream"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("rows", "row_warps"),
        "vectorise": ("k_warps", "tiles"),
        "split": ("split_k",),
        "pipeline": ("stages",),
    }
    summary = f"C[M,N] = X[M,K] @ W[N,K]^T with W of 4 or 8 bits in groups, M up to {MOST_ROWS}, bulk copies, CUDA C++"

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """Its sources, and the epilogue that it shares with the CUDA GEMM."""
        folder = Path(__file__).parents[1]
        own = (folder / "source" / name for name in ("stream.cu", "cluster.cuh", "numbers.cuh", "ring.cuh"))
        return (*own, folder.parent / "cuda" / "source" / "epilogue.cuh")

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for GPUs without bulk copies and clusters, and for bits and groups not taken."""
        super().check_dtype(gpu, workload)
        if not gpu.device.max_cluster_blocks_portable:
            raise UnsupportedError(f"{self.full_name}: it is written for bulk copies of NVIDIA's sm_90 and later.")

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """How warps divide tiles and reads, and the ring."""
        power = "powers of two, as groups are"
        return (
            Param("rows", (1, 2, 3, 4), "tiles of 16 rows of a warp", "vectors of X serve all of them", "r"),
            Param("row_warps", ROW_WARPS, "warps of a block that divide its tiles", "", "rw"),
            Param("k_warps", (1, 2, 4, 8), "warps of a block that divide the reads of a chunk", power, "kw"),
            Param("tiles", (2, 4, 8, 16), "reads of a warp in a chunk", power, "t"),
            Param("stages", (4, 5, 3, 6, 8, 2), "chunks in shared memory", "more are under way", "st"),
            Param("split_k", CLUSTERS, "blocks of a cluster, which divide K", "few rows fill no GPU", "sk"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules of the kernel."""
        yield from rules(gpu, workload.sizes, *facts_of(workload), v)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, v, workload.sizes, *facts_of(workload))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: the busiest SM's bytes and instructions, and DRAM."""
        v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        (bits, group), (m, n, k) = facts_of(workload), (workload.sizes[name] for name in ("m", "n", "k"))
        narrow = columns_of(m) // NARROW
        clock = loaded_clock_hz(gpu, workload.dtype)
        share = np.asarray(share_of(gpu, n, VARIABLES).columns(columns), dtype=np.float64)
        slots = np.asarray(slots_of(gpu, VARIABLES["split_k"]).columns(columns), dtype=np.float64)
        taken = v["rows"] * v["row_warps"]
        passes = np.ceil(share / taken)
        chunks = np.ceil(np.ceil(k / READ[bits] / (v["tiles"] * v["k_warps"])) / v["split_k"])
        reads = chunks * v["tiles"] * v["k_warps"]
        tile_bytes = WARP_ROWS * (READ[bits] * bits / 8 + READ[bits] / group * SCALE_BYTES)
        arriving = reads * (share * tile_bytes + passes * m * READ[bits] * 2)
        of_read = READ_SLOTS[bits] + WIDE_SLOTS[bits] * (narrow - 1) + VECTOR_SLOTS[bits] * narrow / v["rows"]
        warps = v["row_warps"] * v["k_warps"]
        issued = np.minimum(warps / FULL_WARPS, 1.0) * ISSUE_SHARE * ISSUES_PER_CLK * clock
        of_chunk = np.minimum(taken, share) * v["tiles"] * v["k_warps"] * tile_bytes
        # One stage is multiplied while the others are under way.
        under_way = np.minimum(v["stages"] - 1, chunks * passes) * of_chunk
        rate = np.minimum(under_way / LATENCY_S, PORT_BYTES_PER_CLK * clock)
        copies_s = passes * chunks * np.minimum(taken, share) * COPY_S
        port = assumed.smem_bytes_per_clk(gpu).value
        # Numbers are written and read once, vectors of X are read for all tiles of a warp together.
        vectors = np.maximum(m, 2) * READ[bits] * 2 / v["rows"]
        smem_s = reads * passes * taken * (2 * READ_BYTES + vectors) / (SMEM_SHARE * port * clock)
        sm_s = np.maximum.reduce([arriving / rate, reads * passes * taken * of_read / issued, copies_s, smem_s])
        dram_s = self.moved_bytes(workload) / dram_bytes_per_s(gpu, DRAM_SHARE) * np.ones_like(sm_s)
        # The last chunk is multiplied when everything has arrived.
        last_s = taken * v["tiles"] * v["k_warps"] * of_read / issued
        ends_s = passes * GROUP_S + np.where(v["split_k"] > 1, CLUSTER_S, 0.0)
        idle = np.where(v["split_k"] > 1, gpu.device.sm_count / (slots * v["split_k"]), 1.0)
        seconds = np.maximum(sm_s, dram_s * idle) + 0.25 * np.minimum(sm_s, dram_s) + last_s + ends_s
        return CostColumns(LAUNCH_S + launch_offset_s(gpu) + seconds, {"DRAM": dram_s, "issue": sm_s})

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of every kernel, and one on the constants of its model."""
        return (
            *cost_assumptions(gpu, workload.dtype),
            f"{self.full_name}: its constants were fitted to 1,000 times on one H200",
        )

    def launches_of(self) -> Callable[..., Sequence[Launch]]:
        """See `QuantisedSpec.launches_of`."""
        from constrint.kernels.gemm.quantised.stream.launch import stream_launches

        return stream_launches


SPECS = (StreamSpec(),)
