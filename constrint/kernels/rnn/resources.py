"""What one program of the recurrent Triton kernels takes - shared memory and registers - as integer expressions.

The shared-memory rules bound what Triton 3.6 and 3.9 allocate for `kernel_forward.py` and `kernel_backward.py`; the
register figures are fitted. Both are checked against compiled kernels (`tests/data/triton_rnn_resources.csv`, written
by `benchmarks/compile_rnn.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import Cell
from constrint.model import Expr, ceildiv, const, maximum, minimum

Vars = Mapping[str, Expr]

#: Bytes of one element of inputs and states; products are summed, and states kept, in fp32.
ELEMENT_BYTES: Mapping[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4}
#: Matrix instructions take at least this depth of 16-bit operands; a tile of weights is never shallower.
MIN_DEPTH = 16
#: Partial sums of a dot are fp32.
PARTIAL_BYTES = 4
#: A reset flag is as wide as the copies into shared memory are at least.
FLAG_BYTES = 4
#: Slices of a dot's depth for which a split tile's size is stated; fewer pad no further.
USUAL_SLICES = 8


@dataclass(frozen=True)
class Layer:
    """One direction of one layer: what the expressions need to know of the workload.

    Args:
        cell: The cell.
        direction: "forward" or "backward".
        head_dim: D.
        element_bytes: Bytes of one element.
        num_products: Matrix products per dot: three where fp32 is put together from tf32.
    """

    cell: Cell
    direction: str
    head_dim: int
    element_bytes: int
    num_products: int = 1

    @property
    def num_slots(self) -> int:
        """Pre-activations per step: the GRU keeps its candidate's two parts apart."""
        return 1 if self.cell.num_gates == 1 else 4

    @property
    def num_dots(self) -> int:
        """Recurrent products per step."""
        return self.cell.num_gates

    @property
    def num_loads(self) -> int:
        """Tiles loaded per step."""
        if self.direction == "forward":
            return self.cell.num_gates
        pre_activations = self.cell.num_gates + (self.cell.num_gates == 3)
        states = 1 if self.cell.num_gates == 3 else 2 * (self.cell.num_states - 1)
        return pre_activations + states + 1

    @property
    def padded_dim(self) -> int:
        """D as one tile: the next power of two."""
        return max(MIN_DEPTH, 1 << (self.head_dim - 1).bit_length())

    def exchanged_depth(self, slices: int) -> tuple[int, int]:
        """Depth of the dot over what a group exchanges, in two parts."""
        return depth_parts(self.head_dim * (1 if self.direction == "forward" else self.num_dots), slices)

    @property
    def exchanged_slots(self) -> int:
        """Tiles of `tile_out` columns that the exchanged dot computes."""
        return self.num_slots if self.direction == "forward" else 1


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
    wanted = ("tf32" if gpu.vendor == "nvidia" else "fp32") if dtype in ("fp32", "tf32") else dtype
    kinds = {instruction.kind for instruction in gpu.matrix_shapes(wanted)}
    # So few rows fit mma.sync alone on NVIDIA, also where there is wgmma or tcgen05.
    if kinds and gpu.vendor == "nvidia" and float(gpu.arch.compute_capability or 0) >= 8.0:
        return "mma"
    for kind in ("mfma", "wmma") if gpu.vendor == "amd" else ():
        if kind in kinds:
            return kind
    raise UnsupportedError(
        f"Triton has no matrix instruction for {dtype} recurrences on {gpu.name} ({gpu.arch.target}). "
        "Use another dtype, or the back-end 'alternating', which runs anywhere."
    )


def is_exchanged(v: Vars) -> Expr:
    """1 where several programs share a head and exchange states, 0 where one program has the whole head."""
    return minimum(1, v["row_split"] - 1)


def smem_bytes(gpu: GpuModel, layer: Layer, v: Vars) -> Expr:
    """Upper bound of the shared memory (LDS) of one program.

    Weights pass through shared memory once, before the loop, on their way into registers; the loop's buffers reuse
    that space.
    """
    tile = v["tile_batch"] * v["tile_out"] * layer.element_bytes
    # Three products of tf32 bring each weight twice (rounded, and what is left), one weight after the other.
    matrices = max(layer.num_dots, 2 if layer.num_products > 1 and gpu.vendor == "nvidia" else 1)
    weights = matrices * layer.padded_dim**2 * layer.element_bytes
    # Two operands of the first dots stay beside the weights; later the loads in flight and the dots' operands
    # (an fp32 tile on its way into another layout among them), and the flags of resets.
    operands = max(2 * layer.num_slots, 3)
    # Gradients of the other states need not be given, but may be.
    loads = layer.num_loads + (layer.cell.num_states - 1 if layer.direction == "backward" else 0)
    in_loop = (loads * (v["num_stages"] - 1) + operands) * tile
    in_loop += v["tile_batch"] * (v["num_stages"] - 1) * FLAG_BYTES
    alone = maximum(weights + 2 * tile, in_loop)
    use = is_exchanged(v)
    return use * _exchange_smem(gpu, layer, v) + (1 - use) * alone


