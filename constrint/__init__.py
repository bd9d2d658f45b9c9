"""constrint: which kernel configurations fit a named GPU, which is best, and why - with no device present.

The main names of the packages below are offered here too, `from constrint import Problem, enumerate_space, load_gpu,
rank`. Each is imported when it is first asked for, so that `import constrint` stays light.
"""

from typing import TYPE_CHECKING, Final

from constrint.lazy import lazily, names_of

if TYPE_CHECKING:
    import constrint.solve as solve
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
        list_gpus,
        load_gpu,
        occupancy,
    )
    from constrint.kernels.launch.autotune import autotune, space
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
    from constrint.select import Operation, Ranking, Workload
    from constrint.select.rank import rank
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
    "errors": ("CancelledError", "ConstrintError", "InfeasibleError", "LimitReachedError", "ParseError", "UsageError"),
    "hwmodels": ("GpuModel", "list_gpus", "load_gpu", "occupancy"),
    "kernels.launch.autotune": ("autotune", "space"),
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
    "select": ("Operation", "Ranking", "Workload", "rank"),
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
    "problem_from_space",
    "pruning",
    "rank",
    "relaxations",
    "render",
    "solutions_in_order",
    "solve",
    "space",
    "table",
    "why_not",
    "xor",
]


def __getattr__(name: str) -> object:
    if name == "solve":
        # The package of that name, which is called like its function.
        import constrint.solve

        return constrint.solve
    return _load(name)
