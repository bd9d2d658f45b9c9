"""Which configurations break a limit for certain: one that the GPU's hardware sets, or one that the user stated.

Registers are estimates and have no part in it. A parameter that a configuration does not name may have any of its
values: a limit counts as broken where all of them break it. A tile beyond those that a spec is checked with counts as
the largest checked one below it, which takes no more shared memory. Warps and stages enter every limit as factors, and
may be any number from the smallest one that is checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.autotune.call_space import USUAL_WARPS, Space
from constrint.kernels.launch.pruning.asked import LAUNCH_PARAMS
from constrint.model import Constraint, Domain, Expr, Problem, Var, const
from constrint.model.constraint import Comparison
from constrint.select.limits import BlockUse, add_block_limits
from constrint.select.spec import KernelSpec
from constrint.select.stated import ELEMENT_BYTES_NAME, GPU_NAMES, gpu_names
from constrint.select.workload import Workload

#: Names of the rules that `add_block_limits` makes of the hardware's limits; what is limited is on their left.
_OF_HARDWARE = ("threads", "smem")


@dataclass(frozen=True)
class Limits:
    """Limits of one kernel on one GPU.

    Args:
        rules: Each with its reason.
        domains: The values of each parameter, or what codes stand for.
        exact: Names of parameters that the rules are right for beyond the largest value.
    """

    rules: tuple[Constraint, ...]
    domains: Mapping[str, Domain]
    exact: frozenset[str]

    @property
    def of_threads(self) -> Limits:
        """Without what is said of shared memory."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.name == _OF_HARDWARE[0]))

    def broken(self, configs: Sequence[Mapping[str, Any]]) -> list[Constraint | None]:
        """The first limit that each configuration breaks for certain; None where it breaks none."""
        found: list[Constraint | None] = [None] * len(configs)
        for rule in self.rules:
            for at, holds in enumerate(self._may_hold(rule, configs)):
                if found[at] is None and not holds:
                    found[at] = rule
        return found

    def reason(self, rule: Constraint, config: Mapping[str, Any]) -> str:
        """Why a configuration breaks a limit, with the least that it takes."""
        if not isinstance(rule, Comparison) or rule.name not in _OF_HARDWARE:
            return rule.because
        known = {name: code for name in rule.variables & config.keys() if (code := self._judged(name, config[name]))}
        columns = self._columns(rule, tuple(known), [list(known.values())])
        taken = rule.left.columns(columns) if columns else rule.left.value({})
        return f"{rule.because}, and this takes {int(np.min(taken)):,}"

    def _may_hold(self, rule: Constraint, configs: Sequence[Mapping[str, Any]]) -> NDArray[np.bool_]:
        """Whether each configuration keeps a rule under some values of the parameters that it does not name."""
        result = np.ones(len(configs), dtype=bool)
        groups: dict[tuple[str, ...], list[tuple[int, list[int]]]] = {}
        for at, config in enumerate(configs):
            values = {n: self._judged(n, config[n]) for n in sorted(rule.variables) if n in config}
            if None not in values.values():
                groups.setdefault(tuple(values), []).append((at, [v for v in values.values() if v is not None]))
        for given, rows in groups.items():
            columns = self._columns(rule, given, [values for _, values in rows])
            holds = rule.holds_columns(columns) if columns else np.full(len(rows), rule.holds({}))
            result[[at for at, _ in rows]] = holds.reshape(len(rows), -1).any(axis=1)
        return result

    def _columns(
        self, rule: Constraint, given: tuple[str, ...], rows: Sequence[Sequence[int]]
    ) -> dict[str, NDArray[np.int64]]:
        """A rule's parameters as columns: each row of given values with every value of the others."""
        others = sorted(rule.variables - set(given))
        every = list(itertools.product(*(tuple(self.domains[name]) for name in others)))
        combos = np.array(every, dtype=np.int64).reshape(len(every), len(others))
        known = np.array(rows, dtype=np.int64).reshape(len(rows), len(given))
        columns = {name: np.repeat(known[:, i], len(combos)) for i, name in enumerate(given)}
        return columns | {name: np.tile(combos[:, i], len(rows)) for i, name in enumerate(others)}

    def _judged(self, name: str, value: Any) -> int | None:
        """The value that a parameter is judged with; None where nothing is known for certain."""
        domain = self.domains[name]
        if domain.labels is not None:
            return domain.code_of(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            return None
        code = domain.code_of(value)
        if code is not None:
            return code
        if name in self.exact and int(value) > max(domain):
            return int(value)
        return max((known for known in domain if known <= int(value)), default=None)


def limits_of_spec(spec: KernelSpec, gpu: GpuModel, workload: Workload) -> Limits:
    """The limits of the hardware on a block of a kernel; none for an implementation that is no single kernel."""
    problem = Problem(spec.full_name)
    params = {param.name: param.values for param in spec.params(gpu, workload)}
    v = {name: problem.int_var(name, values=list(values)) for name, values in params.items()}
    use = spec.use(gpu, workload, v)
    if use is None:
        return Limits((), problem.variables, frozenset())
    _add_certain(problem, gpu, use)
    return Limits(tuple(problem.constraints), problem.variables, frozenset(LAUNCH_PARAMS) & problem.variables.keys())


def limits_of_space(space: Space, gpu: GpuModel, numbers: Mapping[str, int], element_bytes: int) -> Limits:
    """The rules that a user stated, and the limits of the hardware on what the user says that a block takes.

    Raises:
        UsageError: When a text speaks of something that nobody gave.
    """
    stated = space.stated
    known = {**numbers, **gpu_names(gpu), **({ELEMENT_BYTES_NAME: element_bytes} if element_bytes else {})}
    names = {*stated.domains, *known}
    try:
        stated.check_rules(names)
        stated.check_text(space.smem_bytes, "smem_bytes", names)
    except UsageError as error:
        hint = f"Give sizes by name, and dtype for {ELEMENT_BYTES_NAME}; of the GPU there are {', '.join(GPU_NAMES)}."
        raise UsageError(f"{error} {hint}") from None
    of_rules = stated.problem("space", known)
    problem = Problem("limits")
    for name, domain in of_rules.variables.items():
        problem.declare(name, domain)
    if "num_warps" not in stated.domains:
        problem.int_var("num_warps", values=[USUAL_WARPS])
    warps: Expr = Var("num_warps")
    if "num_warps" in stated.domains:
        warps = stated.number("num_warps", {}, "warps")
    _add_certain(problem, gpu, BlockUse(warps, const(0), stated.number(space.smem_bytes, known, "smem_bytes")))
    # What is stated holds for any number.
    return Limits((*of_rules.constraints, *problem.constraints), problem.variables, frozenset(problem.variables))


def _add_certain(problem: Problem, gpu: GpuModel, use: BlockUse) -> None:
    """Threads and shared memory; what is said of registers is for ranking."""
    add_block_limits(problem, gpu, replace(use, least_registers=None, spilling=None))


def broken_by_all(limits: Sequence[Limits], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why each configuration cannot run on any of several implementations; empty where one of them may run it."""
    every = [one.broken(configs) for one in limits]
    return [_reason(limits, rules, config) for rules, config in zip(zip(*every, strict=True), configs, strict=True)]


def _reason(limits: Sequence[Limits], rules: Sequence[Constraint | None], config: Mapping[str, Any]) -> str:
    """The reason of the last implementation, which is the most general one."""
    told = ""
    for one, rule in zip(limits, rules, strict=True):
        if rule is None:
            return ""
        told = one.reason(rule, config)
    return told
