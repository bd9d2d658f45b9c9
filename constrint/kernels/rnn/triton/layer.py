"""A layer on a GPU as the recurrent Triton kernels see it, and the shared memory (LDS) of one of their programs.

The estimate of shared memory is derived from the allocations of Triton 3.6 to 3.9 for `kernel_forward.py` and
`kernel_backward.py`, and checked against tables of compiled kernels (`tests/data/triton_rnn_resources_*.csv`;
`benchmarks/registers.py check --kernel rnn`). It is never too small, with any optional input and any version, and
mostly exact without optional inputs. Triton 3.8 has a rule of its own on NVIDIA: it reads weights from shared memory in
every step. `spec.py` has the registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.model import Expr, const, maximum, minimum
from constrint.model.expr import add
from constrint.select.toolchain import CHECKED, NEWEST, CheckedVersion
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


#: Partial sums of a dot are fp32.
PARTIAL_BYTES = 4
#: Bytes of a reset flag: the least width of an asynchronous copy into shared memory.
FLAG_BYTES = 4
#: Bytes that may lie unused between buffers of flags.
FLAG_PADDING_BYTES = 32
#: Most warps, and with them slices of a dot's depth.
MAX_SLICES = 16
#: wgmma and tcgen05, which read shared memory themselves, need at least this many rows and this many warps.
DIRECT_ROWS, DIRECT_WARPS = 64, 4
#: CDNA: tiles of weights up to this many rows and columns change their layout by moves between lanes, without LDS.
SMALL_DIM = 32
#: Barriers that tcgen05 signals its end through.
BARRIER_BYTES = 16


def smem_bytes(
    gpu: GpuModel,
    layer: TritonLayer,
    v: Vars,
    *,
    is_plain: bool = False,
    compiler: CheckedVersion = CHECKED[NEWEST],
) -> Expr:
    """Upper bound of the shared memory (LDS) of one program.

    Args:
        gpu: The hardware model.
        layer: The time loop that is computed.
        v: The parameters.
        is_plain: The least of all versions with this rule, without the optional inputs: initial states, resets,
            gradients of other states than h.
        compiler: The version of Triton.
    """
    use = is_exchanged(v)
    if gpu.traits.has_async_copies and compiler.reads_weights_again:
        alone = _alone_read_again(gpu, layer, v, is_plain=is_plain)
        together = _together_read_again(gpu, layer, v, is_plain=is_plain)
    elif gpu.traits.has_async_copies:
        alone = _alone_with_copies(gpu, layer, v, is_plain=is_plain)
        together = _together_with_copies(gpu, layer, v, is_plain=is_plain)
    else:
        has_two = const(0) if is_plain and not compiler.keeps_two_layouts else has_two_layouts(gpu, layer, v)
        alone = _alone_in_registers(layer, v, has_two, is_plain=is_plain)
        together = _together_in_registers(layer, v, is_plain=is_plain)
    return use * together + (1 - use) * alone


def at_least(value: Expr, threshold: int) -> Expr:
    """1 from a power of two on, for powers of two."""
    return minimum(1, value // threshold)


def _alone_with_copies(gpu: GpuModel, layer: TritonLayer, v: Vars, *, is_plain: bool) -> Expr:
    """Weights pass through once, on their way into registers; then the loop's buffers use the same bytes."""
    is_forward, is_tripled = layer.direction == "forward", layer.num_products > 1
    single = layer.padded_dim**2 * layer.element_bytes
    tile = v["tile_batch"] * layer.padded_dim * layer.element_bytes
    # Three products of tf32 bring each weight twice (rounded, and what is left), one weight after the other.
    weights = const(2 * single) if is_tripled else layer.cell.num_gates * single + (0 if is_forward else 1) * tile
    in_loop = _in_loop(layer, v, is_plain=is_plain)
    if not _is_direct(gpu):
        return maximum(weights, in_loop)
    # Weights stay in shared memory, where the instruction reads them.
    return maximum(weights, in_loop) + _direct_alone(gpu, v) * (minimum(weights, in_loop) + BARRIER_BYTES)


def _in_loop(layer: TritonLayer, v: Vars, *, is_plain: bool) -> Expr:
    """Buffers of a loop whose loads are copied ahead: what is loaded, and tiles that change their layout."""
    tile = v["tile_batch"] * layer.padded_dim * layer.element_bytes
    return _copied_ahead(layer, v, is_plain=is_plain) + _moved_tiles(layer, v) * tile


def _moved_tiles(layer: TritonLayer, v: Vars) -> Expr:
    """Tiles that change their layout together, for a dot or before they are stored."""
    return maximum(min(layer.num_products, 2), _stored_tiles(layer, v))


