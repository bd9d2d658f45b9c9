"""Decisions about kernels, and a process that has just begun: nothing remembered, nothing refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from constrint.choose import Decision, Program, Refusal, Request, Step, decide, forget, refuse
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.candidates import forget_tables
from constrint.select import Config, KernelSpec, Workload, winners

#: The module, whose name in its package is the function's.
_DECIDE = sys.modules["constrint.choose.decide"]


def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a memory of its own; the one before it comes back afterwards."""
    for name in ("_MEMORY", "_REFUSED"):
        monkeypatch.setattr(_DECIDE, name, {})
    monkeypatch.setattr(_DECIDE, "_REFUSED_STEPS", set())


def forget_refusals() -> None:
    """Forget what devices refused."""
    _DECIDE._REFUSED.clear()
    _DECIDE._REFUSED_STEPS.clear()


def without_winners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let models choose: with a build of torch for GPUs, shipped tables of winners would."""
    begin_anew(monkeypatch)
    monkeypatch.setattr(winners, "toolchain", dict)


def choose_kernel(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, fixed: Mapping[str, int] | None = None
) -> Decision:
    """The decision for one implementation."""
    return decide(Request(spec.full_name, workload, gpu, fixed=fixed or {}))


def decision_of(kernel: str, config: Config, workload: Workload | None = None, gpu: GpuModel | None = None) -> Decision:
    """A decision for a configuration, whatever `decide` says."""
    step = Step("product", kernel, config, workload)
    return Decision(Request(kernel, workload or Workload(kernel, {}, ""), gpu), Program(kernel, (step,)))


def refuse_step(decision: Decision, what: str, required: int, limit: int) -> Decision:
    """The decision after a device refused this one."""
    return refuse(decision, Refusal(decision.program.name, dict(decision.config), what, required, limit))


def forget_products() -> None:
    """Decide about products again, and read their tables again."""
    forget()
    forget_tables()
