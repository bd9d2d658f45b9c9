"""The parameter spaces of the recurrent Triton kernels, forward and backward, for any modelled GPU.

They stand beside `kernel_forward.py` and `kernel_backward.py` so that a reviewer can check the constraints against the
code. The two directions are problems of their own: they share no parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn import resources
from constrint.kernels.rnn.cells import CELLS, Cell
from constrint.kernels.rnn.cost import rnn_assumptions, rnn_cost, roofline_s
from constrint.kernels.rnn.registers import REGISTER_MODELS, most_registers, registers_of
from constrint.kernels.rnn.resources import Layer
from constrint.kernels.rnn.shared_memory import smem_bytes
from constrint.model import Comparison, Problem, Var, all_of, ceildiv, implies, maximum, minimum
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse, add_block_limits
from constrint.select.spec import Candidate, Columns, Config, Param, Workload

#: Sizes and strides are 32-bit integers in the kernels.
MAX_SIZE = 2**31 - 1
#: A head is one tile of columns or is split over programs; beyond this no GPU has enough of them.
MAX_HEAD_DIM = 4096
SUFFIX = {"forward": "", "backward": "-backward"}


class RnnSpec:
    """One direction of a recurrent layer: states of all steps from projected inputs, or gradients of both."""

    size_names: tuple[str, ...] = ("batch", "time", "heads", "head_dim")
    dtypes: tuple[str, ...] = tuple(resources.ELEMENT_BYTES)
    order_params: tuple[str, ...] = ()
    free_params: tuple[str, ...] = ()

    def __init__(self, cell: Cell, direction: str) -> None:
        self.cell, self.direction = cell, direction
        self.name = cell.name + SUFFIX[direction]
        self.summary = f"{cell.name.upper()} over time, {direction}, heads of head_dim, Triton"

    def layer(self, workload: Workload) -> Layer:
        """What the resource expressions need to know."""
        element = resources.ELEMENT_BYTES[workload.dtype]
        products = 3 if workload.dtype == "fp32" else 1
        return Layer(self.cell, self.direction, workload.sizes["head_dim"], element, products)

    def default_workload(self, gpu: GpuModel) -> Workload:
        """16 sequences of 1,024 steps, 12 heads of 64, in bf16, or in fp16 on a GPU without bf16."""
        dtype = "bf16"
        try:
            resources.matrix_unit(gpu, dtype)
        except UnsupportedError:
            dtype = "fp16"
        return Workload(self.name, {"batch": 16, "time": 1024, "heads": 12, "head_dim": 64}, dtype)

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse sizes and dtypes that there are not, heads the kernels cannot take, and what memory cannot hold."""
        if workload.dtype not in self.dtypes:
            raise UnknownNameError("dtype", workload.dtype, self.dtypes)
        for name in self.size_names:
            size = workload.sizes[name]
            if not 1 <= size <= MAX_SIZE:
                raise UsageError(f"{name} must be between 1 and {MAX_SIZE} (32-bit sizes), got {size}.")
        dim = workload.sizes["head_dim"]
        if dim % 16 or dim > MAX_HEAD_DIM:
            raise UsageError(
                f"head_dim must be a multiple of 16 up to {MAX_HEAD_DIM}, got {dim}. Pad each head to "
                f"{min(MAX_HEAD_DIM, -(-dim // 16) * 16)}, or use the back-end 'alternating', which takes any size."
            )
        resources.matrix_unit(gpu, workload.dtype)
        needed, there = self._tensor_bytes(workload), gpu.memory.dram.size_bytes
        if needed > there:
            raise InfeasibleError(
                f"{workload} does not fit {gpu.name}: inputs, states and gates take {needed / 1e9:,.1f} GB, "
                f"the device has {there / 1e9:,.1f} GB. Split the batch or choose a larger GPU."
            )

    def _tensor_bytes(self, workload: Workload) -> int:
        batch, time, heads, dim = (workload.sizes[name] for name in self.size_names)
        rows = batch * time * heads * dim * resources.ELEMENT_BYTES[workload.dtype]
        return rows * (self.cell.num_gates * (2 if self.direction == "backward" else 1) + self.cell.num_states)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Batch tile, columns per program, how a head is split, warps, stages, where gates come from."""
        layer = self.layer(workload)
        dim = layer.head_dim
        narrow = (16, 8, 32, 64, 128) if gpu.vendor == "nvidia" else (16, 32, 64, 128)
        columns = tuple(c for c in narrow if c < dim)
        power = "powers of two, as Triton's block shapes must be"
        splits = tuple(dict.fromkeys((1, *(-(-dim // c) for c in columns))))
        what = "1: gates are not stored, the backward pass computes them again"
        if self.direction == "backward":
            what = "1: gates are computed again by one GEMM over all steps"
        rows = (8, 16, 32, 64) if gpu.vendor == "nvidia" else (16, 32, 64)
        return (
            Param("tile_batch", rows, "sequences per program", power),
            Param("tile_out", (layer.padded_dim, *(c for c in columns if c != layer.padded_dim)), "columns", power),
            Param("row_split", splits, "programs that share a head", "head_dim over the columns of a program"),
            Param("num_warps", (8, 4, 2, 16, 1), "warps (waves) per program", "Triton takes powers of two"),
            Param("num_stages", (3, 2, 4, 1), "steps whose inputs are in flight, and one", "deeper ones gain nothing"),
            Param("split_depth", (0, 1), "1: each warp takes a share of the dot's depth", "a switch"),
            Param("recompute", (0, 1), what, "a switch"),
        )

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """State the space; every limit comes from the GPU model, every rule carries its reason."""
        problem = Problem(self.name)
        v: dict[str, Var] = {}
        for param in self.params(gpu, workload):
            v[param.name] = problem.int_var(param.name, values=list(param.values), because=param.because)
        self._add_split_rules(problem, gpu, workload, v)
        self._add_warp_rules(problem, gpu, workload, v)
        add_block_limits(problem, gpu, self.use(gpu, workload, problem))
        return problem

    def _add_split_rules(self, problem: Problem, gpu: GpuModel, workload: Workload, v: dict[str, Var]) -> None:
        layer = self.layer(workload)
        add, exchanged = problem.add, v["row_split"] > 1
        add(
            v["row_split"] == ceildiv(layer.head_dim, v["tile_out"]),
            name="columns_owned",
            because="every column of a head belongs to one program",
        )
        add(
            implies(v["row_split"] == 1, v["tile_out"] == layer.padded_dim),
            name="whole_head",
            because=f"a head in one program is one tile of {layer.padded_dim} columns",
        )
        add(
            v["row_split"] <= gpu.device.sm_count,
            name="co_resident",
            because=f"programs that wait for each other run at once: {gpu.device.sm_count} fit, one on each "
            f"{'CU' if gpu.vendor == 'amd' else 'SM'}",
        )
        add(
            implies(exchanged, v["num_stages"] == 1),
            name="no_pipeline",
            because="a loop with a barrier is not pipelined; its inputs are loaded a step ahead instead",
        )
        add(
            implies(v["split_depth"] == 1, exchanged),
            name="depth_of_exchange",
            because="a state in registers is read by every warp anyway",
        )
        limit = max(8, resources.pow2_at_least(workload.sizes["batch"]))
        if limit < 64:
            smallest = 8 if gpu.vendor == "nvidia" else 16
            add(
                v["tile_batch"] <= max(limit, smallest, 16),
                name="tile_batch_in_batch",
                because="a larger tile would compute nothing but padding",
            )

    def _add_warp_rules(self, problem: Problem, gpu: GpuModel, workload: Workload, v: dict[str, Var]) -> None:
        layer = self.layer(workload)
        across = 8 if gpu.vendor == "nvidia" else 16
        whole = f"each warp owns whole matrix instructions, {across} columns wide; more warps would repeat work"
        problem.add(
            implies(v["row_split"] == 1, across * v["num_warps"] <= v["tile_out"]), name="warps_busy", because=whole
        )
        problem.add(
            implies(
                v["split_depth"] == 0,
                across * v["num_warps"] <= maximum(across, layer.exchanged_slots * v["tile_out"]),
            ),
            name="warps_busy_exchange",
            because=whole,
        )
        if gpu.vendor == "amd":
            problem.add(
                implies(
                    all_of(v["tile_batch"] == 32, v["split_depth"] == 0),
                    32 * v["num_warps"] <= maximum(32, layer.exchanged_slots * v["tile_out"]),
                ),
                name="warps_side_by_side",
                because="instructions for 32 rows are 32 columns wide; more warps would each do all of the work",
            )
        depth = layer.head_dim * (1 if self.direction == "forward" else layer.num_dots)
        problem.add(
            implies(v["split_depth"] == 1, 16 * v["num_warps"] <= depth),
            name="slices_filled",
            because="a warp's share of the depth fills a matrix instruction, 16 deep",
        )

    def use(self, gpu: GpuModel, workload: Workload, problem: Problem) -> BlockUse:
        """Warps, registers and shared memory of one program."""
        v = {name: Var(name) for name in problem.variables}
        layer = self.layer(workload)
        estimate = registers_of(gpu, layer, v, REGISTER_MODELS, "estimate")
        return BlockUse(
            warps=v["num_warps"],
            registers_per_thread=minimum(estimate, most_registers(gpu, v)),
            smem_bytes=smem_bytes(gpu, layer, v),
            registers_bound=registers_of(gpu, layer, v, REGISTER_MODELS, "bound"),
        )

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        return rnn_cost(gpu, self.layer(workload), workload, columns, blocks_per_sm)

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """The least time any implementation could take: bytes and operations, whatever the order of steps."""
        return roofline_s(gpu, self.layer(workload), workload)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """What no source states for this GPU and had to be assumed."""
        return rnn_assumptions(gpu)


SPECS = {spec.name: spec for cell in CELLS.values() for spec in (RnnSpec(cell, "forward"), RnnSpec(cell, "backward"))}


def workload_of(cell: str, sizes: tuple[int, int, int, int], dtype: str, direction: str = "forward") -> Workload:
    """The workload of a layer with sizes (batch, time, heads, head_dim)."""
    return Workload(cell + SUFFIX[direction], dict(zip(RnnSpec.size_names, sizes, strict=True)), dtype)


def predict_s(gpu: GpuModel, workload: Workload, config: Config) -> float:
    """Predicted seconds of one configuration."""
    from constrint.select.rank import predict

    spec = SPECS[workload.kernel]
    columns = {name: np.array([value]) for name, value in config.items()}
    return float(predict(spec, gpu, workload, spec.problem(gpu, workload), columns).seconds[0])


@dataclass(frozen=True)
class Refusal:
    """A configuration that a device refused, although every rule holds.

    Args:
        config: The configuration.
        what: Triton's name of what there is too little of.
        required: How much of it the compiled kernel takes.
        limit: How much there is.
    """

    config: Config
    what: str
    required: int
    limit: int

    def rule(self, use: BlockUse) -> Comparison:
        """What a next choice keeps: shared memory that still fits if as much too small was predicted for it."""
        if self.what == "shared memory" and 0 < self.limit < self.required:
            return use.smem_bytes <= use.smem_bytes.value(self.config) * self.limit // self.required
        return Var("num_warps") != self.config["num_warps"]


#: What devices refused, by the same keys as `_BEST`.
_REFUSED: dict[tuple[object, ...], tuple[Refusal, ...]] = {}
#: First choices by (name of the GPU's model, and what was asked), with the model they hold for.
_BEST: dict[tuple[object, ...], tuple[GpuModel, Candidate]] = {}


def best_config(
    gpu: GpuModel,
    cell: str,
    sizes: tuple[int, int, int, int],
    dtype: str,
    direction: str,
    *,
    recompute: bool | None = None,
) -> Config:
    """The configuration with the least predicted time for (batch, time, heads, head_dim).

    Args:
        gpu: The hardware model.
        cell: A cell's name.
        sizes: Batch, time, heads, head dimension.
        dtype: One of the spec's dtypes.
        direction: "forward" or "backward".
        recompute: Whether gates are computed again instead of stored; None leaves it to this direction alone.

    Raises:
        InfeasibleError: When none fits; carries the conflict.
        UsageError: When the layer is not one the kernels take.
    """
    return _best(gpu, cell, sizes, dtype, direction, recompute=recompute).config


def refuse(
    gpu: GpuModel,
    cell: str,
    sizes: tuple[int, int, int, int],
    dtype: str,
    direction: str,
    *,
    refusal: Refusal,
    recompute: bool | None = None,
) -> Config:
    """Remember that a device refused a choice, and choose again; later calls of `best_config` follow.

    Raises:
        InfeasibleError: When nothing else fits; carries the conflict.
    """
    key = (gpu.name, cell, sizes, dtype, direction, recompute)
    known = _REFUSED.get(key, ())
    if refusal not in known:
        _REFUSED[key] = (*known, refusal)
        _BEST.pop(key, None)
    return best_config(gpu, cell, sizes, dtype, direction, recompute=recompute)


def recompute_pays(gpu: GpuModel, cell: str, sizes: tuple[int, int, int, int], dtype: str) -> bool:
    """Whether both directions together are predicted to be faster if gates are computed again, not stored."""
    seconds = [
        sum(_best(gpu, cell, sizes, dtype, d, recompute=again).cost.seconds for d in SUFFIX) for again in (False, True)
    ]
    return seconds[1] < seconds[0]


def _best(
    gpu: GpuModel,
    cell: str,
    sizes: tuple[int, int, int, int],
    dtype: str,
    direction: str,
    *,
    recompute: bool | None,
) -> Candidate:
    from constrint.select.rank import rank

    key = (gpu.name, cell, sizes, dtype, direction, recompute)
    model, found = _BEST.get(key, (None, None))
    if model is gpu and found is not None:
        return found
    workload = workload_of(cell, sizes, dtype, direction)
    spec = SPECS[workload.kernel]
    spec.check_workload(gpu, workload)
    problem = spec.problem(gpu, workload)
    if recompute is not None:
        problem.add(Var("recompute") == int(recompute), because="the other direction was launched so")
    for refusal in _REFUSED.get(key, ()):
        problem.add(
            refusal.rule(spec.use(gpu, workload, problem)),
            because=f"the device refused {dict(refusal.config)}: {refusal.required} of {refusal.what} required, "
            f"the limit is {refusal.limit}",
        )
    found = rank(spec, gpu, workload, top=1, problem=problem).candidates[0]
    _BEST[key] = (gpu, found)
    return found
