"""Registers of the GEMM kernels: what they are made of, as integer expressions; the weights are fitted.

A kernel takes the larger of what its loop over K and its end hold at a time, each a sum of terms. Two figures: an
estimate, for occupancy, and a bound, for what spills. Their weights per target, instruction and size of the elements
stand in `register_weights.py`, written by `benchmarks/fit_gemm_registers.py`, which takes the terms from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    MIN_COPY_BYTES,
    WIDEST_BYTES,
    Aligned,
    Vars,
    is_upcast,
    mma_warp_rows,
    unit,
)
from constrint.model import Expr, Var, ceildiv, const, maximum, minimum
from constrint.model.expr import add

#: AMD: registers that a promise of several waves per SIMD must leave, in percent of the bound: the compiler squeezes
#: kernels that would fit by the bound alone, and spills.
PROMISE_PERCENT = 150
#: Bytes along K that one step of the matrix instruction takes of an operand.
STEP_BYTES = 32
#: AMD: words of partial sums that a thread loads ahead at the end of a split tile.
MOST_PARTIAL_WORDS = 128
#: AMD: registers that are free at that time beside twice the accumulators.
PARTIAL_ADDRESSES = 24
#: Terms whose names start with this belong to the end of the kernel, the others to its loop.
END = "end_"


class RegisterModel(NamedTuple):
    """Weights of the terms in hundredths of a register: of the estimate and of the bound.

    Args:
        estimate: Weights of the estimate.
        bound: Weights of the bound.
        margins: Percent of the estimate's loop and of its end that the bound is at least.
        ragged_margins: The same where some rows do not allow the widest loads or stores.
    """

    estimate: Mapping[str, int]
    bound: Mapping[str, int]
    margins: tuple[int, int]
    ragged_margins: tuple[int, int]

    def margins_of(self, kind: Kind) -> tuple[int, int]:
        """Those for kernels of a kind."""
        return self.ragged_margins if kind.is_ragged else self.margins


class Kind(NamedTuple):
    """What decides the terms beside the configuration.

    Args:
        instruction: "fma", "mma", "wgmma", "tcgen05", "mfma" or "wmma"; "mma" where a unit falls back to it.
        dtype: Element type of A and B.
        warp_size: Threads per warp.
        aligned: How wide loads and stores can be.
        is_widened: Whether fp8 is multiplied as fp16.
        has_descriptors: Whether tiles come and go through tensor descriptors instead of pointers.
    """

    instruction: str
    dtype: str
    warp_size: int
    aligned: Aligned
    is_widened: bool
    has_descriptors: bool

    @property
    def is_direct(self) -> bool:
        """Whether the matrix unit reads operands from shared memory instead of registers."""
        return self.instruction in ("wgmma", "tcgen05")

    @property
    def is_ragged(self) -> bool:
        """Whether some rows do not allow the widest loads or stores."""
        return not self.has_descriptors and min(self.aligned) < WIDEST_BYTES

    @property
    def is_amd(self) -> bool:
        """Whether loads wait in registers for their turn in LDS."""
        return self.instruction in ("mfma", "wmma")


def kinds_of(gpu: GpuModel, dtype: str, aligned: Aligned, *, has_descriptors: bool = False) -> tuple[Kind, ...]:
    """The kinds that configurations for a dtype may be of: the unit's own, and the one it falls back to."""
    found = unit(gpu, dtype)
    own = Kind(found.kind, dtype, gpu.sm.warp_size, aligned, False, has_descriptors)
    if found.fallback is None:
        return (own,)
    return own, own._replace(instruction=found.fallback, is_widened=is_upcast(found, dtype))


def family_key(gpu: GpuModel, kind: Kind) -> str:
    """Name of the weights for a kind on any target of a family."""
    target = gpu.arch.target
    if kind.instruction == "fma":
        return "fma"
    family = ("sm_8x" if target < "sm_9" and len(target) == 5 else "sm_9x") if gpu.vendor == "nvidia" else target[:4]
    elements = "16" if ELEMENT_BYTES[kind.dtype] == 2 else kind.dtype
    marks = ("descriptor " if kind.has_descriptors else "") + ("widened " if kind.is_widened else "")
    return f"{family} {kind.instruction} {marks}{elements}"


def model_key(gpu: GpuModel, kind: Kind, known: Mapping[str, object]) -> str:
    """Name of the weights for a kind on a GPU: of its target if there are such, else of the target's family.

    What has neither is 8-bit floats on a few targets: they take what 8-bit integers do.
    """
    of_family = family_key(gpu, kind)
    own = f"{gpu.arch.target.rstrip('a') if gpu.vendor == 'nvidia' else gpu.arch.target} {of_family.partition(' ')[2]}"
    if own in known:
        return own
    return of_family if of_family in known else model_key(gpu, kind._replace(dtype="int8", is_widened=False), known)


def weighted(weights: Mapping[str, int], kind: Kind, v: Vars, percents: tuple[int, int] = (100, 100)) -> Expr:
    """The larger of the two sums of weighted terms, each so many percent of itself, in whole registers, rounded up."""
    if all(isinstance(variable, Var) and variable.name == name for name, variable in v.items()):
        return _weighted_of_names(tuple(weights.items()), kind, tuple(v), percents)
    return _weighted(tuple(weights.items()), kind, v, percents)