def _copied_ahead(layer: TritonLayer, v: Vars, *, is_plain: bool) -> Expr:
    """Buffers of what is loaded steps ahead."""
    ahead = v["num_stages"] - 1
    # Gradients of the other states need not be given, but may be; resets are flags of rows.
    is_forward = layer.direction == "forward"
    loads = layer.num_loads + (0 if is_forward or is_plain else layer.cell.num_states - 1)
    tiles = loads * ahead * v["tile_batch"] * layer.padded_dim * layer.element_bytes
    return tiles if is_plain else tiles + (v["tile_batch"] * FLAG_BYTES + FLAG_PADDING_BYTES) * ahead


def _alone_read_again(gpu: GpuModel, layer: TritonLayer, v: Vars, *, is_plain: bool) -> Expr:
    """All weights lie beside the loop's buffers, as two each where tf32 is rounded.

    At least: tiles of 16 columns, of one warp, or of as many rows as warps have, may move between lanes instead.
    """
    weights = layer.cell.num_gates * min(layer.num_products, 2) * layer.padded_dim**2 * layer.element_bytes
    if is_plain and layer.padded_dim == MIN_DEPTH:
        return _copied_ahead(layer, v, is_plain=True)
    if is_plain:
        tile = v["tile_batch"] * layer.padded_dim * layer.element_bytes
        moves = at_least(v["num_warps"], 2) * (1 - at_least(v["tile_batch"], DIRECT_ROWS))
        return weights + _copied_ahead(layer, v, is_plain=True) + moves * _moved_tiles(layer, v) * tile
    return weights + _in_loop(layer, v, is_plain=False) + BARRIER_BYTES * _direct_alone(gpu, v)


