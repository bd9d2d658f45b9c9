"""constrint: which kernel configurations fit a named GPU, which is best, and why - with no device present.

The main names of the packages below are offered here too, `from constrint import Problem, enumerate_space, load_gpu,
rank`. Each is imported when it is first asked for, so that `import constrint` stays light.
"""

from __future__ import annotations

from constrint.lazy import lazily, names_of

# As type checkers know it; `typing` itself is left out, so that the command soon deals with a Ctrl-C (cli/entry.py).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    import constrint.solve as solve
    from constrint.choose.explain import why
    from constrint.errors import (
        CancelledError,
        ConstrintError,
        InfeasibleError,
        LimitReachedError,
        ParseError,
        UsageError,
    )
    from constrint.hwmodels import (
        GpuModel,
        gpu_names,
        list_gpus,
        load_gpu,
        occupancy,
    )
    from constrint.kernels.launch.autotune import autotune, space
    from constrint.kernels.launch.pruning import perf_model, prune
    from constrint.kernels.registry import list_kernels, load_kernel
    from constrint.model import (
        Constraint,
        Domain,
        Expr,
        Problem,
        Var,
        absolute,
        all_different,
        all_of,
        any_of,
        ceildiv,
        const,
        divides,
        element,
        gcd,
        if_then_else,
        iff,
        implies,
        is_in,
        lcm,
        maximum,
        minimum,
        negate,
        not_in,
        parse,
        render,
        table,
        xor,
    )
    from constrint.model.python.restrictions import load_space, problem_from_space
    from constrint.ranking import rank
    from constrint.select import Operation, Ranking, Workload
    from constrint.solve import (
        Limits,
        SearchSpace,
        Solution,
        Status,
        best_solutions,
        count,
        enumerate_space,
        minimal_conflict,
        pruning,
        relaxations,
        solutions_in_order,
        why_not,
    )

__version__ = "0.1.0"

_NAMES: Final = {
    "choose.explain": ("why",),
    "errors": ("CancelledError", "ConstrintError", "InfeasibleError", "LimitReachedError", "ParseError", "UsageError"),
    "hwmodels": ("GpuModel", "gpu_names", "list_gpus", "load_gpu", "occupancy"),
    "kernels.launch.autotune": ("autotune", "space"),
    "kernels.launch.pruning": ("perf_model", "prune"),
    "kernels.registry": ("list_kernels", "load_kernel"),
    "model": (
        "Constraint",
        "Domain",
        "Expr",
        "Problem",
        "Var",
        "absolute",
        "all_different",
        "all_of",
        "any_of",
        "ceildiv",
        "const",
        "divides",
        "element",
        "gcd",
        "if_then_else",
        "iff",
        "implies",
        "is_in",
        "lcm",
        "maximum",
        "minimum",
        "negate",
        "not_in",
        "parse",
        "render",
        "table",
        "xor",
    ),
    "model.python.restrictions": ("load_space", "problem_from_space"),
    "ranking": ("rank",),
    "select": ("Operation", "Ranking", "Workload"),
    "solve": (
        "Limits",
        "SearchSpace",
        "Solution",
        "Status",
        "best_solutions",
        "count",
        "enumerate_space",
        "minimal_conflict",
        "pruning",
        "relaxations",
        "solutions_in_order",
        "why_not",
    ),
}
_load = lazily(__name__, _NAMES)
__dir__ = names_of(globals(), {**_NAMES, "": ("solve",)})

__all__ = [
    "CancelledError",
    "Constraint",
    "ConstrintError",
    "Domain",
    "Expr",
    "GpuModel",
    "InfeasibleError",
    "LimitReachedError",
    "Limits",
    "Operation",
    "ParseError",
    "Problem",
    "Ranking",
    "SearchSpace",
    "Solution",
    "Status",
    "UsageError",
    "Var",
    "Workload",
    "absolute",
    "all_different",
    "all_of",
    "any_of",
    "autotune",
    "best_solutions",
    "ceildiv",
    "const",
    "count",
    "divides",
    "element",
    "enumerate_space",
    "gcd",
    "gpu_names",
    "if_then_else",
    "iff",
    "implies",
    "is_in",
    "lcm",
    "list_gpus",
    "list_kernels",
    "load_gpu",
    "load_kernel",
    "load_space",
    "maximum",
    "minimal_conflict",
    "minimum",
    "negate",
    "not_in",
    "occupancy",
    "parse",
    "perf_model",
    "problem_from_space",
    "prune",
    "pruning",
    "rank",
    "relaxations",
    "render",
    "solutions_in_order",
    "solve",
    "space",
    "table",
    "why",
    "why_not",
    "xor",
]


def __getattr__(name: str) -> object:
    if name == "solve":
        # The package of that name, which is called like its function.
        import constrint.solve

        return constrint.solve
    return _load(name)
