"""Functions of the compiled core.

Those of the solver answer None where they decline the problem; they raise ValueError, TypeError or IndexError for
arguments that do not belong together, and RuntimeError for an object that another call is using. Those that take long
give the interpreter's lock up, look at signals, and ask `poll` with the combinations so far.

Those of launches raise TypeError, ValueError or OverflowError for what they do not take, and RuntimeError with the
driver's words where a call of the driver fails.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

#: Version of these signatures and of the encoding.
INTERFACE: int

Model = object
Space = object
Walk = object
BestSearch = object
# Takes the combinations so far, and whether the search has done so much work that it counts as hard.
Poll = Callable[[int, bool], object] | None
# Per variable the values that are left (int64), and whether there is only one.
Axes = list[tuple[bytearray, bool]]
# Variables that no table above has, their columns of positions (uint8 up to 256 values, else uint16), where each group
# of rows begins and the last ends (uint32), and per table below its place and the group that every row takes (uint32).
Table = tuple[list[int], list[bytearray], bytearray, list[tuple[int, bytearray]]]
# The GPU's driver, a kernel's launches, and the plans of an operation.
Driver = object
Plan = object
PlanTable = object
# ("bytes", one to eight bytes), ("integer", bytes, slot, shift), ("fp32", slot), ("fp64", slot), or ("map", slot,
# shift, the driver's number of the dtype, its bytes, swizzle, whether padding is NaN, block, shape, strides).
LaunchArgument = Sequence[object]
# ("fill", slot, shift, words of four bytes, what each becomes), or ("kernel", handle, grid, threads, shared bytes,
# blocks of a cluster, whether all blocks run at once, whether it may begin before its predecessor ends, arguments), or
# ("product", operations of A and B, (m, n, k), types of A, B and C, their strides, their slots), as cublasGemmEx does,
# or ("matmul", handle, description, layouts of A, B, C and D, (alpha, beta), algorithm, bytes of workspace, slots of A,
# B, C, D, the bias and the workspace, -1 for none of the last two), as cublasLtMatmul does.
LaunchStep = Sequence[object]
# What a slot's value must be: ("multiple", slot, of), ("equal", slot, to) or ("int32", slot, 0).
Demand = Sequence[object]
# ("limit", "cells" | "rows" | "bytes", how many, variables of the table)
Limit = tuple[str, str, int, list[int]]

def read(
    params: Mapping[str, Sequence[int]], restrictions: Sequence[str], reserved: AbstractSet[str]
) -> tuple[Model, list[int]] | None:
    """Reads parameters and restrictions; also the numbers of the restrictions that it could not read."""

def build(domains: list[list[int]], codes: list[list[int]]) -> Model | None:
    """Builds a model from listed domains and encoded conditions."""

def require(model: Model, code: list[int]) -> bool | None:
    """Adds an encoded condition."""

def enumerate(
    model: Model, max_cells: int, max_rows: int, max_bytes: int, poll: Poll
) -> tuple[str, Space, list[int], int, int, int, int] | tuple[str, int] | Limit | None:
    """("space", space, solutions of each part, cells, rows, tables, bytes), ("infeasible", cells) or a limit."""

def enumerate_by(
    model: Model, way: int
) -> tuple[str, Space, list[int], int, int, int, int] | tuple[str, int] | Limit | None:
    """The same, listed in one way: 0 as the work so far says, 1 tables, 2 depth-first search, 3 decision diagrams."""

def columns(space: Space, rows: int) -> list[tuple[int, bytearray, int]] | None:
    """Per variable the bytes of a value, and in what and from which byte the values of all solutions lie."""

def factors(space: Space) -> tuple[Axes, list[int | list[Table]]] | None:
    """The axes, and the parts: a free variable, or the tables of a tree (those above first) or a diagram's layers."""

def walk(
    model: Model, max_cells: int, poll: Poll
) -> tuple[str, Walk, list[list[int]], Axes] | tuple[str] | Limit | None:
    """("walk", walk, variables of each component, axes), ("infeasible",) or a limit."""

def walk_next(
    walk: Walk, component: int, max_cells: int, poll: Poll
) -> tuple[str, int, list[int]] | tuple[str, int] | Limit | None:
    """("row", cells, positions), ("end", cells) or a limit."""

def walk_to_end(walk: Walk, component: int, max_cells: int, poll: Poll) -> tuple[str, int] | Limit | None:
    """Goes on to the last solution: ("end", cells) or a limit; `walk_state` says how far it came."""

def walk_state(walk: Walk, component: int) -> tuple[int, float]:
    """How many solutions of the component were walked, and the share of the search that is behind, from 0 to 1."""

