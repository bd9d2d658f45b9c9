"""The launch plans of `matmul`: from a call of a new signature to its recipe."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.launch.plan.errors import NotPlannedError
from constrint.kernels.launch.plan.recipe import Made, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.table import PlanTable

#: Stands for alpha = 1, beta = 0, no activation, and the operands' own type of result.
PLAIN = None
#: (alpha, beta, activation, type of the result) of it.
PLAIN_END = (1.0, 0.0, None, None)
#: The same, with a configuration that is chosen for `USUAL_ROWS` rows however many there are: one kernel serves all.
STEADY = (*PLAIN_END, True)
USUAL_ROWS = 512


def _build(tensors: tuple[Tensor | None, ...], end: Any) -> Made:
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
    alpha, beta, activation, out_dtype, *is_steady = end or PLAIN_END
    given = stack(a, b, bias, c, alpha, beta, activation, out_dtype)
    out = torch.empty(given.result_shape, dtype=given.kind, device=a.device)
    by_products = out.view(given.a.shape[0], given.a.shape[1], given.b.shape[2])
    rows = USUAL_ROWS if is_steady else None
    prepared = prepare(given.a, given.b, bias, given.c, alpha, beta, activation, by_products, chosen_for_rows=rows)
    if prepared is None:
        raise NotPlannedError("no kernel computes this product")
    product, choice, call = prepared
    made: list[Made] = []

    def record(chosen: Any, /, *, may_spill: bool) -> None:
        scratch = NotedScratch()
        launches = launches_of(chosen.kernel, call.with_scratch(scratch), chosen.config)
        note = f"{chosen.kernel} {dict(chosen.config)}"
        made[:] = [recipe_of(launches, tensors, [out], scratch, note, may_spill=may_spill)]

    fitting(product, choice, record, given=(activation,) if activation else ())
    return made[0]


PLANS = PlanTable("matmul", _build, torch.get_float32_matmul_precision)
