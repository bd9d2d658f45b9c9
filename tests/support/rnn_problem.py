"""A constraint problem of the size of a fused recurrent kernel: launch shapes of its forward and backward pass.

One persistent block per multiprocessor keeps its share of the recurrent matrix R in registers and shared memory
for all time steps. The forward pass multiplies h (batch x D) with R (D x G*D), the backward pass multiplies the
gate gradients (batch x G*D) with R transposed. Both passes have the same kind of variables; they share none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from constrint.model import Domain, Problem, Var, ceildiv

GATES: Final = {"lstm": 4, "slstm": 4, "elman": 1}
STATES: Final = {"lstm": 2, "slstm": 4, "elman": 1}
BYTES: Final = {"bf16": 2, "fp32": 4}
TILE_K: Final = {"bf16": 16, "fp32": 8}
# NVIDIA H200: CUDA device properties.
NUM_SMS: Final = 132
REGISTERS_PER_SM: Final = 65_536
SMEM_BYTES_PER_BLOCK: Final = 232_448
MAX_THREADS: Final = 1_024
WARP_SIZE: Final = 32
# A row in shared memory is padded by 16 bytes against bank conflicts.
PADDING_BYTES: Final = 16


@dataclass(frozen=True)
class Case:
    """One request."""

    cell: str
    dtype: str
    head_dim: int
    batch: int

    @property
    def num_heads(self) -> int:
        """Heads of a layer of width 768, or one wide head."""
        return max(1, 768 // self.head_dim)

    def __str__(self) -> str:
        return f"{self.cell}-{self.dtype}-d{self.head_dim}-b{self.batch}"


def cases() -> list[Case]:
    """The requests of the benchmark; head dim 3072 does not fit with four gates."""
    dims = (64, 128, 256, 512, 768, 1024, 1536, 2048, 2560, 2688, 3072)
    return [Case(c, t, d, b) for c in GATES for t in BYTES for d in dims for b in (8, 16, 32, 64)]


def rnn_problem(case: Case) -> Problem:
    """Builds the problem of one request: 28 variables, in the order of preference of its lexicographic optimum."""
    problem = Problem(str(case))
    gates, dim = GATES[case.cell], case.head_dim
    _add_pass(problem, case, "fw", columns=gates * dim, depth=dim, extra_states=STATES[case.cell])
    _add_pass(problem, case, "bw", columns=dim, depth=gates * dim, extra_states=STATES[case.cell] + gates)
    return problem


def _add_pass(problem: Problem, case: Case, prefix: str, columns: int, depth: int, extra_states: int) -> None:
    size, tile_k = BYTES[case.dtype], TILE_K[case.dtype]

    def var(name: str, values: list[int]) -> Var:
        return problem.int_var(f"{prefix}_{name}", values=values)

    depth_tiles = depth // tile_k
    tile_batch = var("tile_batch", [32, 16, 8])
    tile_column = var("tile_column", [8, 16, 32])
    blocks_column = var("blocks_column", _divisors(columns, NUM_SMS))
    blocks_depth = var("blocks_depth", _divisors(depth_tiles, NUM_SMS))
    blocks_batch = var("blocks_batch", [1, 2, 4, 8])
    warps_column = var("warps_column", [8, 4, 2, 1])
    warps_depth = var("warps_depth", [1, 2, 4, 8])
    warps_batch = var("warps_batch", [1, 2, 4])
    loop_column = var("loop_column", _divisors(columns, 96))
    loop_batch = var("loop_batch", [1, 2, 4, 8])
    warp_tiles = var("warp_tiles", _divisors(depth_tiles, depth_tiles))
    register_tiles = var("register_tiles", list(range(depth_tiles, -1, -1)))
    smem_tiles = var("smem_tiles", list(range(depth_tiles + 1)))
    stages = var("stages", [2, 1])

    def add(rule: Any, because: str, name: str) -> None:
        problem.add(rule, because=because, name=f"{prefix}_{name}")

    warps = warps_column * warps_depth * warps_batch
    add(tile_batch * tile_column == 256, "a warp's matrix instructions cover 256 results", "warp_tile")
    add(
        blocks_column * warps_column * loop_column * tile_column == columns,
        "the columns of R are dealt out without remainder",
        "columns",
    )
    add(blocks_depth * warps_depth * warp_tiles == depth_tiles, "so are the tiles along the depth", "depth")
    add(
        blocks_batch * warps_batch * loop_batch == ceildiv(case.batch, tile_batch),
        "the tiles cover the batch",
        "batch",
    )
    add(
        blocks_column * blocks_depth * blocks_batch * case.num_heads <= NUM_SMS,
        "all blocks run at once, one per multiprocessor",
        "grid",
    )
    add(warps * WARP_SIZE <= MAX_THREADS // 4, "255 registers a thread need at most 256 threads", "threads")
    add(register_tiles + smem_tiles == warp_tiles, "every tile of R stays in registers or shared memory", "residence")
    # The next two follow from the last two; stated early, they end most of the search where it begins.
    capacity = 4 * REGISTERS_PER_SM + SMEM_BYTES_PER_BLOCK
    add(
        blocks_column * blocks_depth * capacity >= columns * depth * size,
        "the registers and shared memory of all blocks hold R",
        "capacity",
    )
    share = warps_column * warps_depth * loop_column * tile_column * tile_k * size
    accumulated = 4 * warps * 256 * loop_column * loop_batch
    add(share * warp_tiles + accumulated <= capacity, "those of one block hold its share", "share")
    weights = register_tiles * loop_column * (tile_column * tile_k * size // 4)
    accumulators = 256 * loop_column * loop_batch
    state = loop_batch * tile_batch * tile_k * stages * size // 4
    add(
        warps * (weights + accumulators + state) <= REGISTERS_PER_SM,
        "weights, accumulators and the state tile are in registers",
        "registers",
    )
    kept = smem_tiles * tile_k * warps_depth * (warps_column * loop_column * tile_column * size + PADDING_BYTES)
    partial = warps_depth * warps_column * loop_column * tile_column * warps_batch * loop_batch * tile_batch * 4
    exchanged = extra_states * warps_batch * loop_batch * tile_batch * size * stages * 16
    add(
        kept + partial + exchanged <= SMEM_BYTES_PER_BLOCK,
        "the rest of R, partial sums and states are in shared memory",
        "smem",
    )


def _divisors(number: int, largest: int) -> list[int]:
    return [d for d in range(1, min(number, largest) + 1) if number % d == 0]


def with_preferences(problem: Problem, wide: bool = False) -> Problem:
    """Adds one objective per variable, in declared order: its values are listed in order of preference.

    Args:
        problem: The problem; in each of its lists the values rise or fall.
        wide: Whether variables that divide something become plain positive integers: only the rules bound them then.
    """
    asked = Problem(problem.name)
    free = ("blocks_depth", "blocks_column", "warp_tiles")
    for name, domain in problem.variables.items():
        asked.declare(name, Domain.positive() if wide and name[3:] in free else domain)
    for rule in problem.constraints:
        asked.add(rule)
    for name, domain in problem.variables.items():
        values = list(domain)
        if len(values) > 1 and values[0] > values[1]:
            asked.maximise(Var(name))
        else:
            asked.minimise(Var(name))
    return asked