def _together_read_again(gpu: GpuModel, layer: TritonLayer, v: Vars, *, is_plain: bool) -> Expr:
    """All weights lie beside gathered states, or beside sums; at least, beside what each warp gathers for itself."""
    rows, width, element = v["tile_batch"], layer.exchanged_slots * v["tile_out"], layer.element_bytes
    main, both = by_slices(layer, v, lambda parts: parts[0]), by_slices(layer, v, sum)
    weights = both * width * min(layer.num_products, 2) * element
    if is_plain:
        return weights + v["split_depth"] * at_least(v["num_warps"], 2) * main * rows * element
    # Both parts of a state are gathered at once where warps have slices of them, or the instruction reads them.
    direct = at_least(rows, DIRECT_ROWS) if _is_direct(gpu) else const(0)
    at_once = direct if layer.num_products > 1 else maximum(direct, v["split_depth"])
    gathered = (main + at_once * (both - main)) * rows * element
    # Sums of several slices pass in parts, of which half was never seen to be exceeded.
    sums = maximum(_sums(rows, width, v, is_plain=True), _sums(rows, width, v, is_plain=False) // 2)
    return weights + maximum(gathered, sums) + BARRIER_BYTES * direct


def _alone_in_registers(layer: TritonLayer, v: Vars, has_two: Expr, *, is_plain: bool) -> Expr:
    """Loads of later steps wait in registers; tiles change their layout on the way to the instruction and back."""
    rows, element = v["tile_batch"], layer.element_bytes
    single = layer.padded_dim**2 * element
    in_fp32 = rows * layer.padded_dim * PARTIAL_BYTES
    moved = maximum(in_fp32, _stored_tiles(layer, v) * rows * layer.padded_dim * element)
    if layer.cell.num_slots == 1:
        return maximum(single, moved)
    initial = in_fp32 if element == PARTIAL_BYTES and not is_plain else const(0)
    return maximum(single * (1 + (layer.cell.num_gates - 1) * has_two) + initial, moved)


def has_two_layouts(gpu: GpuModel, layer: TritonLayer, v: Vars) -> Expr:
    """AMD: 1 where all weights of a whole head stay in LDS because they are read in two layouts.

    Warps of the dots before the loop lie side by side, warps of the dots in the loop one below the other, so both need
    another layout. Exceptions: 32 rows and warps of 32 columns allow one layout only; gfx950 transposes 16-bit elements
    as it reads them; on CDNA small tiles that are loaded along their depth never come to LDS.
    """
    is_small = layer.direction == "forward" and layer.padded_dim <= SMALL_DIM and gpu.arch.target.startswith("gfx9")
    if layer.element_bytes == 2 and (gpu.arch.target == "gfx950" or is_small):
        return const(0)
    rows, beyond = v["tile_batch"], minimum(1, 32 * v["num_warps"] // (layer.padded_dim + 1))
    return at_least(v["num_warps"], 2) * (1 - (at_least(rows, 32) - at_least(rows, 64)) * beyond)


def _stored_tiles(layer: TritonLayer, v: Vars) -> Expr:
    """Tiles that change their layout together before they are stored."""
    if layer.direction == "backward":
        return const(layer.cell.num_slots)
    return maximum(layer.cell.num_states, (1 - v["recompute"]) * layer.cell.num_slots)


def _together_in_registers(layer: TritonLayer, v: Vars, *, is_plain: bool) -> Expr:
    """The largest of three that use the same LDS one after the other: weights, gathered states, sums over slices."""
    rows, width = v["tile_batch"], layer.exchanged_slots * v["tile_out"]
    main = by_slices(layer, v, lambda parts: parts[0])
    return maximum(main * maximum(width, rows) * layer.element_bytes, _sums(rows, width, v, is_plain=is_plain))


def _together_with_copies(gpu: GpuModel, layer: TritonLayer, v: Vars, *, is_plain: bool) -> Expr:
    """The same for NVIDIA, where gathered states lie beside the weights."""
    rows, width, element = v["tile_batch"], layer.exchanged_slots * v["tile_out"], layer.element_bytes
    main = by_slices(layer, v, lambda parts: parts[0])
    sums = _sums(rows, width, v, is_plain=is_plain)
    both, direct = by_slices(layer, v, sum), at_least(rows, DIRECT_ROWS) if _is_direct(gpu) else const(0)
    if layer.num_products > 1:
        # Each weight as two; gathered states come after them, unless the instruction reads them from there.
        beside = const(0) if is_plain else 2 * rows * _lies_beside(layer, main, v)
        operands = maximum(main * maximum(2 * width + beside, rows), direct * both * (2 * width + rows))
        return maximum(operands * element, sums)
    if is_plain:
        # Gathered states may use the bytes that weights passed through.
        sliced = flat = maximum(main * width, both * rows)
    elif layer.direction == "forward":
        # An initial state is gathered beside both parts of the weights.
        sliced, flat = both * (width + rows), main * (width + rows)
    else:
        sliced = maximum(both * width + main * rows, both * rows)
        # An fp32 tile of a gradient or a state from outside may change its layout meanwhile.
        flat = main * width + both * rows + rows * v["tile_out"] * (PARTIAL_BYTES // element)
    # Weights of both parts stay in shared memory, where the instruction reads them.
    flat += direct * (both - main) * (width + rows)
    operands = v["split_depth"] * sliced + (1 - v["split_depth"]) * flat
    return maximum(operands * element, sums) + BARRIER_BYTES * direct


def _lies_beside(layer: TritonLayer, main: Expr, v: Vars) -> Expr:
    """1 where what is gathered may change its layout in memory beside the weights, rounded and what is left of it.

    That was seen forward, with several slots and parts of less than 256 columns: with more warps than instructions of
    16 by 8 elements in a product, and on short parts with tall tiles.
    """
    if layer.direction == "backward" or layer.exchanged_slots == 1:
        return const(0)
    return (1 - v["split_depth"]) * (1 - minimum(1, main // 256))


def _direct_alone(gpu: GpuModel, v: Vars) -> Expr:
    """1 where an instruction reads the operands of a whole head's dots from shared memory."""
    if not _is_direct(gpu):
        return const(0)
    return at_least(v["tile_batch"], DIRECT_ROWS) * at_least(v["num_warps"], DIRECT_WARPS)


def _is_direct(gpu: GpuModel) -> bool:
    """Whether there are instructions that read operands from shared memory: wgmma, tcgen05."""
    return gpu.arch.target in ("sm_90a", "sm_100a", "sm_103a")


def _sums(rows: Expr, width: Expr, v: Vars, *, is_plain: bool) -> Expr:
    """Partial sums of every slice (Triton 3.6), or one sum on its way to other threads."""
    slices = const(1) if is_plain else maximum(1, v["split_depth"] * v["num_warps"])
    return slices * rows * width * PARTIAL_BYTES


def by_slices(layer: TritonLayer, v: Vars, part: Callable[[tuple[int, int]], int]) -> Expr:
    """A figure of the parts of a dot's depth, by the number of slices: one per warp, or one."""
    slices = 1 + v["split_depth"] * (v["num_warps"] - 1)
    before = part(layer.exchanged_depth(1))
    terms: list[Expr] = [const(before)]
    number = 2
    while number <= MAX_SLICES:
        here = part(layer.exchanged_depth(number))
        if here != before:
            terms.append((here - before) * at_least(slices, number))
        before, number = here, 2 * number
    return add(*terms)
