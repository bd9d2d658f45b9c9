"""Candidates of one call, tried in place: compiled, checked, timed, the best few once more in turn, and recorded.

This happens in the user's process, on the user's device: a candidate that faults takes the process with it. `constrint
tune` tries candidates in processes of their own.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.autotune.cases import Checks
from constrint.kernels.launch.autotune.stored import Origin
from constrint.select.candidate import Candidate
from constrint.select.spec import KernelSpec
from constrint.select.workload import Workload
from constrint.tune.measure import Measurement, Timer, call_of
from constrint.tune.store.record import Figures, TuningRecord

#: The quickest are timed once more in turn.
NUM_FINAL = 3
#: Rounds of the first timing, and of the final one.
ROUNDS, FINAL_ROUNDS = 15, 31
#: Characters of a failed candidate's message that are stored.
_MAX_MESSAGE = 400


@dataclass(frozen=True)
class Tuning:
    """One tuning: the kernel, and the data on which candidates are tried.

    Args:
        spec: The kernel as the call shows it.
        gpu: The model of the device.
        workload: The workload of the call.
        origin: Hashes and versions that the records state.
        case: The data.
        device: `cpu` in Triton's interpreter.
    """

    spec: KernelSpec
    gpu: GpuModel
    workload: Workload
    origin: Origin
    case: Checks
    device: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def try_all(self, candidates: Sequence[Candidate]) -> list[TuningRecord]:
        """One record for each candidate, and one more for each that was timed again; the best one is the first.

        Raises:
            UnsupportedError: When none ran and was right; carries the message of each.
        """
        timer = Timer(self.device)
        tried = [(candidate, self._try(timer, candidate)) for candidate in candidates]
        right = [(c, r) for c, r in tried if r.is_ok]
        if not right:
            reasons = "".join(f"\n  {dict(record.config)}: {record.message}" for _, record in tried)
            raise UnsupportedError(
                f"{self.spec.full_name}: none of {len(tried)} candidates ran on {self.gpu.name} and was right.{reasons}"
            )
        quickest = sorted(right, key=lambda one: _median_s(one[1]))[:NUM_FINAL]
        finals = self._again(timer, [candidate for candidate, _ in quickest])
        return [*sorted(finals, key=_median_s), *(record for _, record in tried)]

    def _try(self, timer: Timer, candidate: Candidate) -> TuningRecord:
        """Check and time one candidate."""
        from triton.errors import TritonError

        try:
            launches = self.case.launches(candidate.config)
            error = self.case.check(launches)
            if error > 1.0:
                message = f"wrong: an error of {error:.3g} times what rounding explains"
                return self._record(candidate, "wrong_result", message, error=error)
            (figure,) = timer.cold([timer.graph(call_of(launches))], ROUNDS)
        except (TritonError, RuntimeError, ValueError) as failure:
            outcome = "launch_failed" if isinstance(failure, RuntimeError) else "compile_failed"
            message = f"{type(failure).__name__}: {failure}"[-_MAX_MESSAGE:]
            return self._record(candidate, outcome, message)
        return self._record(candidate, "ok", error=error, figure=figure)

    def _again(self, timer: Timer, candidates: Sequence[Candidate]) -> list[TuningRecord]:
        """Time the best candidates in turn, so that drift favours none."""
        launches_of = [self.case.launches(candidate.config) for candidate in candidates]
        figures = timer.cold([timer.graph(call_of(launches)) for launches in launches_of], FINAL_ROUNDS)
        pairs = zip(candidates, figures, strict=True)
        return [self._record(candidate, "ok", figure=figure, is_final=True) for candidate, figure in pairs]

    def _record(
        self,
        candidate: Candidate,
        outcome: str,
        message: str = "",
        *,
        error: float | None = None,
        figure: Measurement | None = None,
        is_final: bool = False,
    ) -> TuningRecord:
        measured = None
        if figure is not None:
            times: Any = {"median_s": figure.median_s, "spread_s": figure.spread_s, "num_rounds": figure.num_rounds}
            measured = Figures(**times, is_final=is_final)
        return TuningRecord(
            kernel=self.spec.full_name,
            operation=self.spec.operation,
            gpu=self.gpu.name,
            dtype=self.workload.dtype,
            sizes=dict(self.workload.sizes),
            options=dict(self.workload.options),
            config=dict(self.spec.values_of(candidate.config)),
            outcome=outcome,
            message=message,
            run=self.run,
            created=time.time(),
            source_hash=self.origin.source_hash,
            spec_hash=self.origin.spec_hash,
            toolchain=dict(self.origin.toolchain),
            predicted_s=candidate.cost.seconds,
            error_over_bound=error if error is None or math.isfinite(error) else None,
            figures=measured,
        )


def _median_s(record: TuningRecord) -> float:
    return math.inf if record.figures is None else record.figures.median_s
