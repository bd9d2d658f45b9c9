"""The candidates for one product, in order: the measured winner, our kernels and torch's own product by expected time.

Each kernel's table (`tables.py`) gives its best rows in microseconds; their times are corrected by the errors that the
kernel's model showed on measured products (`correction.py`). Among kernels within `TIE` of the least time the order
of preference decides. Then the library, alone or followed by a pointwise kernel, competes with the best of them
(`library/candidates.py`). No torch, no triton.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from constrint.choose.candidates import program_of_winner
from constrint.choose.decide import REGISTERS, Refusal, care_after, decide
from constrint.choose.decision import Decision, ErrorBand, Evidence, Program, Request, Step
from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.correction import FIRST, Corrector, corrector_of, path_for
from constrint.kernels.gemm.implementations import ACTIVATIONS
from constrint.kernels.gemm.library.candidates import (
    COMPOSED,
    COPIED_HOST_S,
    DIRECT_DTYPES,
    LIBRARY_HOST_S,
    beats_library,
    composition,
    estimated,
    library_program,
    reason_for,
    unmeasured_composition,
    unmeasured_library,
)
from constrint.kernels.gemm.library.spec import LIBRARY
from constrint.kernels.gemm.measured import MEASURED
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec, gemm_spec, gemm_specs
from constrint.kernels.gemm.tables import TIE, ConfigTable, Tables
from constrint.kernels.gemm.units import unit
from constrint.model import Var
from constrint.select.candidate import Config
from constrint.select.limits import BlockColumns
from constrint.select.winners import listed, winner

#: After two choices that spilled: the chance to spill of a row of another kernel, at most, in millionths.
SURE_PPM = 10_000
#: Fields of a product that describe the call and this machine; a workload has none of them.
OF_CALL = ("has_nvrtc", "no_library", "no_library_end", "activation", "any_rows")
#: Kernels that copy operands which the TMA unit cannot load.
COPYING = frozenset(("gemm.descriptor",))
#: Fits every GPU: at most 24 KiB of shared memory and few registers, even where tl.dot becomes plain FMA.
CONSERVATIVE: Config = {
    "tile_m": 64,
    "tile_n": 32,
    "tile_k": 32,
    "num_warps": 4,
    "num_stages": 2,
    "split_k": 1,
    "persistent": 0,
    "group_m": 8,
}
#: Best configurations among which the first that serves any number of rows is taken.
NEAR = 32


def request_of(
    gpu: GpuModel | None, product: Product, *, device: Hashable = None, kernel: str = "", config: Config | None = None
) -> Request:
    """The request for one product; arguments as in `Request`."""
    return Request("gemm", product.workload, gpu, device, kernel=kernel, config=config, detail=product)


def product_of_request(request: Request) -> Product:
    """The product of a request: its detail, or contiguous operands as its workload says."""
    return request.detail if isinstance(request.detail, Product) else Product.of(request.workload)


def with_activation(request: Request, activation: str) -> Request:
    """The request for the same product that ends in an activation.

    Raises:
        UnknownNameError: When there is no such activation.
    """
    if activation not in ACTIVATIONS:
        raise UnknownNameError("activation", activation, ACTIVATIONS)
    product = replace(product_of_request(request), activation=activation)
    return replace(request, detail=product)


def alternatives(decision: Decision) -> list[Program]:
    """The candidates that were passed over, each with its configuration."""
    complete = []
    for program in decision.passed_over:
        name = program.name.partition(".")[2]
        if not program.refusal and program.name in {spec.full_name for spec in gemm_specs() if spec.has_tiles}:
            only = decide(replace(decision.request, kernel=name, config=None)).program
            config = only.step("product").config
            steps = (replace(s, config=config) if s.role == "product" else s for s in program.steps)
            program = replace(program, steps=tuple(steps))
        complete.append(program)
    return complete


def force_hint(decision: Decision) -> str:
    """Arguments of `matmul` by which a caller forces another candidate."""
    able = [p.name.partition(".")[2] for p in decision.programs if not p.refusal]
    other = able[1] if len(able) > 1 else able[0]
    return f'matmul(..., kernel="{other}"), with config={{...}} for one configuration; any of: {", ".join(able)}'


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The candidates in order; where nothing else fits a device, a configuration that fits every device.

    Candidates that are passed over come without configurations: `best_configs`, or a request that names the kernel,
    finds these.

    Raises:
        InfeasibleError: When nothing is valid, or a device refused everything.
        UnsupportedError: When the GPU has no unit for the dtype, or the kernel that the request names does not compute
            the product.
        UsageError: When the configuration that the request names is not valid; says which rule it breaks.
    """
    product, gpu = product_of_request(request), request.gpu
    if request.kernel:
        return [_only(request, product, refused)]
    if gpu is None:
        return [_conservative()]
    try:
        return _compared(gpu, product, refused, is_here=request.device is not None)
    except InfeasibleError as error:
        if refused:
            error = InfeasibleError(f"{refused[-1]}, and nothing else is left. {error}")
        if request.device is None or any(refusal.config == CONSERVATIVE for refusal in refused):
            raise error from None
        return [_conservative()]


