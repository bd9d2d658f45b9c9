"""What a configuration means: the tile as wgmma sees it, how consumers share it, and the bytes of a stage.

Everything is arithmetic on the parameters, be they expressions, numbers or columns of numbers. `source/kernel.cu`
asserts the same where it is compiled. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.units import ELEMENT_BYTES

#: A slice is so many bytes along K, by which the TMA unit swizzles; an atom of the swizzle is eight such rows.
LINE_BYTES, ATOM_ROWS = 128, 8
#: Rows of wgmma, and its most columns.
ROWS, MAX_COLUMNS = 64, 256
#: Rows of the largest box that the TMA unit loads.
MAX_BOX = 256
#: Threads of a warpgroup, and their warps.
WARPGROUP, WARPGROUP_WARPS = 128, 4
#: What a consumer puts results in order in: a box of 64 rows of 128 bytes.
BOX_BYTES = ROWS * LINE_BYTES
#: Barriers in front of the ring, up to where an atom may start.
BEFORE_BYTES = 1024


@dataclass(frozen=True)
class Shape:
    """A tile of C as wgmma sees it: its rows are C's columns where it is turned.

    Args:
        rows, columns: The block's tile.
        cluster_rows, cluster_columns: Blocks of a cluster above and beside each other.
        sharing: Consumers that share the rows; where they take turns each has all of them.
        by_columns: Consumers that share the columns.
        consumers: Warpgroups that multiply.
    """

    rows: Any
    columns: Any
    cluster_rows: Any
    cluster_columns: Any
    sharing: Any
    by_columns: Any
    consumers: Any

    @staticmethod
    def of(v: Mapping[str, Any]) -> Shape:
        """Of parameters."""
        turned = v["turned"]
        wider, more = v["tile_n"] - v["tile_m"], v["cluster_n"] - v["cluster_m"]
        return Shape(
            rows=v["tile_m"] + turned * wider,
            columns=v["tile_n"] - turned * wider,
            cluster_rows=v["cluster_m"] + turned * more,
            cluster_columns=v["cluster_n"] - turned * more,
            sharing=v["consumers"] // v["by_columns"] - v["in_turns"],
            by_columns=v["by_columns"],
            consumers=v["consumers"],
        )

    @property
    def cluster(self) -> Any:
        """Blocks of a cluster."""
        return self.cluster_rows * self.cluster_columns

    @property
    def own_rows(self) -> Any:
        """Rows of a consumer."""
        return self.rows // self.sharing

    @property
    def own_columns(self) -> Any:
        """Columns of a consumer."""
        return self.columns // self.by_columns

    @property
    def sums(self) -> Any:
        """Sums of a consumer's thread."""
        return self.own_rows * self.own_columns // WARPGROUP


def promotes(dtype: str) -> bool:
    """Whether sums of every slice are added in fp32: the matrix units add products of 8-bit floats in too few bits."""
    return dtype == "fp8"


def depth(dtype: str) -> int:
    """Elements of a slice along K."""
    return LINE_BYTES // ELEMENT_BYTES[dtype]


def column_step(dtype: str) -> int:
    """What wgmma's columns are multiples of: 8, but for integers, of which some multiples of 8 are missing."""
    return 16 if dtype == "int8" else 8


def slice_bytes(width: Any, dtype: str, *, is_k_major: bool) -> Any:
    """Bytes of one operand's slice: rows of 128 bytes along K, or slabs of 128 bytes across it."""
    if is_k_major:
        return width * LINE_BYTES
    across = depth(dtype)  # elements of a slab's width, and its rows
    return (width + across - 1) // across * (across * LINE_BYTES)


def stage_bytes(v: Mapping[str, Any], dtype: str, *, a_is_k_major: bool, b_is_k_major: bool) -> Any:
    """Bytes of one stage of the ring: a slice of A and one of B."""
    of_a = slice_bytes(v["tile_m"], dtype, is_k_major=a_is_k_major)
    return of_a + slice_bytes(v["tile_n"], dtype, is_k_major=b_is_k_major)


def ring_bytes(v: Mapping[str, Any], dtype: str, *, a_is_k_major: bool, b_is_k_major: bool) -> Any:
    """Dynamic shared memory with one buffer of results for each consumer."""
    stage = stage_bytes(v, dtype, a_is_k_major=a_is_k_major, b_is_k_major=b_is_k_major)
    return v["num_stages"] * stage + BOX_BYTES * v["consumers"]


def second_buffers(gpu: GpuModel, ring: Any, consumers: Any) -> Any:
    """How many times the second buffers of all consumers fit beside a ring: none where it is 0 or less."""
    room = gpu.sm.max_smem_bytes_per_block - BEFORE_BYTES
    return (room - ring) // (BOX_BYTES * consumers)


def box_rows(width: int, shares: int) -> int:
    """Rows of a box of a slice that lies along K, of which each of the blocks that share it loads a part.

    Where parts would not be whole atoms, blocks load the whole slice in turns.
    """
    part = width // shares
    if width % (ATOM_ROWS * shares):
        return width
    return part // 2 if part > MAX_BOX else part


#: Blocks of the largest cluster.
MOST_BLOCKS = 4
#: Clusters of four that are lost to GPCs of different sizes.
UNEVEN_FOURS = 2


def cluster_slots(gpu: GpuModel, cluster: Any) -> Any:
    """Clusters of 1, 2 or 4 blocks that are resident at once, one block on an SM.

    A cluster lies in one GPC. SMs come in pairs, so that clusters of two fill a GPC, and those of four leave a pair
    over where the GPC has an odd number of pairs: 132 SMs in 8 GPCs as large as each other hold 32. GPCs differ, since
    SMs are left out where they fail: an H200 was seen to hold 30.
    """
    num_sms, num_gpcs = gpu.device.sm_count, gpu.device.num_gpcs or 1
    if num_sms < MOST_BLOCKS:
        return (num_sms + cluster - 1) // cluster  # none that is larger than the device is allowed
    even = num_gpcs * (num_sms // num_gpcs // 4)
    lost = min(num_sms // 4 - even + UNEVEN_FOURS * (num_gpcs > 1), num_sms // 4 - 1)
    return num_sms // cluster - lost * (cluster // 4)
