"""One measurement of one tool on one search space, in a process of its own; `bench_solver.py` starts these.

    python solver_tools.py TOOL MEASURE SPACE.json

Prints one JSON line: CPU seconds of the process for the measured part (libraries are imported before), the
number of configurations, bytes held by the result, peak memory of the process. Every tool builds from the same
parameters and restriction strings, in the form that its own documentation shows.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import json
import math
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Space = dict[str, Any]
Result = dict[str, Any]
NAME = re.compile(r"[A-Za-z_]\w*")


def names_in(text: str, params: dict[str, list[int]]) -> list[str]:
    """Parameters of a restriction, in declared order."""
    found = set(NAME.findall(text))
    return [n for n in params if n in found]


class _Elementwise(ast.NodeTransformer):
    """Writes `and or not` and chained comparisons so that they work on numpy arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        operator: ast.operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        result: ast.expr = node.values[0]
        for value in node.values[1:]:
            result = ast.BinOp(result, operator, value)
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.UnaryOp(ast.Invert(), node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        result: ast.expr | None = None
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            one = ast.Compare(left, [op], [right])
            result = one if result is None else ast.BinOp(result, ast.BitAnd(), one)
        assert result is not None
        return result


def numpy_brute(space: Space) -> Callable[[], Result]:
    """The full product as broadcast grids, restrictions as masks; leading parameters one by one if it is large."""
    import numpy as np

    params = space["params"]

    def run() -> Result:
        rules = [
            compile(ast.fix_missing_locations(_Elementwise().visit(ast.parse(r, mode="eval"))), "restriction", "eval")
            for r in space["restrictions"]
        ]
        names = list(params)
        first = 0
        while math.prod(len(params[n]) for n in names[first:]) > 1 << 24:
            first += 1
        inner = names[first:]
        axes = dict(zip(inner, np.ix_(*(np.array(params[n]) for n in inner)), strict=True))
        shape = tuple(len(params[n]) for n in inner)
        pieces: list[list[Any]] = []
        for leading in itertools.product(*(params[n] for n in names[:first])):
            scope = {**axes, **dict(zip(names[:first], leading, strict=True))}
            mask: Any = True
            for rule in rules:
                mask = mask & eval(rule, {}, scope)  # noqa: S307 - strings of this repository
            at = np.nonzero(np.broadcast_to(mask, shape))
            head = [np.full(len(at[0]), v) for v in leading]
            pieces.append(head + [np.array(params[n])[i] for n, i in zip(inner, at, strict=True)])
        columns = [np.concatenate(c) if len(pieces) > 1 else c[0] for c in zip(*pieces, strict=True)]
        return {"count": len(columns[0]), "bytes": sum(c.nbytes for c in columns)}

    return run


def kernel_tuner(space: Space) -> Callable[[], Result]:
    """Kernel Tuner's Searchspace with its default solver; no block size limit of its own."""
    from kernel_tuner.searchspace import Searchspace

    def run() -> Result:
        built = Searchspace(space["params"], list(space["restrictions"]), max_threads=1 << 40)
        return {"count": built.size}

    return run


def python_constraint(space: Space) -> Callable[[], Result]:
    """python-constraint2 with the restrictions as strings."""
    from constraint import Problem

    def run() -> Result:
        problem = Problem()
        for name, values in space["params"].items():
            problem.addVariable(name, values)
        problem.addConstraint(list(space["restrictions"]))
        return {"count": len(problem.getSolutions())}

    return run


def _pyatf_parameters(space: Space) -> list[Any]:
    """One constraint per parameter: the restrictions whose last parameter it is."""
    from pyatf import TP, Set

    params = space["params"]
    order = list(params)
    of: dict[str, list[str]] = {n: [] for n in order}
    for text in space["restrictions"]:
        of[names_in(text, params)[-1]].append(text)
    result = []
    for name in order:
        rule = None
        if of[name]:
            used = [n for n in order if any(n in names_in(t, params) for t in of[name])]
            source = f"lambda {', '.join(used)}: {' and '.join(f'({t})' for t in of[name])}"
            rule = eval(source)  # noqa: S307 - strings of this repository
        result.append(TP(name, Set(*params[name]), rule))
    return result


def pyatf_flat(space: Space) -> Callable[[], Result]:
    """PyATF's chain of trees, then every configuration as a dictionary."""
    from pyatf.search_space import SearchSpace

    def run() -> Result:
        built = SearchSpace(*_pyatf_parameters(space), enable_1d_access=True, verbosity=0)
        listed = [built.get_configuration(i) for i in range(built.constrained_size)]
        return {"count": len(listed)}

    return run


def pyatf_tree(space: Space) -> Callable[[], Result]:
    """PyATF's chain of trees alone."""
    from pyatf.search_space import SearchSpace

    def run() -> Result:
        built = SearchSpace(*_pyatf_parameters(space), enable_1d_access=False, verbosity=0)
        return {"count": built.constrained_size}

    return run


def _problem(space: Space) -> Any:
    from constrint.model.python.restrictions import problem_from_space

    return problem_from_space(space["params"], space["restrictions"], name=space["name"])


def cpsat(space: Space) -> Callable[[], Result]:
    """OR-tools CP-SAT, enumerating all solutions of the model that constrint's back-end builds."""
    from ortools.sat.python import cp_model  # noqa: F401 - imported before the clock starts

    from constrint.solve import Limits
    from constrint.solve.backends.cpsat import CpSatBackend

    def run() -> Result:
        columns = CpSatBackend().solutions(_problem(space), Limits(max_seconds=100))
        return {"count": len(next(iter(columns.values())))}

    return run


def _load_constrint() -> None:
    """Imports what the measured part uses, so that the clock sees work only."""
    import constrint.model.python.restrictions
    import constrint.solve  # noqa: F401


def constrint_columns(space: Space) -> Callable[[], Result]:
    """Constrint: every configuration as columns."""
    _load_constrint()
    from constrint.solve import enumerate_space

    def run() -> Result:
        columns = enumerate_space(_problem(space)).columns()
        return {"count": len(next(iter(columns.values()))), "bytes": sum(c.nbytes for c in columns.values())}

    return run


def constrint_count(space: Space) -> Callable[[], Result]:
    """Constrint: the factored space and its size."""
    _load_constrint()
    from constrint.solve import enumerate_space

    return lambda: {"count": enumerate_space(_problem(space)).size}


def constrint_factored(space: Space) -> Callable[[], Result]:
    """Constrint: count, 10,000 uniform samples, the neighbours of 1,000 of them, all without listing the space."""
    _load_constrint()
    from constrint.solve import enumerate_space

    def run() -> Result:
        found = enumerate_space(_problem(space))
        sample = found.take(found.sample_indices(10_000, seed=1))
        source, _ = found.neighbour_columns({n: c[:1000] for n, c in sample.items()})
        return {"count": found.size, "neighbours": len(source)}

    return run


def constrint_first(space: Space) -> Callable[[], Result]:
    """Constrint: one configuration."""
    _load_constrint()
    from constrint.solve import solve

    return lambda: {"count": len(solve(_problem(space)).require())}


def constrint_best(space: Space) -> Callable[[], Result]:
    """Constrint: the configuration with the largest product of the parameters that restrictions name, proven."""
    _load_constrint()
    from constrint.solve import solve

    def run() -> Result:
        problem = _problem(space)
        problem.maximise(objective(space))
        return {"count": solve(problem).value}

    return run


def objective(space: Space) -> Any:
    """Product of the first four parameters with several positive values."""
    from constrint.model import Var
    from constrint.model.expr import mul

    chosen = [n for n, values in space["params"].items() if len(values) > 1 and min(values) > 0][:4]
    return mul(*(Var(n) for n in chosen))


def _cpsat_one(space: Space, best: bool) -> Callable[[], Result]:
    from ortools.sat.python import cp_model  # noqa: F401

    from constrint.solve import solve

    def run() -> Result:
        problem = _problem(space)
        if best:
            problem.maximise(objective(space))
        answer = solve(problem, backend="cpsat")
        return {"count": answer.value if best else len(answer.require())}

    return run


TOOLS: dict[str, Callable[[Space], Callable[[], Result]]] = {
    "columns:constrint": constrint_columns,
    "columns:numpy brute": numpy_brute,
    "columns:kernel_tuner": kernel_tuner,
    "columns:python-constraint2": python_constraint,
    "columns:pyatf flat": pyatf_flat,
    "columns:cp-sat": cpsat,
    "count:constrint": constrint_count,
    "count:pyatf tree": pyatf_tree,
    "factored:constrint": constrint_factored,
    "first:constrint": constrint_first,
    "first:cp-sat": lambda space: _cpsat_one(space, best=False),
    "best:constrint": constrint_best,
    "best:cp-sat": lambda space: _cpsat_one(space, best=True),
}


def main() -> None:
    """Runs one measurement."""
    tool, path = sys.argv[1:3]
    space = json.loads(Path(path).read_text())
    run = TOOLS[tool](space)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.process_time()
        result = run()
        seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cpu_s": seconds, "peak_kib": peak, "grown_kib": peak - before, **result}))


if __name__ == "__main__":
    main()
