"""The candidates for a product with a sparse matrix: the best of each implementation, by predicted time. No torch.

`constrint.spmv` tries those that read CSR beside the library on the matrix itself, and one that copies it where its
prediction pays for the copy (`products.py`); a prediction alone decides for named GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from constrint.choose import candidates as ranked
from constrint.choose.decide import Refusal, decide
from constrint.choose.decision import Decision, Program, Request, in_order
from constrint.errors import InfeasibleError, UsageError
from constrint.kernels.spmv.spec import SPECS
from constrint.select.spec import KernelSpec

implementations = ranked.implementations


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The candidates, the one that runs first.

    Raises:
        InfeasibleError: When nothing runs.
        UsageError: When the named configuration is not valid, or the workload is not.
    """
    if request.kernel or request.config is not None:
        return ranked.candidates(request, refused)
    programs, refusals = [], []
    for spec in SPECS:
        try:
            programs.append(_noted(spec, decide(replace(request, kernel=spec.name)).program))
        except (InfeasibleError, UsageError) as error:
            refusals.append((spec, error))
    if not programs:
        raise refusals[-1][1]
    return [*in_order(programs), *(Program(spec.full_name, refusal=str(error)) for spec, error in refusals)]


def _noted(spec: KernelSpec, program: Program) -> Program:
    """The program with a note where it needs a copy of the matrix."""
    if not getattr(spec, "copies", False):
        return program
    return replace(program, note=f"{program.note}; reads a copy of the matrix, which is made once")


def force_hint(decision: Decision) -> str:
    """Arguments of `spmv` by which a caller forces another candidate."""
    names = " or ".join(f'"{spec.name}"' for spec in SPECS)
    return f"spmv(..., kernel={names}), with config={{...}} for one configuration"
