"""The rules that the matrix instruction imposes on a tile, whichever way its operands are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from constrint.hwmodels import DotUnit, GpuModel
from constrint.kernels.gemm.units import Vars
from constrint.model import divides, implies
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.spec import Rule

WHOLE = "each warp owns at least one whole matrix instruction; more warps would repeat work"


def instruction_rules(gpu: GpuModel, unit: DotUnit, v: Vars) -> Iterator[Rule]:
    """Tiles are whole instructions, and every warp has one of its own."""
    for m, n, k in unit.shapes:
        depth = Rule(divides(k, v["tile_k"]), f"instruction_k{m}", f"the matrix instruction takes k = {k}", CERTAIN)
        if unit.fallback is not None:
            yield depth
            continue
        rules = [
            Rule(m <= v["tile_m"], f"instruction_m{m}", f"the matrix instruction takes m = {m}", CERTAIN),
            Rule(n <= v["tile_n"], f"instruction_n{m}", f"the matrix instruction takes n = {n}", CERTAIN),
            depth,
            Rule(m * n * v["num_warps"] <= v["tile_m"] * v["tile_n"], f"warps_busy{m}", WHOLE, REDUNDANT),
        ]
        if "kpack" in v:
            packed = divides(k * v["kpack"], v["tile_k"])
            together = f"kpack slices of k = {k} are read from LDS together"
            rules.append(Rule(packed, f"kpack{m}", together, CERTAIN))
        for rule in rules:
            chosen = "matrix_instr_nonkdim" in v and len(unit.shapes) > 1
            yield rule._replace(condition=implies(v["matrix_instr_nonkdim"] == m, rule.condition)) if chosen else rule
    if unit.fallback is not None:
        # The fallback, mma.sync m16n8, sets the smallest share of a warp.
        yield Rule(16 * 8 * v["num_warps"] <= v["tile_m"] * v["tile_n"], "warps_busy", WHOLE, REDUNDANT)
