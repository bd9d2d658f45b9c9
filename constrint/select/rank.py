"""Rank the valid configurations of an operation's kernels on a GPU by predicted time.

One candidate stands for all configurations of one kernel with the same tiles, warps and stages: it carries the best
order of blocks and the preferred values of parameters that the model cannot tell apart. Spaces stay factored, and the
order is decided only for candidates whose lower bound can still win.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import ConstrintError, InfeasibleError, LimitReachedError
from constrint.hwmodels import GpuModel
from constrint.model import Problem, Var
from constrint.select.candidate import Candidate, CostEstimate
from constrint.select.core_space import core_space
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockColumns
from constrint.select.ranking import KernelSpace as KernelSpace  # re-exported: the result types of `rank`
from constrint.select.ranking import Ranking as Ranking
from constrint.select.ranking import lateness
from constrint.select.spec import KernelSpec, Operation, Param
from constrint.select.workload import Workload, check_count, checked

if TYPE_CHECKING:
    from constrint.select.compiled import Compile
    from constrint.solve import Conflict, Limits

#: Relative difference of predicted times below which configurations tie.
TIE = 5e-4
#: Steps of `tie_steps` by which configurations that may not fit come after all others.
LATE = 1e9
#: Rows whose block order is decided at once.
CHUNK_ROWS = 128


@dataclass(frozen=True)
class KernelProblem:
    """One implementation, a GPU and a workload, with the problem to solve: the kernel's own and any further rules."""

    spec: KernelSpec
    gpu: GpuModel
    workload: Workload
    problem: Problem


def requests(operation: Operation, gpu: GpuModel, workload: Workload) -> tuple[list[KernelProblem], dict[str, str]]:
    """State the problems of all implementations that support a workload, and why the others do not, by full name.

    Raises:
        UsageError: When the operation does not take the workload, or no implementation can take it: the reason of the
            last, most general one.
        InfeasibleError: Likewise, when its data does not fit the GPU.
    """
    workload = checked(operation, workload)
    able: list[KernelProblem] = []
    refusals: dict[str, str] = {}
    last: ConstrintError | None = None
    for spec in operation.implementations:
        try:
            spec.check_workload(gpu, workload)
        except ConstrintError as error:
            refusals[spec.full_name] = str(error)
            last = error
        else:
            able.append(KernelProblem(spec, gpu, workload, spec.problem(gpu, workload)))
    if last is not None and not able:
        raise last
    return able, refusals


def rank(
    kernel: Operation | KernelSpec,
    gpu: GpuModel,
    workload: Workload | None = None,
    *,
    top: int = 10,
    compile: int = 0,
    strict: bool = False,
    limits: Limits | None = None,
) -> Ranking:
    """Find the `top` valid configurations with the least predicted time.

    Args:
        kernel: An operation, all of whose implementations compete, or one implementation.
        gpu: The hardware model.
        workload: The workload; the operation's default if None.
        top: Number of candidates to return.
        compile: Number of best candidates to compile for the GPU, which need not be present, and to rank again by the
            compiler's figures. These are cached on disk.
        strict: Remove configurations that break an estimated rule, too.
        limits: Limits of the search. An implementation whose search a limit ended is listed as a refusal.

    Raises:
        InfeasibleError: When nothing is valid; carries a minimal conflict.
        LimitReachedError: When a limit ended it before any implementation was ranked.
        UsageError: When the kernels or the GPU do not support the workload, or triton is missing to compile.
    """
    started = time.perf_counter()
    check_count("top", top, 1)
    check_count("compile", compile, 0)
    operation = kernel if isinstance(kernel, Operation) else Operation(kernel.full_name, (kernel,))
    workload = workload or operation.default_workload(gpu)
    able, refusals = requests(operation, gpu, workload)
    if strict:
        able = [replace(request, problem=request.problem.strict()) for request in able]
    return rank_requests(operation, able, refusals, top=top, started=started, compile=compile, limits=limits)