def _exchange_smem(gpu: GpuModel, layer: Layer, v: Vars) -> Expr:
    """The same where a head is split: weights, what is gathered, and the sums over slices of the depth."""
    rows, element = v["tile_batch"], layer.element_bytes
    usual, more = layer.exchanged_depth(USUAL_SLICES), layer.exchanged_depth(2 * USUAL_SLICES)
    # Twice as many slices as usual may pad further.
    has_more = v["split_depth"] * (v["num_warps"] // (2 * USUAL_SLICES))
    width = layer.exchanged_slots * v["tile_out"]
    partial = v["split_depth"] * v["num_warps"] * rows * width * PARTIAL_BYTES
    if gpu.vendor == "amd":
        # One after the other through the same LDS.
        main = maximum(const(usual[0]), has_more * more[0])
        return maximum(maximum(main * width, main * rows) * element, partial)
    # Three products of tf32 keep each weight as two.
    width = width * (2 if layer.num_products > 1 else 1)
    operands = maximum(_both_operands(usual, width, rows), has_more * _both_operands(more, width, rows))
    # A tile of what is loaded for the cell may change its layout meanwhile.
    return operands * element + partial + rows * v["tile_out"] * PARTIAL_BYTES


def _both_operands(depth: tuple[int, int], width: Expr, rows: Expr) -> Expr:
    """Elements of a dot in two parts: both parts of what is gathered, or both of the weights, are there at once."""
    main, rest = depth
    return maximum(main * width + (main + rest) * rows, (main + rest) * width + main * rows)


def weight_words(layer: Layer, v: Vars, num_threads: Expr) -> Expr:
    """32-bit registers per thread that hold recurrent weights."""
    alone = ceildiv(layer.num_dots * layer.padded_dim**2 * layer.element_bytes, 4 * num_threads)
    depth = sum(layer.exchanged_depth(USUAL_SLICES))
    together = ceildiv(depth * layer.exchanged_slots * v["tile_out"] * layer.element_bytes, 4 * num_threads)
    use = is_exchanged(v)
    return (use * together + (1 - use) * alone) * (2 if layer.num_products > 1 else 1)


@dataclass(frozen=True)
class RegisterModel:
    """Registers per thread in hundredths.

    Args:
        base: Addresses, counters, temporaries.
        weights: Per register of recurrent weights.
        elements: Per element of the pre-activations, states and loads that a thread has.
        gathered: Per register that the exchanged state passes through.
        in_flight: Per element loaded ahead (AMD keeps them in registers).
        margin: What spills is decided by margin / 100 times the estimate ...
        in_flight_bound: ... and this much per element loaded ahead.
    """

    base: int
    weights: int
    elements: int
    gathered: int
    in_flight: int = 0
    margin: int = 100
    in_flight_bound: int = 0


#: Chosen to separate what spills from what does not in `tests/data/triton_rnn_resources.csv`. Compilers take as many
#: registers as a thread can have where it helps, so kernels come out larger than estimated, AMD's by far.
REGISTER_MODELS = {
    ("nvidia", "forward"): RegisterModel(4500, 130, 160, 150),
    ("nvidia", "backward"): RegisterModel(5000, 125, 60, 80),
    ("amd", "forward"): RegisterModel(3800, 104, 86, 118, 163, 120, 400),
    ("amd", "backward"): RegisterModel(5100, 78, 110, 114, 96, 120, 1250),
}


def _loaded_ahead(layer: Layer, v: Vars, elements: Expr) -> Expr:
    return elements * layer.num_loads * (v["num_stages"] - 1)


def _elements(v: Vars, num_threads: Expr) -> Expr:
    """Elements of one tile that a thread has; eight rows are the fewest a matrix instruction yields."""
    return ceildiv(maximum(v["tile_batch"], 8) * v["tile_out"], num_threads)


def registers_per_thread(gpu: GpuModel, layer: Layer, v: Vars) -> Expr:
    """Estimated 32-bit registers per thread (on CDNA the total of the unified file)."""
    model = REGISTER_MODELS[gpu.vendor, layer.direction]
    num_threads = v["num_warps"] * gpu.sm.warp_size
    elements = _elements(v, num_threads)
    values = layer.num_slots + layer.cell.num_states + (layer.num_loads if layer.direction == "backward" else 0)
    gathered = is_exchanged(v) * ceildiv(
        sum(layer.exchanged_depth(USUAL_SLICES)) * v["tile_batch"] * layer.element_bytes, 4 * num_threads
    )
    hundredths = const(model.base) + model.weights * weight_words(layer, v, num_threads)
    hundredths += model.elements * elements * values + model.gathered * gathered
    return (hundredths + model.in_flight * _loaded_ahead(layer, v, elements)) // 100


def registers_bound(gpu: GpuModel, layer: Layer, v: Vars) -> Expr:
    """Registers per thread that the compiler may need; beyond the limit it spills."""
    model = REGISTER_MODELS[gpu.vendor, layer.direction]
    elements = _elements(v, v["num_warps"] * gpu.sm.warp_size)
    hundredths = model.margin * registers_per_thread(gpu, layer, v)
    return (hundredths + model.in_flight_bound * _loaded_ahead(layer, v, elements)) // 100


def pow2_at_least(value: int) -> int:
    """The next power of two."""
    return 1 << max(0, value - 1).bit_length()


def padded_columns(head_dim: int, row_split: int) -> int:
    """Columns of one program's tile."""
    columns = pow2_at_least(-(-head_dim // row_split))
    return max(8 if row_split > 1 else MIN_DEPTH, columns)
