"""The model's first choice for one product, in about a millisecond: every kernel's space boiled down to a table.

Torch's own product has no space: its predicted time is compared with that of the best configuration.

A table is made once for each GPU, kernel, dtype and width of loads, and kept on disk: every valid configuration is
priced for a grid of shapes, and those that are among the best for some shape are kept. For a new shape only the table's
few hundred rows are priced, and the first of each kernel corrected by what their model was off by (`correction.py`); a
repeated shape is looked up. No torch, no triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.correction import FIRST, corrector_of
from constrint.kernels.gemm.library.choice import COPIED_HOST_S, better, library_choice, library_host_s
from constrint.kernels.gemm.library.spec import LIBRARY
from constrint.kernels.gemm.product import Operand, Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.table import MILLION, TIE, KeptTable, Table, closed_params
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES, unit
from constrint.kernels.registry import load_kernel
from constrint.model import Var
from constrint.select.core_space import BlockColumns
from constrint.select.first_choice import REGISTERS, Choice, Refusal, is_wary
from constrint.select.spec import Workload
from constrint.select.winners import when_reloaded, winner

#: After two choices that spilled, another kernel has to be so sure not to: its chance in millionths.
SURE_PPM = 10_000
#: What a product says of a call and of this machine, beside what its workload does.
OF_CALL = ("has_nvrtc", "no_library")
#: Kernels that have the operands copied which the TMA unit cannot load.
COPYING = frozenset(("gemm.descriptor",))
#: What devices refused, by GPU and product.
_REFUSED: dict[tuple[str, Product], tuple[tuple[str, Refusal], ...]] = {}


class _Key(NamedTuple):
    """What a table is made for.

    Args:
        spec: The kernel.
        dtype: Of A and B.
        width_a, width_b: Bytes of the widest access that their rows allow.
        options: Options of products that the kernel names, and facts of their operands (`a.is_copied`).
    """

    spec: GemmSpec
    dtype: str
    width_a: int
    width_b: int
    options: tuple[tuple[str, int], ...]


class _Model:
    """One GPU's model with the tables that were made for it; models are told apart by identity."""

    def __init__(self, gpu: GpuModel) -> None:
        self.gpu = gpu
        self.tables: dict[_Key, Table] = {}
        self.dtypes: set[str] = set()  # that it has a unit for


_MODELS: dict[int, _Model] = {}


def choose(gpu: GpuModel, product: Product) -> Choice:
    """The measured winner where there is one, else what has the least predicted time: a configuration, or the library.

    Raises:
        UnsupportedError: When the GPU has no unit for the dtype.
        InfeasibleError: When no configuration of the tables is valid, nor the library.
    """
    return _choose(_model(gpu), product)


@lru_cache(maxsize=65536)
def _choose(model: _Model, product: Product) -> Choice:
    gpu = model.gpu
    measured = _measured(gpu, product)
    if measured is not None:
        return measured
    leaders = [
        (float(cost.min()), place, table, rows, cost)
        for place, (table, rows, expected) in enumerate(_expected(gpu, product))
        for cost in (_called(product, table, expected),)
    ]
    library = library_of(gpu, product)
    if not leaders:
        if library is not None:
            return library
        raise InfeasibleError(f"no config of 'gemm' on {gpu.name} is valid for {product}.")
    least = min(leader[0] for leader in leaders)
    near = []
    for _, place, table, rows, cost in leaders:
        tied = rows[cost <= (1 + TIE) * least]
        if len(tied):
            row = int(tied.min())
            near.append((place, table, row))
    _, table, row = (
        near[0] if len(near) == 1 else min(near, key=lambda n: (_preference(n[1], n[2], product.dtype), n[0]))
    )
    config = table.whole_config(product, row)
    return better(product, Choice(gpu, table.spec.full_name, config, least, product.workload), library)


when_reloaded(_choose.cache_clear)


