"""Registers that one thread of the Triton GEMM kernels takes, as integer expressions: an estimate and a bound."""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.register_weights import REGISTER_MODELS
from constrint.kernels.gemm.registers import Kind, kinds_of, model_key, weighted
from constrint.kernels.gemm.units import ALL_ALIGNED, Aligned, Vars, async_share, unit
from constrint.model import Expr, maximum


def registers_per_thread(
    gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED, *, has_descriptors: bool = False
) -> Expr:
    """Estimated 32-bit registers per thread (on CDNA the total of the unified file)."""
    return _by_kind(gpu, dtype, v, kinds_of(gpu, dtype, aligned, has_descriptors=has_descriptors), is_bound=False)


def registers_bound(
    gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED, *, has_descriptors: bool = False
) -> Expr:
    """An upper bound of the registers that the compiler wants; a configuration whose bound is above the limit may spill."""
    return _by_kind(gpu, dtype, v, kinds_of(gpu, dtype, aligned, has_descriptors=has_descriptors), is_bound=True)


def _by_kind(gpu: GpuModel, dtype: str, v: Vars, kinds: tuple[Kind, ...], *, is_bound: bool) -> Expr:
    """The figure for the instruction that each configuration uses."""
    figures = []
    for kind in kinds:
        model = REGISTER_MODELS[model_key(gpu, kind, REGISTER_MODELS)]
        if is_bound:
            with_margin = weighted(model.estimate, kind, v, model.margins_of(kind))
            figures.append(maximum(weighted(model.bound, kind, v), with_margin))
        else:
            figures.append(weighted(model.estimate, kind, v))
    if len(figures) == 1:
        return figures[0]
    use = async_share(unit(gpu, dtype), v)
    return use * figures[0] + (1 - use) * figures[1]
