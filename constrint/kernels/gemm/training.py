"""Products that autograd records: by nodes of ours or by torch's own, whichever passes take less time.

A node in Python costs the host some microseconds more than one of torch's in C++, which counts where the device is the
faster one. So the calls of a signature try both, forward and backward together, once backward passes run: on aliases of
the call's operands, by the rules of `launch/plan/trial.py`, where torch's time is the standard. The outcome is stored
as the call's plan. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm import trial
from constrint.kernels.gemm.backward.plans import BACKWARD, DTYPES
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import PlanTable, running_trials
from constrint.kernels.launch.plan.trial import Rivals

#: Takes the activation or None, and a call's tensors: both operands, the bias or None.
Nodes = Callable[..., Tensor]
OURS, TORCHS = "our nodes", "torch's nodes"
#: Time of a forward and a backward pass, at least, and operations of their products in a second, about: how many rounds
#: are timed depends on it.
LEAST_S, OPERATIONS_PER_S = 1.5e-4, 4e14
#: Share of the time of torch's nodes that ours have to save: the host's time is noisy, and a loop adds to it.
LEAST_GAIN = 0.03
#: Backward passes that have run before a trial begins, and calls after which trials of their products are not awaited.
BACKWARD_PASSES, MOST_WAITING = 1, 64


def recorded_table(name: str, front: PlanTable, ours: Nodes, torchs: Nodes) -> PlanTable:
    """A table of calls that autograd records.

    Args:
        name: Its name.
        front: The table of the same calls without gradients, whose keys and arguments are the same.
        ours: Makes the result and its node by plans.
        torchs: The same by torch's functions.
    """
    by: dict[str, Nodes] = {OURS: ours, TORCHS: torchs}

    def recipe_by(who: str, activation: str | None) -> Recipe:
        return Recipe([], [], 1, 0, who, {"by": who, "activation": activation})

    def build(tensors: tuple[Tensor | None, ...], end: Any) -> RecordedCall:
        """Both candidates.

        Raises:
            NotPlannedError: Where nothing is tried: our nodes record the call.
        """
        given = [t for t in tensors if t is not None]
        activation = None if end is None else end[2]
        is_common = given[0].dtype in DTYPES and len({t.dtype for t in given}) == 1
        if not is_common or not trial.may_try() or _sums_narrowly(given[0]):
            raise NotPlannedError("our nodes record the call")
        a, b = given[:2]
        seconds = max(LEAST_S, 6 * a.numel() * b.shape[-1] / OPERATIONS_PER_S)
        rivals = Rivals(
            [recipe_by(TORCHS, activation)],
            [OURS, TORCHS],
            [seconds, seconds],
            lambda measured, best: None,
            standards=[1],
            preferred=1,
            least_gain=LEAST_GAIN,
            timed=_both_passes,
            is_ready=_Readiness(),
        )
        return RecordedCall(recipe_by(OURS, activation), [], rivals)

    def function_of(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
        run: Any = partial(by[stated["by"]], stated["activation"])
        run.is_open = stated["by"] == TORCHS
        return run  # type: ignore[no-any-return]

    _FORWARD.append(front)
    return PlanTable(name, build, torch.get_float32_matmul_precision, function_of, front)


def _sums_narrowly(a: Tensor) -> bool:
    """Whether torch accumulates products of 16 bits in 16 bits, which a user has to ask for."""
    get: Any = getattr(torch._C, "_get_cublas_allow_fp16_accumulation", None)
    return a.dtype == torch.float16 and get is not None and bool(get())


class _Readiness:
    """Whether a trial of both passes may begin: backward passes run, and what they launch is settled."""

    def __init__(self) -> None:
        self._before = self._num_backward_passes()
        self._calls = 0

    @staticmethod
    def _num_backward_passes() -> int:
        state = BACKWARD.state()
        return state.hits + state.misses

    def __call__(self) -> bool:
        self._calls += 1
        if self._num_backward_passes() < self._before + BACKWARD_PASSES:
            return False
        if running_trials(BACKWARD, *_FORWARD) and self._calls < MOST_WAITING:
            return False
        # A graph that is computed again during a backward pass, or whose tensors are kept elsewhere, is no usual one.
        return torch._C._current_graph_task_id() == -1 and _keeps_tensors()


#: Tables of forward passes, whose trials come first.
_FORWARD: list[PlanTable] = []


def _keeps_tensors() -> bool:
    """Whether graphs keep the tensors themselves: no hooks have them packed."""
    hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return hooks is None or hooks(True) is None


def _both_passes(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is timed in place of a candidate: both passes on aliases of the call's operands."""

    def passes(*tensors: Tensor | None) -> Any:
        taken = [None if t is None else t.detach().requires_grad_(t.requires_grad) for t in tensors]
        out = run(*taken)
        if not isinstance(out, Tensor):
            return out
        leaves = [t for t in taken if t is not None and t.requires_grad]
        return torch.autograd.grad(out, leaves, out.detach())

    return passes
