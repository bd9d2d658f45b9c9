"""Facts of shared memory's banks: the tile of A of the best configuration that has one, as the matrix unit reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from constrint.answers.facts import BankFacts, BankLayoutFacts, CandidateFacts
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.hwmodels.bank_accesses import TileAccess, access_names, check_tile, tile_access
from constrint.select.layouts import SharedLayout, xor_layout
from constrint.select.layouts.picture import lanes_text, worst_phase

#: Reads by matrix units whose rows are no parameter, the fastest unit's first.
READS = ("wgmma", "ldmatrix")


def bank_facts(gpu: GpuModel, dtype: str, candidates: Sequence[CandidateFacts]) -> BankFacts | None:
    """The conflicts of the best tile of A, row by row and in a solved layout; None where nothing tells.

    Args:
        gpu: The hardware model.
        dtype: Type of the operands.
        candidates: The best configurations, the best one first.
    """
    config = next((each.config for each in candidates if {"tile_m", "tile_k"} <= each.config.keys()), {})
    rows, columns = config.get("tile_m"), config.get("tile_k")
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    try:
        name = _read_of(gpu, dtype, config.get("matrix_instr_nonkdim"))
        tile = check_tile(rows, columns, dtype)
        access = tile_access(gpu, name, tile)
        layouts = tuple(_layouts(gpu, SharedLayout(tile), access))
    except ConstrintError:  # a tile that is no whole number of instructions, an access that no source describes
        return None
    arguments = f"--gpu {gpu.name} --tile {rows}x{columns} --dtype {dtype} --access {name}"
    return BankFacts(access=name, tile=str(tile), arguments=arguments, layouts=layouts)


def _read_of(gpu: GpuModel, dtype: str, rows: object) -> str:
    """The name of the matrix unit's read of an operand whose K is contiguous."""
    unit, known = gpu.dot_unit(dtype), access_names(gpu, dtype)
    shapes = () if unit is None else unit.shapes
    names = [f"mfma_{m}x{n}x{k}" for m, n, k in shapes if rows in (None, m)]
    return next((name for name in (*names, *READS) if name in known), "")


def _layouts(gpu: GpuModel, plain: SharedLayout, access: TileAccess) -> Iterator[BankLayoutFacts]:
    yield _facts(gpu, plain, access)
    solved = xor_layout(gpu, plain.tile, [access])
    if solved is not None and str(solved) != str(plain):
        yield _facts(gpu, solved, access)


def _facts(gpu: GpuModel, layout: SharedLayout, access: TileAccess) -> BankLayoutFacts:
    worst = worst_phase(layout, access, layout.conflicts(gpu, access))
    return BankLayoutFacts(
        layout=str(layout),
        formula=layout.formula,
        num_bytes=layout.num_bytes,
        degree=worst.degree,
        lanes=lanes_text(worst.lanes),
        banks=worst.banks,
        served=worst.served,
    )
