"""The launch plans of `matmul`: from a call of a new signature to its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from constrint.kernels.gemm.implementations import AUTO, LIBRARY_ALONE, STEADY_KERNEL, check_implementation
from constrint.kernels.launch.plan.driver import has_blas
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall, output_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import PlanTable

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import Call

#: The kernel's name by which choices say that it is torch's own product.
LIBRARY = "gemm.library"
#: Stands for alpha = 1, beta = 0, no activation, and the operands' own type of result.
PLAIN = None
#: (alpha, beta, activation, type of the result, implementation) of it.
PLAIN_END = (1.0, 0.0, None, None, AUTO)
#: The same, with a configuration that is chosen for `USUAL_ROWS` rows however many there are: one kernel serves all.
STEADY = (*PLAIN_END[:4], STEADY_KERNEL)
USUAL_ROWS = 512


def _build(tensors: tuple[Tensor | None, ...], end: Any) -> RecordedCall:
    """The recipe of a call: checked, chosen for and compiled as `constrint::gemm` would.

    Raises:
        NotPlannedError: For products that no kernel computes, or on copies of their operands.
        RuntimeError, TypeError, UnknownNameError: For arguments that do not go together, as `matmul` says.
    """
    from constrint.kernels.gemm.checks import stack
    from constrint.kernels.gemm.dispatch import fitting, launches_of, prepare

    a, b, bias, c = tensors
    assert a is not None
    assert b is not None
    alpha, beta, activation, out_dtype, implementation = end or PLAIN_END
    check_implementation(implementation)
    given = stack(a, b, bias, c, alpha, beta, activation, out_dtype)
    out = torch.empty(given.result_shape, dtype=given.kind, device=a.device)
    by_products = out.view(given.a.shape[0], given.a.shape[1], given.b.shape[2])
    rows = USUAL_ROWS if implementation == STEADY_KERNEL else None
    asked = given.a, given.b, bias, given.c, alpha, beta, activation, by_products
    prepared = prepare(*asked, implementation, chosen_for_rows=rows)
    if prepared is None:
        raise NotPlannedError("no kernel computes this product")
    product, choice, call = prepared
    made: list[RecordedCall] = []

    def record(chosen: Any, /, *, may_spill: bool) -> None:
        if chosen.kernel == LIBRARY:
            made[:] = [_library_recipe(call, tensors, out)]
            return
        scratch = NotedScratch()
        launches = launches_of(chosen.kernel, call.with_scratch(scratch), chosen.config)
        note = f"{chosen.kernel} {dict(chosen.config)}"
        made[:] = [recipe_of(launches, tensors, [out], scratch, note, may_spill=may_spill)]

    if implementation == LIBRARY_ALONE:
        record(choice, may_spill=True)
    else:
        fitting(product, choice, record, given=(activation,) if activation else ())
    return made[0]


def _library_recipe(call: Call, tensors: tuple[Tensor | None, ...], out: Tensor) -> RecordedCall:
    """The recipe of a call of torch's own product, which is tried once: of cuBLAS where that is what torch would call.

    Raises:
        CompileError: When the library does not take it after all.
    """
    from constrint.kernels.gemm.library.launch import LibraryLaunch, is_captured
    from constrint.kernels.gemm.library.planned import A, B, planned_of
    from constrint.kernels.gemm.library.step import step_of

    stated = planned_of(call, tensors, out.shape)
    if not is_captured(out.device):
        LibraryLaunch(call).run()
    step = step_of(call, A, B, len(tensors)) if has_blas() else None
    if step is not None:
        return RecordedCall(Recipe([step], [output_of(out)], 1, 0, LIBRARY), [])
    return RecordedCall(Recipe([], [], 1, 0, LIBRARY, stated), [])


def _library_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    from constrint.kernels.gemm.library.planned import planned_function

    return planned_function(stated)


PLANS = PlanTable("matmul", _build, torch.get_float32_matmul_precision, _library_function)