def rank_requests(
    operation: Operation,
    able: list[KernelProblem],
    refusals: Mapping[str, str],
    *,
    top: int = 10,
    started: float | None = None,
    compile: int = 0,
    compile_all: Compile | None = None,
    limits: Limits | None = None,
) -> Ranking:
    """Rank the problems of `requests`, perhaps with further rules in them.

    Among equal times the operation's preferred implementation comes first. `compile_all` compiles the `compile` best.

    Raises:
        InfeasibleError: When nothing is valid; carries a minimal conflict.
    """
    started = time.perf_counter() if started is None else started
    parts, late = _ranked(able, max(top, compile), limits)
    merged = sorted(
        (candidate for _, candidates in parts.values() for candidate in candidates),
        key=lambda candidate: (lateness(candidate, able[0].gpu), float(tie_steps(candidate.cost.seconds))),
    )
    if not merged and late:
        raise LimitReachedError(f"nothing was ranked: {', '.join(late.values())}")
    if not merged:
        raise infeasible(able, limits)
    merged = _compiled(merged, able, compile, compile_all)
    refused = {
        name: KernelSpace(name, refusal=text, is_cut=name in late) for name, text in {**refusals, **late}.items()
    }
    spaces = {name: space for name, (space, _) in parts.items()} | refused
    assumed = dict.fromkeys(line for r in able for line in r.spec.assumptions(r.gpu, r.workload))
    return Ranking(
        operation=operation,
        gpu=able[0].gpu,
        workload=able[0].workload,
        candidates=tuple(merged[:top]),
        spaces=tuple(spaces[spec.full_name] for spec in operation.implementations),
        seconds=time.perf_counter() - started,
        roofline_s=min(r.spec.roofline_s(r.gpu, r.workload) for r in able),
        assumptions=tuple(assumed),
        evidence={r.spec.full_name: text for r in able if (text := r.spec.evidence(r.gpu, r.workload))},
    )


def _ranked(
    able: list[KernelProblem], top: int, limits: Limits | None
) -> tuple[dict[str, tuple[KernelSpace, list[Candidate]]], dict[str, str]]:
    """Space and best candidates of every implementation by full name, and errors of those that a limit stopped."""
    parts, late = {}, {}
    for request in able:
        try:
            parts[request.spec.full_name] = _rank_one(request, top, limits)
        except LimitReachedError as error:
            late[request.spec.full_name] = str(error)
    return parts, late


def _compiled(
    candidates: list[Candidate], able: list[KernelProblem], number: int, compile_all: Compile | None
) -> list[Candidate]:
    """Replace estimates of the first candidates by compiled figures and order again; unusable ones come last."""
    by_kernel = {request.spec.full_name: request for request in able}
    first = [candidate for candidate in candidates if candidate.resources is not None][:number]
    if not first:
        return candidates
    from constrint.select.compiled import CompileJob, as_compiled, one_by_one  # where something is compiled

    jobs = [CompileJob(r.spec, r.gpu, r.workload, c.config) for c in first for r in (by_kernel[c.kernel],)]
    taken = {id(candidate) for candidate in first}
    rest = [candidate for candidate in candidates if id(candidate) not in taken]
    judged = as_compiled(first, jobs, compile_all or one_by_one)
    return sorted([*judged, *rest], key=lambda c: (lateness(c, able[0].gpu), c.cost.seconds))