def _compared(gpu: GpuModel, product: Product, refused: Sequence[Refusal], *, is_here: bool) -> list[Program]:
    """All candidates on a GPU: the first one runs, the others follow by expected time.

    On a device of this machine the library follows by an estimate where nothing near the product was measured.
    """
    measured = _measured(gpu, product, refused)
    leaders = _leaders(gpu, product, refused)
    libraries = [p for p in (library_program(gpu, product), composition(gpu, product)) if p and _is_left(p, refused)]
    if not leaders and not libraries and measured is None:
        raise InfeasibleError(f"no config of 'gemm' on {gpu.name} is valid for {product.workload}.")
    first = measured or _first(gpu, product, leaders, libraries)
    if product.any_rows:
        first = _for_any_rows(gpu, product, first, refused)
    passed_over = [leader.program(product) for leader in leaders if leader.name != first.name]
    passed_over += [program for program in libraries if program.name != first.name]
    if is_here and not libraries:
        passed_over += [p for p in (estimated(gpu, product),) if p and _is_left(p, refused) and p.name != first.name]
    passed_over.sort(key=lambda program: program.seconds or 0.0)
    shown = {first.name, *(program.name for program in passed_over)}
    return [first, *passed_over, *(p for p in _unable(gpu, product) if p.name not in shown)]


def _first(gpu: GpuModel, product: Product, leaders: list[_Leader], libraries: list[Program]) -> Program:
    """Our best kernel if its time is clearly less than the library's, else the library."""
    ours = _best_kernel(gpu, product, leaders) if leaders else None
    for library in libraries:
        if ours is None or not beats_library(gpu, product, ours, library):
            ours = replace(library, why=reason_for(library, ours))
    assert ours is not None  # `_compared` has raised
    return ours


@dataclass(frozen=True)
class _Leader:
    """A kernel's best rows for a product.

    Args:
        table: The kernel's table.
        rows: Rows that lead by the model.
        seconds: Their expected times.
        corrector: Its correction, where it was measured.
    """

    table: ConfigTable
    rows: NDArray[np.int64]
    seconds: NDArray[np.float64]
    corrector: Corrector | None

    @property
    def name(self) -> str:
        """The kernel's full name."""
        return self.table.spec.full_name

    def program(self, product: Product, row: int | None = None, seconds: float | None = None) -> Program:
        """The program of a row with its configuration; without a row, of the kernel alone."""
        least = float(self.seconds.min()) if seconds is None else seconds
        config = {} if row is None else self.table.whole_config(product, row)
        steps = _with_copy(self.table.gpu, product, Step("product", self.name, config, product.workload, {}, least))
        if self.corrector is None:
            return Program(
                self.name, steps, note=f"model's time x {self.table.spec.optimism_of(product):g}, the median error"
            )
        file = path_for(self.table.gpu, product).name
        band = ErrorBand(*self.corrector.errors, f"gemm/corrections/{file}, products left out of the fit")
        return Program(self.name, steps, note="model's time, corrected by measured products", band=band)


def _with_copy(gpu: GpuModel, product: Product, step: Step) -> tuple[Step, ...]:
    """The steps of a kernel; a copy of operands is a step of its own, with a share of the time."""
    if not product.copied_bytes or step.kernel not in COPYING or step.seconds is None:
        return (step,)
    copied = 2 * product.copied_bytes * product.batch
    copy_s = MEASURED.pack_s + copied / (gpu.memory.dram.bandwidth_bytes_per_s * MEASURED.pack_share)
    copy_s = min(copy_s, step.seconds)
    copy = Step("copy", step.kernel, workload=step.workload, seconds=copy_s)
    return copy, replace(step, seconds=step.seconds - copy_s)