def _called(product: Product, table: Table, expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a call is expected to take: no less than the host, where an operand is copied first."""
    if not product.copied_bytes or table.spec.full_name not in COPYING:
        return expected
    return expected + max(0.0, COPIED_HOST_S - float(expected.min()))


def _measured(gpu: GpuModel, product: Product) -> Choice | None:
    """The measured winner, for a product that a workload describes wholly; None where there is none."""
    workload = product.workload
    of_call = {name: getattr(product, name) for name in OF_CALL}
    told = replace(Product.of(workload), **of_call)
    if told != product:
        return None
    if winner(gemm_specs(), gpu, workload) is None:  # most products: nobody asks who would refuse one
        return None
    able = [spec for spec in gemm_specs() if not spec.refusal(gpu, product)]
    entry = winner(able, gpu, workload) if able else None
    refused = _REFUSED.get((gpu.name, product), ())
    if entry is None or any(refusal.config == entry.config for _, refusal in refused):
        return None
    if entry.kernel == LIBRARY and entry.seconds < library_host_s(product):
        return None  # it was the fastest on the device, which waits for the host
    return Choice.of_winner(entry, gpu, workload)


def choose_of(gpu: GpuModel, product: Product, spec: GemmSpec) -> Choice:
    """The configuration of one kernel with the least predicted time, whatever that rests on.

    Raises:
        UnsupportedError: When the kernel does not compute the product, or the GPU has no unit for the dtype.
        InfeasibleError: When no configuration of its table is valid.
    """
    unit(gpu, product.dtype)
    reason = spec.refusal(gpu, product)
    if reason:
        raise UnsupportedError(f"{spec.full_name} does not compute this product: {reason}.")
    table = _table_of(gpu, product, spec)
    rows, seconds = table.price(product)
    if not len(rows):
        raise InfeasibleError(f"no config of {spec.full_name!r} on {gpu.name} is valid for {product}.")
    rows, expected = _corrected(gpu, product, table, rows, seconds)
    at = int(np.argmin(expected))
    config = table.whole_config(product, int(rows[at]))
    return Choice(gpu, spec.full_name, config, float(expected[at]), product.workload)


def best(gpu: GpuModel, product: Product, top: int) -> list[Choice]:
    """The `top` configurations of all tables, and the library, by expected time, first choice first."""
    library = library_of(gpu, product)
    expected: list[tuple[float, Table | None, int]] = []
    if library is not None:
        expected.append((library.seconds, None, 0))
    for table, rows, seconds in _expected(gpu, product, max(top + 1, FIRST)):
        called = _called(product, table, seconds)
        for at in np.argsort(seconds, kind="stable")[: top + 1]:
            expected.append((float(called[at]), table, int(rows[at])))
    chosen = [choose(gpu, product)]
    for seconds_of_row, of_table, row in sorted(expected, key=lambda item: item[0]):
        name = LIBRARY if of_table is None else of_table.spec.full_name
        config = {} if of_table is None else of_table.whole_config(product, row)
        if all((c.kernel, c.config) != (name, config) for c in chosen):
            chosen.append(Choice(gpu, name, config, seconds_of_row, product.workload))
        if len(chosen) == top:
            break
    return chosen[:top]


def refuse(product: Product, choice: Choice, refusal: Refusal) -> Choice:
    """Remember that a device refused a choice, and choose again; later calls of `choose` follow.

    Raises:
        InfeasibleError: When nothing else fits.
    """
    if choice.gpu is None:
        raise InfeasibleError(f"{refusal}; without a hardware model there is no other choice.")
    key = choice.gpu.name, product
    _REFUSED[key] = (*_REFUSED.get(key, ()), (choice.kernel, refusal))
    _choose.cache_clear()
    try:
        return choose(choice.gpu, product)
    except InfeasibleError as error:
        raise InfeasibleError(f"{refusal}, and nothing else is left. {error}") from error


def _tables(gpu: GpuModel, product: Product) -> Iterator[Table]:
    """The tables of the kernels that compute a product, in the operation's order."""
    known, dtype = _model(gpu), product.dtype
    if dtype not in known.dtypes:
        unit(gpu, dtype)
        known.dtypes.add(dtype)
    for spec in gemm_specs():
        is_settled = spec.has_tiles and not spec.uncalibrated()
        if is_settled and spec.serves(product) and not spec.refusal(gpu, product):
            yield _table_of(gpu, product, spec)


def _table_of(gpu: GpuModel, product: Product, spec: GemmSpec) -> Table:
    """One kernel's table for products like one."""
    known, options = _model(gpu), tuple(spec.table_options(product).items())
    # A fact of an operand says all that the width of accesses to it would.
    is_told = any("." in name for name, _ in options)
    width_a, width_b = (WIDEST_BYTES if is_told else each.width_bytes for each in (product.a, product.b))
    key = _Key(spec, product.dtype, width_a, width_b, options)
    if key not in known.tables:
        known.tables[key] = _table(gpu, key)
    return known.tables[key]


def _model(gpu: GpuModel) -> _Model:
    known = _MODELS.get(id(gpu))
    if known is None:
        known = _MODELS[id(gpu)] = _Model(gpu)
    return known


def forget() -> None:
    """Let every table be read or made again, and every choice."""
    _MODELS.clear()
    _choose.cache_clear()


@lru_cache(maxsize=1)
def gemm_specs() -> tuple[GemmSpec, ...]:
    """The operation's kernels, preferred ones first."""
    return tuple(spec for spec in load_kernel("gemm").implementations if isinstance(spec, GemmSpec))


def library_of(gpu: GpuModel, product: Product) -> Choice | None:
    """Torch's own product as a choice; None where it is not offered, or was refused."""
    is_refused = any(kernel == LIBRARY for kernel, _ in _REFUSED.get((gpu.name, product), ()))
    return None if is_refused else library_choice(gpu, product)


def gemm_spec(full_name: str) -> GemmSpec:
    """One of the operation's kernels by its full name."""
    return next(spec for spec in gemm_specs() if spec.full_name == full_name)


def _table(gpu: GpuModel, key: _Key) -> Table:
    """The table that some process has kept, or a new one."""
    spec = key.spec
    kept = KeptTable(gpu, spec, spec.tile_params(gpu, key.dtype), *key[1:])
    table = kept.load()
    if table is None:
        samples = [_sample(key, shape) for shape in spec.table_samples]
        table = Table.joined([_whole_space(gpu, spec, sample) for sample in samples])
        leading = spec.leading_rows(gpu, samples[0], table.columns)
        table = table if leading is None else table.take(leading)
        for shapes, best_of in spec.table_shapes:
            table = _among_best(table, [_sample(key, shape) for shape in shapes], best_of)
        kept.store(table)
    return table


def _among_best(table: Table, products: list[Product], kept: int) -> Table:
    """The rows that are among the `kept` best for any of the products."""
    survivors: set[int] = set()
    for product in products:
        rows, seconds = table.price(product)
        survivors.update(rows[_least(seconds, kept)].tolist())
    return table.take(np.array(sorted(survivors), dtype=np.int64))


def _least(seconds: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """Where the least of them are, the first ones of those that are equal."""
    if len(seconds) <= number:
        return np.arange(len(seconds))
    # Only what is no greater than the last of them has to be put in order.
    near = np.flatnonzero(seconds <= np.partition(seconds, number - 1)[number - 1])
    return near[np.argsort(seconds[near], kind="stable")[:number]]


def _sample(key: _Key, shape: tuple[int, int, int]) -> Product:
    """A product of nearly these sizes, whose row-major operands have rows of these widths."""
    m, n, k = shape
    element = ELEMENT_BYTES[key.dtype]
    # A little less, not more: the shapes stand for what is valid up to them.
    less = {width: width // element if width < WIDEST_BYTES else 0 for width in (key.width_a, key.width_b)}
    sizes = {"m": m, "n": max(1, n - less[key.width_b]), "k": max(1, k - less[key.width_a])}
    options = {name: value for name, value in key.options if "." not in name}
    product = Product.of(Workload("gemm", sizes, key.dtype, options))
    if not key.options:
        return product
    # Where a table is for one order of axes, rows are of the axis that they have, and of the width that was asked for.
    product = replace(product, a=_of_width(product.a, key.width_a), b=_of_width(product.b, key.width_b))
    for name, value in key.options:
        operand, _, fact = name.partition(".")
        if fact:
            told: dict[str, Any] = {fact: bool(value)}
            product = replace(product, **{operand: replace(getattr(product, operand), **told)})
    return product


def _of_width(operand: Operand, width: int) -> Operand:
    """The same operand with rows of a width."""
    step = operand.step_bytes if width == WIDEST_BYTES else width
    return replace(operand, width_bytes=width, step_bytes=max(step, width))


def _whole_space(gpu: GpuModel, spec: GemmSpec, product: Product) -> Table:
    """Every configuration that is valid for large sizes; the order of tiles and the compiler's knobs stay open."""
    from constrint.solve import enumerate_space  # loaded where no table is on disk

    workload = product.workload
    problem = spec.product_problem(gpu, product)
    params = spec.params(gpu, workload)
    closed = closed_params(spec, params)
    for param in params:
        if param.name in spec.free_params:
            # The compiler's knobs have their preferred values, with which a row has to be valid.
            problem.add(Var(param.name) == param.values[0], because="a table has one value of it")
    columns, _ = enumerate_space(problem).project([p.name for p in closed])
    order = np.lexsort([_places(p.values, columns[p.name]) for p in reversed(closed)])
    columns = {name: column[order] for name, column in columns.items()}
    stated = {name: Var(name) for name in problem.variables if name not in spec.free_params}
    use = spec.block_use(gpu, product, stated)
    blocks = BlockColumns.of(gpu, use, columns, problem.estimates)
    spill_ppm, share_ppm = (np.round(MILLION * column).astype(np.int64) for column in (blocks.chances, blocks.shares))
    return Table(gpu, spec, params, columns, blocks.blocks_per_sm, blocks.smem_bytes, spill_ppm, share_ppm)


def _places(values: tuple[int, ...], column: NDArray[Any]) -> NDArray[Any]:
    """Place of every entry in the order of preference."""
    by_value = np.argsort(values)
    return by_value[np.searchsorted(np.asarray(values)[by_value], column)]


def _preference(table: Table, row: int, dtype: str) -> tuple[int, ...]:
    """How far down the order of preference a row is, in what all kernels have, so that kernels compare.

    The first kernel's values are the order; what it has not comes after them.
    """
    config = {**table.spec.fixed, **table.config(row)}
    places = {p.name: p.values for p in gemm_specs()[0].tile_params(table.gpu, dtype)}
    shared = ("split_k", "tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "persistent")
    return tuple(_place(places[name], config.get(name)) for name in shared)


def _place(values: tuple[int, ...], value: int | None) -> int:
    return len(values) if value not in values else values.index(value)


def _priced(gpu: GpuModel, product: Product) -> list[tuple[Table, NDArray[np.int64], NDArray[np.float64]]]:
    """Of each table the valid rows that no device refused, and their predicted seconds.

    After two that spilled, another kernel or far fewer registers, as long as any table has such a row.
    """
    priced = [(table, *table.price(product)) for table in _tables(gpu, product)]
    refused = _REFUSED.get((gpu.name, product), ()) if _REFUSED else ()
    if not refused:
        return priced
    for wary in (True, False) if is_wary([refusal for _, refusal in refused]) else (False,):
        left = [_left(table, product, refused, wary=wary)[rows] for table, rows, _ in priced]
        if any(each.any() for each in left):
            break
    return [(table, rows[is_left], s[is_left]) for (table, rows, s), is_left in zip(priced, left, strict=True)]


def _expected(
    gpu: GpuModel, product: Product, top: int = FIRST
) -> Iterator[tuple[Table, NDArray[np.int64], NDArray[np.float64]]]:
    """Of each table rows, those that are predicted to be fastest among them, and what they are expected to take.

    A hopeful model is not compared with a sober one: predictions are multiplied by what such ones were off by.
    """
    for table, rows, seconds in _priced(gpu, product):
        if len(rows):
            yield (table, *_corrected(gpu, product, table, rows, seconds, top))


def _corrected(
    gpu: GpuModel, product: Product, table: Table, rows: NDArray[np.int64], seconds: NDArray[np.float64],
    top: int = FIRST,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:  # fmt: skip
    """Rows and what they are expected to take: the first ones by the model where such were measured, else all."""
    corrector = corrector_of(gpu, table.spec.full_name, product)
    if corrector is None:
        return rows, seconds * table.spec.optimism
    if len(rows) > top:
        first = np.argpartition(seconds, top)[:top]
        rows, seconds = rows[first], seconds[first]
    columns = {name: table.columns[name][rows] for name in corrector.parameters if name in table.columns}
    expected = seconds * corrector.factors(gpu, product, columns, seconds)
    if len(rows) > FIRST:
        # What comes after the first ones was hardly measured: it is not expected to be faster than all of them.
        first = np.argpartition(seconds, FIRST)[:FIRST]
        expected = np.maximum(expected, expected[first].min())
    return rows, expected


def _left(table: Table, product: Product, refused: tuple[tuple[str, Refusal], ...], *, wary: bool) -> NDArray[np.bool_]:
    """Which rows of a table the refusals leave."""
    left = np.ones(len(table), dtype=bool)
    for kernel, refusal in refused:
        if kernel == table.spec.full_name:
            use = table.spec.use(table.gpu, product.workload, {name: Var(name) for name in refusal.config})
            # A row stands for every order of tiles, none of which a block's needs depend on.
            of_row = replace(refusal, config={name: refusal.config[name] for name in table.columns})
            left &= of_row.rule(table.gpu, use, is_wary=wary).holds_columns(table.columns)
        elif wary and refusal.what == REGISTERS:
            left &= table.spill_ppm <= SURE_PPM
    return left