def _rank_one(request: KernelProblem, top: int, limits: Limits | None) -> tuple[KernelSpace, list[Candidate]]:
    """One implementation's space and its best configurations."""
    spec, gpu, workload, problem = request.spec, request.gpu, request.workload, request.problem
    params = tuple(spec.params(gpu, workload))
    roofline_s = spec.roofline_s(gpu, workload)
    if not params:
        only = cost_of_row(spec.cost(gpu, workload, {}, np.ones(1)), 0, roofline_s)
        return KernelSpace(spec.full_name, 1, 1), [Candidate(spec.full_name, {}, None, only, 1)]
    space = core_space(spec, gpu, workload, problem, limits)
    if space.num_valid == 0:
        return KernelSpace(spec.full_name, space.num_product, 0), []
    core, blocks = space.columns, space.blocks
    factors = blocks.slowdown(gpu)
    bound = spec.cost(gpu, workload, core, blocks.blocks_per_sm).seconds * factors
    order_names = _order_names(spec, problem)
    order = [p for p in params if p.name in order_names]
    free = [p for p in params if p.name in {*spec.order_params, *spec.free_params} - order_names]

    def price(columns: Mapping[str, NDArray[Any]]) -> CostColumns:
        rows = columns["_row"]
        return spec.cost(gpu, workload, columns, blocks.blocks_per_sm[rows]).slowed(factors[rows])

    late = np.where(blocks.may_exceed(gpu), LATE, 0.0)
    columns, cost = _best_rows(price, problem, core, bound, late, order, params, top)
    rows = columns.pop("_row").tolist()
    chosen = _complete(problem, columns, free, params)
    configs = [{name: int(column[place]) for name, column in chosen.items()} for place in range(len(rows))]
    candidates = [
        Candidate(
            kernel=spec.full_name,
            config=config,
            resources=blocks.resources(row, config),
            cost=cost_of_row(cost, place, roofline_s),
            num_variants=int(space.num_variants[row]),
        )
        for place, (row, config) in enumerate(zip(rows, configs, strict=True))
    ]
    return KernelSpace(spec.full_name, space.num_product, space.num_valid), candidates


def cost_of_row(cost: CostColumns, row: int, roofline_s: float) -> CostEstimate:
    """The cost estimate of one row."""
    seconds = float(cost.seconds[row])
    return CostEstimate(seconds, cost.bound_by(row), roofline_s / seconds, cost.parts_of(row))


def _order_names(spec: KernelSpec, problem: Problem) -> set[str]:
    """The order parameters, and free ones that a rule (of the user's, say) ties to them."""
    names = set(spec.order_params)
    while True:
        tied = {
            name
            for constraint in problem.constraints
            if constraint.variables & names
            for name in constraint.variables & set(spec.free_params)
        }
        if tied <= names:
            return names
        names |= tied


def predict(spec: KernelSpec, gpu: GpuModel, workload: Workload, columns: Mapping[str, NDArray[Any]]) -> CostColumns:
    """Predicted times of configurations (columns of parameters), valid or not."""
    use = spec.use(gpu, workload, {name: Var(name) for name in columns})
    blocks = BlockColumns.of(gpu, use, columns, () if use is None else spec.problem(gpu, workload).estimates)
    return spec.cost(gpu, workload, columns, blocks.blocks_per_sm).slowed(blocks.slowdown(gpu))


def infeasible(able: list[KernelProblem], limits: Limits | None = None) -> InfeasibleError:
    """The error that no configuration is valid: a minimal conflict with its reasons for every kernel."""
    headline = nothing_fits(able[-1].gpu, able[-1].workload)
    reasons = [(request.spec.full_name, *reason_of(request.problem, limits=limits)) for request in able]
    conflict = reasons[-1][2]
    if len(reasons) == 1:
        return InfeasibleError(f"{headline} {reasons[0][1]}", conflict)
    text = "\n".join([headline, *(f"{name}: {text}" for name, text, _ in reasons)])
    return InfeasibleError(text, conflict, {name: conflict for name, _, conflict in reasons})


def nothing_fits(gpu: GpuModel, workload: Workload) -> str:
    """Write the sentence that no configuration is valid."""
    numbers = " ".join(f"{name}={size}" for name, size in (*workload.sizes.items(), *workload.options.items()))
    return f"no config of {workload.operation!r} fits {gpu.name} for {numbers} {workload.dtype}."


def reason_of(problem: Problem, *, is_kernel: bool = True, limits: Limits | None = None) -> tuple[str, Conflict | None]:
    """Why a problem has no solution, as text, and the conflict where it could be narrowed down."""
    from constrint.solve import minimal_conflict  # loaded where there is something to explain

    try:
        conflict = minimal_conflict(problem, limits, domains_in_force=is_kernel)
    except LimitReachedError as error:
        return f"Why could not be narrowed down: {error}", None
    return str(conflict), conflict