@lru_cache(maxsize=1024)
def _weighted_of_names(
    weights: tuple[tuple[str, int], ...], kind: Kind, names: tuple[str, ...], percents: tuple[int, int]
) -> Expr:
    return _weighted(weights, kind, {name: Var(name) for name in names}, percents)


def _weighted(weights: tuple[tuple[str, int], ...], kind: Kind, v: Vars, percents: tuple[int, int]) -> Expr:
    terms = register_terms(kind, v)
    parts: tuple[list[Expr], list[Expr]] = ([], [])
    for name, weight in weights:
        if name in terms:
            parts[name.startswith(END)].append(weight * terms[name])
    loop, end = (percent * add(const(0), *part) for percent, part in zip(percents, parts, strict=True))
    return ceildiv(maximum(loop, end), 10_000)


def register_terms(kind: Kind, v: Vars) -> dict[str, Expr]:
    """What a thread holds, in 32-bit registers or counts; terms that are zero for this kind are left out."""
    accumulators = ceildiv(v["tile_m"] * v["tile_n"], v["num_warps"] * kind.warp_size)
    if kind.instruction == "fma":
        return {"base": const(1), "accumulators": accumulators, "operands": v["tile_k"] * (16 + accumulators)}
    terms: dict[str, Expr] = {
        "base": const(1),
        "accumulators": accumulators,
        "persistent": v["persistent"],
        "persistent_accumulators": v["persistent"] * accumulators,
        "pipelined": minimum(1, v["num_stages"] - 1),
    }
    if not kind.has_descriptors:
        terms |= _load_terms(kind, v)
    return terms | _fragment_terms(kind, v) | _end_terms(kind, v, accumulators)


def _end_terms(kind: Kind, v: Vars, accumulators: Expr) -> dict[str, Expr]:
    """The sums on their way to C or the workspace, and on their way back."""
    splits = minimum(1, v["split_k"] - 1)
    terms: dict[str, Expr] = {
        "base": const(1),
        "accumulators": accumulators,
        "persistent": v["persistent"],
        "persistent_accumulators": v["persistent"] * accumulators,
        "split": splits,
        "split_accumulators": splits * accumulators,
    }
    if kind.aligned.c < WIDEST_BYTES and not kind.has_descriptors:
        terms |= {"ragged": const(1), "ragged_accumulators": accumulators}
    if kind.is_amd:
        ahead = minimum(MOST_PARTIAL_WORDS, accumulators * v["split_k"])
        terms["partials"] = splits * maximum(0, ahead - 2 * accumulators - PARTIAL_ADDRESSES)
    return {END + name: term for name, term in terms.items()}


def _load_terms(kind: Kind, v: Vars) -> dict[str, Expr]:
    """Pointers, and words on their way from global to shared memory."""
    element, num_threads = ELEMENT_BYTES[kind.dtype], v["num_warps"] * kind.warp_size
    pipelined = minimum(1, v["num_stages"] - 1)
    terms: dict[str, Expr] = {}
    for name, tile, width in (("a", v["tile_m"], kind.aligned.a), ("b", v["tile_n"], kind.aligned.b)):
        operand = tile * v["tile_k"] * element
        words = ceildiv(operand, 4 * num_threads)
        terms[f"unpipelined_{name}"] = (1 - pipelined) * words
        if kind.is_amd:
            terms[f"pipelined_{name}"] = pipelined * words
        # One pointer per load, as wide as rows are aligned; narrow ones cannot be copied past the registers.
        loads = ceildiv(operand, width * num_threads)
        what = "loads" if width >= MIN_COPY_BYTES else "narrow"
        terms[f"{what}_{name}"] = loads
        terms[f"persistent_{what}_{name}"] = v["persistent"] * loads
        if width < WIDEST_BYTES:
            terms[f"ragged_{name}"] = const(1)
    return terms


def _fragment_terms(kind: Kind, v: Vars) -> dict[str, Expr]:
    """Operands of one warp in registers: for one step of the instruction, and for all of tile_k."""
    element = ELEMENT_BYTES[kind.dtype]
    if kind.is_direct and (element == 2 or kind.has_descriptors):
        return {}
    rows = minimum(v["num_warps"], v["tile_m"] // 16) if kind.is_direct else mma_warp_rows(v)
    columns = maximum(1, v["num_warps"] // rows)
    own = {"a": maximum(16, v["tile_m"] // rows), "b": maximum(8, v["tile_n"] // columns)}
    lanes = 4 * kind.warp_size
    step = minimum(v["tile_k"], STEP_BYTES // element)
    pipelined = minimum(1, v["num_stages"] - 1)
    terms: dict[str, Expr] = {}
    for name, share in own.items():
        terms[f"step_{name}"] = ceildiv(share * step * element, lanes)
        terms[f"whole_{name}"] = ceildiv(share * v["tile_k"] * element, lanes)
        terms[f"persistent_whole_{name}"] = v["persistent"] * terms[f"whole_{name}"]
        # Of 8- and 32-bit elements, row-major B in shared memory is gathered element by element; 8-bit A may be, too.
        if element != 2 and not kind.has_descriptors:
            terms[f"gathered_step_{name}"] = pipelined * terms[f"step_{name}"]
            terms[f"gathered_whole_{name}"] = pipelined * terms[f"whole_{name}"]
    return terms
