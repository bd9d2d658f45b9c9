"""Facts about a layer and a GPU that the resource rules of the recurrent Triton kernels use.

The rules stand in `shared_memory.py` and `registers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.model import Expr, minimum
from constrint.select.workload import ELEMENT_BYTES, Workload

Vars = Mapping[str, Expr]

#: Matrix instructions take at least this depth of 16-bit operands; a tile of weights is never shallower.
MIN_DEPTH = 16
#: Slices of a dot's depth that the cost model assumes when it pads a split tile; fewer slices need no more padding.
USUAL_SLICES = 8


@dataclass(frozen=True)
class TritonLayer:
    """One direction of one layer, as the resource expressions need it.

    Args:
        cell: The cell.
        direction: "forward" or "backward".
        head_dim: D.
        element_bytes: Bytes of one element of inputs and states; products are summed, and states kept, in fp32.
        num_products: Matrix products per dot: three where fp32 is put together from tf32.
    """

    cell: RecurrentCell
    direction: str
    head_dim: int
    element_bytes: int
    num_products: int = 1

    @classmethod
    def of(cls, cell: RecurrentCell, direction: str, workload: Workload) -> TritonLayer:
        """The layer of a workload."""
        products = 3 if workload.dtype == "fp32" else 1
        return cls(cell, direction, workload.sizes["head_dim"], ELEMENT_BYTES[workload.dtype], products)

    @property
    def num_loads(self) -> int:
        """Tiles loaded per step."""
        return self.cell.num_loads(self.direction)

    @property
    def padded_dim(self) -> int:
        """D as one tile: the next power of two."""
        return max(MIN_DEPTH, 1 << (self.head_dim - 1).bit_length())

    def exchanged_depth(self, slices: int) -> tuple[int, int]:
        """Depth of the dot over the exchanged states of a group, in two parts."""
        return depth_parts(self.head_dim * (1 if self.direction == "forward" else self.cell.num_gates), slices)

    @property
    def exchanged_slots(self) -> int:
        """Tiles of `tile_out` columns that the exchanged dot computes."""
        slots = 4 if self.cell.num_slots == 3 else self.cell.num_slots
        return slots if self.direction == "forward" else 1


def depth_parts(depth: int, slices: int) -> tuple[int, int]:
    """Split a dot's depth into one or two powers of two, each at least 16 per slice; the second may reach beyond."""
    least = MIN_DEPTH * slices
    whole = max(least, 1 << (depth - 1).bit_length())
    main = max(least, 1 << (depth.bit_length() - 1))
    if main >= depth:
        return main, 0
    rest = max(least, 1 << (depth - main - 1).bit_length())
    return (whole, 0) if main + rest >= whole else (main, rest)


def matrix_unit(gpu: GpuModel, dtype: str) -> str:
    """Kind of the matrix instruction that Triton's dot reaches: "mma", "mfma" or "wmma".

    Raises:
        UnsupportedError: When there is none; the recurrence would run on plain units, slower than one GEMM per step.
    """
    wide = gpu.traits.wide_dot_dtype
    unit = gpu.dot_unit(wide if dtype in ("fp32", "tf32") else dtype)
    if unit is not None and unit.kind != "fma":
        # Few rows like these fit the fallback alone (mma.sync on NVIDIA), also where there is wgmma or tcgen05.
        return unit.fallback or unit.kind
    raise UnsupportedError(
        f"Triton has no matrix instruction for {dtype} recurrences on {gpu.name} ({gpu.arch.target}). "
        "Use another dtype, or the back-end 'alternating', which runs anywhere."
    )


def is_dealt_to_rows(gpu: GpuModel, layer: TritonLayer) -> bool:
    """Whether Triton deals the warps of a whole head's dots to rows instead of columns.

    Some back-ends of Triton do so where each dot depends on those of the step before. If there are more warps than rows
    to deal, several warps compute the same rows.
    """
    return gpu.traits.deals_chained_dots_to_rows and layer.cell.num_slots > 1


def is_exchanged(v: Vars) -> Expr:
    """1 where several programs share a head and exchange states, 0 where one program has the whole head."""
    return minimum(1, v["row_split"] - 1)


def pow2_at_least(value: int) -> int:
    """The next power of two."""
    return 1 << max(0, value - 1).bit_length()


def padded_columns(head_dim: int, row_split: int) -> int:
    """Columns of one program's tile."""
    columns = pow2_at_least(-(-head_dim // row_split))
    return max(8 if row_split > 1 else MIN_DEPTH, columns)


def padded_head_dim(head_dim: int) -> int:
    """The head dimension that the kernels run: a multiple of a matrix instruction's depth."""
    return -(-head_dim // MIN_DEPTH) * MIN_DEPTH