def best_search(
    model: Model,
    goals: Sequence[tuple[list[int], bool]],
    num_best: int,
    hints: Sequence[tuple[int, int]],
    max_cells: int,
    poll: Poll,
) -> BestSearch | Limit | None:
    """Prepares a search for the best solutions by encoded objectives, each with whether it is maximised, in order.

    `hints` are variables with a value that is tried first.
    """

def best_run(search: BestSearch, max_cells: int, max_decisions: int, poll: Poll) -> bool | Limit | None:
    """Goes on with it: True where it came to its end, False after so many decisions; other threads run meanwhile."""

def best_state(search: BestSearch) -> tuple[list[list[int]], int, int, bool]:
    """The best solutions so far (a value of every variable), what it knows and what it did.

    That is a bound on the first objective (the negative one where it is maximised), the number of decisions, and
    whether an objective had no value in some solution.
    """

def ring() -> None:
    """Makes every search that runs in this process ask its `poll` at once."""

def driver(kind: str, library: str) -> Driver:
    """Opens a driver, "cuda" or "hip"; OSError where there is none, or it lacks what is needed."""

def current(driver: Driver) -> int:
    """What is current in this thread: the address of a context, or a HIP device's number plus one; 0 for nothing."""

def load_kernel(driver: Driver, image: bytes, name: str) -> tuple[int, int, int, int]:
    """Loads a kernel for good: its handle, registers and local bytes of a thread, and the most threads of a block."""

def allow_kernel(driver: Driver, handle: int, shared_bytes: int, cluster: int) -> None:
    """Lets a kernel be launched with so much dynamic shared memory, and in clusters of so many blocks."""

def resident_blocks(
    driver: Driver, handle: int, threads: int, shared_bytes: int, cluster: int, num_sms: int
) -> int | None:
    """Blocks of a kernel that are resident on so many SMs at the same time; None where the driver does not tell."""

def parameter_bytes(driver: Driver, handle: int) -> list[int]:
    """Bytes of each of a kernel's parameters; none where the driver does not tell."""

def plan(driver: Driver, slots: int, steps: Sequence[LaunchStep], demands: Sequence[Demand]) -> Plan:
    """Lays out steps whose addresses and numbers are filled in from slots, for what is current in this thread."""

def launch(plan: Plan, stream: int, *values: object) -> bool:
    """Enqueues a plan; False where another context is current or the values are not what it demands.

    A slot takes a tensor, an integer of 64 bits, None for 0, what has `data_ptr()`, or a number of floating point.
    """

def use_blas(multiply: int, set_math_mode: int, handle: Callable[[], int]) -> None:
    """States where cublasGemmEx and cublasSetMathMode are, and what gives this thread's handle on its stream."""

def use_matmul(multiply: int, set_attribute: int) -> None:
    """States where cublasLtMatmul and cublasLtMatmulDescSetAttribute are."""

def use_tensors(exchange: object, tensor: type, parameter: type) -> bool:
    """States which classes' objects an exchange interface of DLPack reads; False where it is another version of it."""

def table(
    capacity: int,
    allocate: Callable[..., object],
    counters: Callable[[int, int, int], int],
    listeners: tuple[Callable[[], object], ...],
    precision: Callable[[], object] | None,
    has_grad: Callable[[], object],
) -> PlanTable:
    """A table of plans by how their calls' tensors lie in memory.

    `allocate` makes a tensor, `counters` gives the address of zeroed words of (device, stream, how many) or 0,
    `listeners` must all be false for a call to go by its plan, `precision` is asked where a tensor has 32-bit floats,
    and `has_grad` says whether gradients are recorded.
    """

def table_call(table: PlanTable, is_inner: bool, extra: object, *tensors: object) -> object:
    """A call's results; None where such calls have no plan, True where gradients come first, False where it is new."""

def table_insert(
    table: PlanTable,
    extra: object,
    tensors: tuple[object, ...],
    plan: Plan | None,
    outputs: tuple[tuple[object, ...], ...],
    results: int,
    counters: int,
    is_open: bool = False,
) -> bool:
    """Learns a call: its plan, what it allocates, how many of that it returns, and the counters it needs.

    A function that is open runs calls that autograd records whatever listens.

    The plan's slots are the addresses of the tensors, of what is allocated, and of the counters if there are any.
    False where the call was known or is of a kind that has no plans.
    """

def table_drop(table: PlanTable, extra: object, tensors: tuple[object, ...]) -> bool:
    """Forgets a call; False where it was not known."""

def table_record(table: PlanTable, other: PlanTable) -> None:
    """Lets functions of the other table run calls of this one that autograd records; without one they are True."""

def table_clear(table: PlanTable) -> None:
    """Forgets all calls."""

def table_state(table: PlanTable) -> tuple[int, int, int]:
    """Entries, hits and misses."""