def _best_rows(
    price: Callable[[Mapping[str, NDArray[Any]]], CostColumns],
    problem: Problem,
    core: Mapping[str, NDArray[Any]],
    bound: NDArray[np.float64],
    late: NDArray[np.float64],
    order: list[Param],
    params: tuple[Param, ...],
    top: int,
) -> tuple[dict[str, NDArray[Any]], CostColumns]:
    """The `top` core rows, each with its best order; rows whose bound exceeds the k-th best are never expanded.

    `late` is added to the steps of each row.
    """
    # The order of ties is irrelevant here: all of them are expanded and sorted afterwards.
    steps_of_bound = tie_steps(bound) + late
    by_bound = np.argsort(steps_of_bound)
    best: dict[str, NDArray[Any]] | None = None
    cost: CostColumns | None = None
    worst = np.inf
    for start in range(0, len(by_bound), CHUNK_ROWS):
        rows = by_bound[start : start + CHUNK_ROWS]
        if best is not None and len(best["_row"]) >= top and steps_of_bound[rows[0]] > worst:
            break
        fresh = _expand({n: c[rows] for n, c in core.items()} | {"_row": rows}, order, problem)
        if best is not None:
            fresh = {n: np.concatenate([best[n], fresh[n]]) for n in fresh}
        priced = price(fresh)
        steps = tie_steps(priced.seconds) + late[fresh["_row"]]
        ordered = _in_order(steps, fresh, params)
        _, first = np.unique(fresh["_row"][ordered], return_index=True)
        keep = ordered[np.sort(first)[:top]]
        best, cost, worst = {n: c[keep] for n, c in fresh.items()}, priced.take(keep), float(steps[keep].max())
    if best is None or cost is None:
        raise ValueError("an empty space has no best row")
    return best, cost


def tie_steps(seconds: Any) -> NDArray[np.float64]:
    """Map times to a logarithmic grid of step `TIE`: differences far below the model's error must not decide."""
    return np.floor(np.log(np.asarray(seconds, dtype=np.float64)) / TIE)


def _in_order(first: NDArray[Any], columns: Mapping[str, NDArray[Any]], params: tuple[Param, ...]) -> NDArray[np.int64]:
    """Sort rows by `first`; ties in the order of the parameters' preferred values."""
    keys: list[NDArray[Any]] = []
    for param in reversed(params):
        if param.name in columns:
            by_value = np.argsort(param.values)
            at = np.searchsorted(np.asarray(param.values)[by_value], columns[param.name])
            keys.append(by_value[at])
    keys.append(first)
    return np.lexsort(keys)


def _expand(columns: dict[str, NDArray[Any]], params: list[Param], problem: Problem) -> dict[str, NDArray[Any]]:
    """Every completion of the rows by values of `params` that violates none of their rules."""
    for param in params:
        num_rows = len(next(iter(columns.values())))
        domain = problem.variables[param.name]
        values = np.array([value for value in param.values if value in domain], dtype=np.int64)
        columns = {n: np.repeat(c, len(values)) for n, c in columns.items()}
        columns[param.name] = np.tile(values, num_rows)
    names = {p.name for p in params}
    keep = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for constraint in problem.constraints:
        if constraint.variables & names and constraint.variables <= columns.keys():
            keep &= constraint.holds_columns(columns)
    return {n: c[keep] for n, c in columns.items()}


def _complete(
    problem: Problem, columns: Mapping[str, NDArray[Any]], free: list[Param], params: tuple[Param, ...]
) -> dict[str, NDArray[Any]]:
    """Give every row the preferred values of the parameters that the model cannot tell apart."""
    rows = np.arange(len(next(iter(columns.values()))))
    expanded = _expand({**columns, "_row": rows}, free, problem)
    ordered = _in_order(expanded["_row"], expanded, params)
    first = ordered[np.unique(expanded.pop("_row")[ordered], return_index=True)[1]]
    return {p.name: expanded[p.name][first] for p in params}
