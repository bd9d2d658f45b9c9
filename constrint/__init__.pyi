# ruff: noqa: I001
# The names of `constrint` by the module that defines each: the one list, for type checkers and for `constrint/lazy.py`.

from constrint import nn as nn, solve as solve
from constrint.choose.explain import why as why
from constrint.errors import (
    CancelledError as CancelledError,
    ConstrintError as ConstrintError,
    InfeasibleError as InfeasibleError,
    LimitReachedError as LimitReachedError,
    ParseError as ParseError,
    UsageError as UsageError,
)
from constrint.hwmodels import (
    GpuModel as GpuModel,
    gpu_names as gpu_names,
    list_gpus as list_gpus,
    load_gpu as load_gpu,
    occupancy as occupancy,
)
from constrint.kernels.jacobi.op import jacobi as jacobi
from constrint.kernels.cg import CGResult as CGResult, Poisson as Poisson, StarMatrix as StarMatrix, cg as cg
from constrint.kernels.axpy.op import axpy as axpy
from constrint.kernels.gemv.op import gemv as gemv
from constrint.kernels.launch.autotune import autotune as autotune, space as space
from constrint.kernels.launch.pruning import perf_model as perf_model, prune as prune
from constrint.kernels.spmv import spmv as spmv
from constrint.kernels.registry import list_kernels as list_kernels, load_kernel as load_kernel
from constrint.model import (
    Constraint as Constraint,
    Domain as Domain,
    Expr as Expr,
    Problem as Problem,
    Var as Var,
    absolute as absolute,
    all_different as all_different,
    all_of as all_of,
    any_of as any_of,
    ceildiv as ceildiv,
    const as const,
    divides as divides,
    element as element,
    gcd as gcd,
    if_then_else as if_then_else,
    iff as iff,
    implies as implies,
    is_in as is_in,
    lcm as lcm,
    maximum as maximum,
    minimum as minimum,
    negate as negate,
    not_in as not_in,
    parse as parse,
    render as render,
    table as table,
    xor as xor,
)
from constrint.model.python.restrictions import load_space as load_space, problem_from_space as problem_from_space
from constrint.patch.apply import patch as patch
from constrint.propose.evaluation import evaluate as evaluate
from constrint.ranking import rank as rank
from constrint.select.layouts import solve_layout as solve_layout
from constrint.select import Operation as Operation, Ranking as Ranking, Workload as Workload
from constrint.solve import (
    Limits as Limits,
    SearchSpace as SearchSpace,
    Solution as Solution,
    Status as Status,
    best_solutions as best_solutions,
    count as count,
    enumerate_space as enumerate_space,
    minimal_conflict as minimal_conflict,
    pruning as pruning,
    relaxations as relaxations,
    solutions_in_order as solutions_in_order,
    why_not as why_not,
)

__version__: str
__all__: list[str]
