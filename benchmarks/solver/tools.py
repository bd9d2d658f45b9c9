"""One measurement of one tool on one search space, in a process of its own; `bench.py` starts these.

    python -m benchmarks.solver.tools MEASURE:TOOL SPACE.json

Prints one JSON line: CPU seconds of the process for the measured part (libraries are imported before), the
number of configurations, bytes held by the result, peak memory of the process. Every tool builds from the same
parameters and restriction strings, in the form that its own documentation shows.
"""

from __future__ import annotations

import ast
import contextlib
import functools
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


class _Elementwise(ast.NodeTransformer):
    """Writes `and or not` and chained comparisons so that they work on numpy arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        operator: ast.operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return functools.reduce(lambda left, right: ast.BinOp(left, operator, right), node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.UnaryOp(ast.Invert(), node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        sides = zip(itertools.pairwise([node.left, *node.comparators]), node.ops, strict=True)
        pairs: list[ast.expr] = [ast.Compare(left, [op], [right]) for (left, right), op in sides]
        return functools.reduce(lambda left, right: ast.BinOp(left, ast.BitAnd(), right), pairs)


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

    return lambda: {"count": Searchspace(space["params"], list(space["restrictions"]), max_threads=1 << 40).size}


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
        of[[name for name in order if name in NAME.findall(text)][-1]].append(text)
    result = []
    for name in order:
        rule = None
        if of[name]:
            used = [n for n in order if any(n in NAME.findall(text) for text in of[name])]
            source = f"lambda {', '.join(used)}: {' and '.join(f'({t})' for t in of[name])}"
            rule = eval(source)  # noqa: S307 - strings of this repository
        result.append(TP(name, Set(*params[name]), rule))
    return result


def pyatf(space: Space, *, is_flat: bool) -> Callable[[], Result]:
    """PyATF's chain of trees; `is_flat`: then every configuration as a dictionary."""
    from pyatf.search_space import SearchSpace

    def run() -> Result:
        built = SearchSpace(*_pyatf_parameters(space), enable_1d_access=is_flat, verbosity=0)
        size = built.constrained_size
        return {"count": len([built.get_configuration(i) for i in range(size)]) if is_flat else size}

    return run


def _problem(space: Space, *, maximises: bool = False) -> Any:
    """The problem; with the product of the first four parameters with several positive values as its objective."""
    from constrint.model import Var
    from constrint.model.expr import mul
    from constrint.model.python.restrictions import problem_from_space

    problem = problem_from_space(space["params"], space["restrictions"], name=space["name"])
    if maximises:
        chosen = [n for n, values in space["params"].items() if len(values) > 1 and min(values) > 0][:4]
        problem.maximise(mul(*(Var(n) for n in chosen)))
    return problem


def cpsat(measure: str) -> Callable[[Space], Callable[[], Result]]:
    """OR-tools CP-SAT on the model that constrint's back-end builds: all solutions, the first, or the best."""
    from ortools.sat.python import cp_model  # noqa: F401 - imported before the clock starts

    from constrint.solve import Limits, solve
    from constrint.solve.backends.cpsat import CpSatBackend

    def run(space: Space) -> Result:
        if measure not in ("first", "best"):
            columns = CpSatBackend().solutions(_problem(space), Limits(max_seconds=100))
            return {"count": len(next(iter(columns.values())))}
        answer = solve(_problem(space, maximises=measure == "best"), backend="cpsat")
        return {"count": answer.value if measure == "best" else len(answer.require())}

    return lambda space: lambda: run(space)


def constrint(measure: str) -> Callable[[Space], Callable[[], Result]]:
    """Constrint; everything is imported before the clock starts.

    columns: every configuration; count: the factored space and its size; factored: count, 10,000 uniform samples and
    the neighbours of 1,000 of them; first: one configuration; best: the one with the largest objective, proven.
    """
    from constrint.model.python.restrictions import problem_from_space  # noqa: F401
    from constrint.solve import enumerate_space, solve
    from constrint.solve.backends import native  # noqa: F401

    def columns(problem: Any) -> Result:
        listed = enumerate_space(problem).columns()
        return {"count": len(next(iter(listed.values()))), "bytes": sum(c.nbytes for c in listed.values())}

    def factored(problem: Any) -> Result:
        space = enumerate_space(problem)
        sample = space.take(space.sample_indices(10_000, seed=1))
        source, _ = space.neighbour_columns({name: column[:1000] for name, column in sample.items()})
        return {"count": space.size, "neighbours": len(source)}

    asked: dict[str, Callable[[Any], Result]] = {
        "columns": columns,
        "count": lambda problem: {"count": enumerate_space(problem).size},
        "factored": factored,
        "first": lambda problem: {"count": len(solve(problem).require())},
        "best": lambda problem: {"count": solve(problem).value},
    }
    return lambda space: lambda: asked[measure](_problem(space, maximises=measure == "best"))


TOOLS: dict[str, Callable[[Space], Callable[[], Result]]] = {
    "numpy brute": numpy_brute,
    "kernel_tuner": kernel_tuner,
    "python-constraint2": python_constraint,
    "pyatf flat": functools.partial(pyatf, is_flat=True),
    "pyatf tree": functools.partial(pyatf, is_flat=False),
}


def main() -> None:
    """Runs one measurement."""
    measure, _, tool = sys.argv[1].partition(":")
    make = TOOLS.get(tool) or {"constrint": constrint, "cp-sat": cpsat}[tool](measure)
    run = make(json.loads(Path(sys.argv[2]).read_text()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.process_time()
        result = run()
        seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cpu_s": seconds, "peak_kib": peak, "grown_kib": peak - before, **result}))


if __name__ == "__main__":
    main()