def _best_kernel(gpu: GpuModel, product: Product, leaders: list[_Leader]) -> Program:
    """The kernel of the least time; among those within `TIE` of it the order of preference decides."""
    least = min(float(leader.seconds.min()) for leader in leaders)
    near = []
    for place, leader in enumerate(leaders):
        tied = leader.rows[leader.seconds <= (1 + TIE) * least]
        if len(tied):
            near.append((leader, int(tied.min()), place))
    if len(near) > 1:
        near.sort(key=lambda one: (_preference(one[0].table, one[1], product.dtype), one[2]))
    leader, row, _ = near[0]
    return leader.program(product, row, least)


def _preference(table: ConfigTable, row: int, dtype: str) -> tuple[int, ...]:
    """Place of a row in the order of preference of parameters that all kernels have; a missing value comes last.

    The first kernel's order of values counts.
    """
    config = {**table.spec.fixed, **table.config(row)}
    values = {p.name: p.values for p in gemm_specs()[0].tile_params(table.gpu, dtype)}
    shared = ("split_k", "tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "persistent")
    return tuple(_place(values[name], config.get(name)) for name in shared)


def _place(values: tuple[int, ...], value: int | None) -> int:
    return len(values) if value not in values else values.index(value)


def _for_any_rows(gpu: GpuModel, product: Product, first: Program, refused: Sequence[Refusal]) -> Program:
    """The best candidate whose kernel serves any number of rows; without one, the first candidate."""
    programs = [first, *(each.program for each in best_configs(gpu, product, NEAR, refused))]
    serving = (p for p in programs if len(p.steps) == 1 and gemm_spec(p.steps[0].kernel).serves_any_rows)
    return next(serving, first)


def _measured(gpu: GpuModel, product: Product, refused: Sequence[Refusal]) -> Program | None:
    """The measured winner of a product that a workload describes completely; None where there is none."""
    workload = product.workload
    if replace(Product.of(workload), **{name: getattr(product, name) for name in OF_CALL}) != product:
        return None
    if listed(gemm_specs()[0], gpu, workload, {}) is None:  # of most products: refusals need not be computed
        return None
    able = [spec for spec in gemm_specs() if not spec.refusal(gpu, product)]
    entry = winner(able, gpu, workload) if able else None
    if entry is None or any(refusal.config == entry.config for refusal in refused):
        return None
    if entry.kernel == LIBRARY and product.dtype not in DIRECT_DTYPES and entry.seconds < LIBRARY_HOST_S:
        return None  # the library won on the device's time, but here the device waits for the host
    return _with_end(program_of_winner(entry, request_of(gpu, product)), product.activation)


def _with_end(program: Program, activation: str) -> Program:
    """The winner of a product for the same product with an activation, with which nothing was measured."""
    if not activation:
        return program
    steps = tuple(replace(step, evidence=Evidence.MODELLED) for step in program.steps)
    return replace(program, steps=steps, band=None, note="measured winner of the product without its activation")


def _leaders(gpu: GpuModel, product: Product, refused: Sequence[Refusal] = (), top: int = FIRST) -> list[_Leader]:
    """Each kernel's `top` rows by its model with their expected times; kernels without a valid row are left out."""
    return [_leader(gpu, product, *each, top) for each in priced(gpu, product, refused) if len(each[1])]


def priced(
    gpu: GpuModel, product: Product, refused: Sequence[Refusal] = ()
) -> list[tuple[ConfigTable, NDArray[np.int64], NDArray[np.float64]]]:
    """Each table with its valid rows that no device refused, and their predicted seconds.

    After two refusals for spills only rows of another kernel, or with far fewer registers, count, if there are any.
    """
    every = [(table, *table.price(product)) for table in _tables(gpu, product)]
    if not refused:
        return every
    for is_wary in (True, False) if care_after(refused) else (False,):
        left = [_left(table, product, refused, is_wary=is_wary)[rows] for table, rows, _ in every]
        if any(each.any() for each in left):
            break
    return [(table, rows[is_left], s[is_left]) for (table, rows, s), is_left in zip(every, left, strict=True)]


def _left(table: ConfigTable, product: Product, refused: Sequence[Refusal], *, is_wary: bool) -> NDArray[np.bool_]:
    """Mask of a table's rows that the refusals leave."""
    left = np.ones(len(table), dtype=bool)
    for refusal in refused:
        if refusal.kernel == table.spec.full_name:
            use = table.spec.use(table.gpu, product.workload, {name: Var(name) for name in refusal.config})
            # A row stands for every order of tiles, which a block's resources do not depend on.
            of_row = replace(refusal, config={name: refusal.config[name] for name in table.columns})
            left &= of_row.rule(table.gpu, use, is_wary=is_wary).holds_columns(table.columns)
        elif is_wary and refusal.what == REGISTERS:
            left &= table.spill_ppm <= SURE_PPM
    return left


def _is_left(program: Program, refused: Sequence[Refusal]) -> bool:
    return all(refusal.kernel != program.name for refusal in refused)


def _leader(
    gpu: GpuModel, product: Product, table: ConfigTable, rows: NDArray[np.int64], seconds: NDArray[np.float64],
    top: int = FIRST, *, counts_host: bool = True,
) -> _Leader:  # fmt: skip
    """The rows that lead by the model, with expected times; all rows where the kernel's errors were not measured."""
    corrector = corrector_of(gpu, table.spec.full_name, product)
    if corrector is None:
        expected = seconds * table.spec.optimism_of(product)
    else:
        rows, expected = _corrected(gpu, product, table, rows, seconds, corrector, top)
    if counts_host and product.copied_bytes and table.spec.full_name in COPYING:
        # A call that copies an operand takes the host's time at least.
        expected = expected + max(0.0, COPIED_HOST_S - float(expected.min()))
    return _Leader(table, rows, expected, corrector)


def _corrected(
    gpu: GpuModel, product: Product, table: ConfigTable, rows: NDArray[np.int64], seconds: NDArray[np.float64],
    corrector: Corrector, top: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:  # fmt: skip
    """The `top` rows by the model and their corrected times."""
    if len(rows) > top:
        first = np.argpartition(seconds, top)[:top]
        rows, seconds = rows[first], seconds[first]
    columns = {name: table.columns[name][rows] for name in corrector.parameters if name in table.columns}
    expected = seconds * corrector.factors(gpu, product, columns, seconds)
    if len(rows) > FIRST:
        # Rows after the first ones were hardly measured: none of them is expected to beat all of the first.
        first = np.argpartition(seconds, FIRST)[:FIRST]
        expected = np.maximum(expected, expected[first].min())
    return rows, expected


def _tables(gpu: GpuModel, product: Product) -> Iterator[ConfigTable]:
    """The tables of the kernels that compute a product, in the operation's order."""
    tables = tables_of(gpu)
    if product.dtype not in tables.dtypes:
        unit(gpu, product.dtype)
        tables.dtypes.add(product.dtype)
    for spec in gemm_specs():
        if spec.has_tiles and spec.serves(product) and not (spec.refusal(gpu, product) or spec.uncalibrated()):
            yield tables.table(spec, product)


_TABLES: dict[int, Tables] = {}


def tables_of(gpu: GpuModel) -> Tables:
    """The tables of a GPU's model."""
    tables = _TABLES.get(id(gpu))
    if tables is None:
        tables = _TABLES[id(gpu)] = Tables(gpu)
    return tables


def forget_tables() -> None:
    """Drop every table, so that the next use reads or computes it again."""
    _TABLES.clear()
    _named_request.cache_clear()


def _unable(gpu: GpuModel, product: Product) -> Iterator[Program]:
    """The implementations that do not compute the product or are not predicted, each with the reason."""
    for spec in gemm_specs():
        reason = spec.refusal(gpu, product) or spec.uncalibrated()
        if not reason and not spec.serves(product):
            reason = "its predictions were checked on products with a shorter side alone"
        yield Program(spec.full_name, refusal=reason or "none of its configurations is valid for this product")


def decide_product(gpu: GpuModel, product: Product) -> Decision:
    """The decision for one product on a named GPU."""
    return decide(_named_request(tables_of(gpu), product))


@lru_cache(maxsize=65536)
def _named_request(tables: Tables, product: Product) -> Request:
    """The request for a product on a named GPU, cached: to look it up takes less than to build a workload."""
    return request_of(tables.gpu, product)


def best_configs(gpu: GpuModel, product: Product, top: int, refused: Sequence[Refusal] = ()) -> list[Decision]:
    """The `top` configurations of all kernels, and the library, by expected time after the one that runs."""
    product = replace(product, any_rows=False)
    library = library_program(gpu, product)
    ranked: list[tuple[float, _Leader | None, int]] = []
    if library is not None and _is_left(library, refused):
        ranked.append((library.seconds or 0.0, None, 0))
    for leader in _leaders(gpu, product, refused, max(top + 1, FIRST)):
        places = np.argsort(leader.seconds, kind="stable")[: top + 1]
        ranked += [(float(leader.seconds[at]), leader, int(leader.rows[at])) for at in places]
    programs = _compared(gpu, product, refused, is_here=False)[:1]
    for expected_s, of_leader, row in sorted(ranked, key=lambda one: one[0]):
        program = library if of_leader is None else of_leader.program(product, row, expected_s)
        if program is not None and all(_launched(program) != _launched(other) for other in programs):
            programs.append(program)
        if len(programs) >= top:
            break
    return [Decision(request_of(gpu, product), program) for program in programs[:top]]


def _launched(program: Program) -> tuple[str, Config]:
    """The name and the configuration of a program."""
    return program.name, program.steps[-1].config


def _conservative() -> Program:
    step = Step("product", "gemm.pointer", CONSERVATIVE)
    return Program(step.kernel, (step,), note="a configuration that fits every GPU")


def _only(request: Request, product: Product, refused: Sequence[Refusal]) -> Program:
    """The program of the kernel that a request names, measured or not, with the configuration that it names.

    Raises:
        UnsupportedError: When the kernel does not compute the product; says why.
        InfeasibleError: When none of its configurations is valid, or devices refused all of them.
        UsageError: When the named configuration is not valid; says which rule it breaks.
    """
    gpu = request.gpu
    if request.kernel == LIBRARY.partition(".")[2]:
        return unmeasured_library(gpu, product)
    if request.kernel == COMPOSED.partition(".")[2]:
        return unmeasured_composition(gpu, product)
    if gpu is None:
        raise UnsupportedError(f"matmul: kernel={request.kernel!r} needs a hardware model of the device.")
    spec = gemm_spec(f"gemm.{request.kernel}")
    unit(gpu, product.dtype)
    reason = spec.refusal(gpu, product)
    if reason:
        raise UnsupportedError(f"{spec.full_name} does not compute this product: {reason}.")
    if request.config is not None:
        return _with_config(gpu, product, spec, request.config, refused)
    for table, rows, seconds in _priced_alone(gpu, product, spec, refused):
        leader = _leader(gpu, product, table, rows, seconds, counts_host=False)
        at = int(np.argmin(leader.seconds))
        return leader.program(product, int(leader.rows[at]), float(leader.seconds[at]))
    after = f"{refused[-1]}, and nothing else is left. " if refused else ""
    raise InfeasibleError(f"{after}no config of {spec.full_name!r} on {gpu.name} is valid for {product.workload}.")


def _priced_alone(
    gpu: GpuModel, product: Product, spec: GemmSpec, refused: Sequence[Refusal]
) -> Iterator[tuple[ConfigTable, NDArray[np.int64], NDArray[np.float64]]]:
    """The valid rows of one kernel that no device refused, and their predicted seconds, if there are any."""
    table = tables_of(gpu).table(spec, product)
    rows, seconds = table.price(product)
    for is_wary in (True, False) if care_after(refused) else (False,):
        left = _left(table, product, refused, is_wary=is_wary)[rows]
        if left.any():
            yield table, rows[left], seconds[left]
            return


def _with_config(
    gpu: GpuModel, product: Product, spec: GemmSpec, config: Config, refused: Sequence[Refusal]
) -> Program:
    """The program of a configuration that the request names.

    Raises:
        UsageError: When the configuration is not valid, with every rule that it breaks and changes that mend it.
        InfeasibleError: When a device refused it.
    """
    from constrint.choose.explain import check_config  # loaded where a caller names a configuration

    if refused:
        raise InfeasibleError(f"{refused[-1]}; the call names this configuration, so nothing else is tried.")
    problem = spec.product_problem(gpu, product)
    check_config(spec.full_name, gpu, product.workload, problem, config)
    columns = {name: np.array([value], dtype=np.int64) for name, value in config.items()}
    use = spec.block_use(gpu, product, {n: Var(n) for n in problem.variables if n not in spec.free_params})
    blocks = BlockColumns.of(gpu, use, columns, problem.estimates)
    slowdown = blocks.slowdown(gpu)
    seconds = float((spec.price(gpu, product, columns, blocks.blocks_per_sm).seconds * slowdown)[0])
    step = Step("product", spec.full_name, dict(config), product.workload, {}, seconds * spec.optimism_of(product))
    return Program(spec.full_name, _with_copy(gpu, product, step), note="named by the caller")
