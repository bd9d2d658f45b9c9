"""Membership of several parameters at once, `(x, y) in {(1, 2), (3, 4)}`, which is a table."""

from __future__ import annotations

import ast
from typing import Any

from constrint.model import constraint as c
from constrint.model.domain import Domain
from constrint.model.python.parameters import Parameters
from constrint.model.table import table_of


def rows_of(left: ast.expr, right: ast.expr, parameters: Parameters) -> c.Constraint | None:
    """What `left in right` says, where left are parameters and right are rows of constants; None for anything else."""
    if not isinstance(left, ast.Tuple) or not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
        return None
    if not all(isinstance(item, ast.Name) for item in left.elts):
        return None
    names = [parameters.name_of(item) for item in left.elts]
    try:
        listed = [ast.literal_eval(item) for item in right.elts]
    except ValueError:
        return None
    domains = [parameters.domains[name] for name in names if name is not None]
    fitting = (row for row in listed if isinstance(row, tuple) and len(row) == len(domains))
    rows = [tuple(map(_code, domains, row)) for row in fitting]
    variables = tuple(parameters.variable(name) for name in names if name is not None)
    if not variables:
        return None
    return table_of(variables, [tuple(code for code in row if code is not None) for row in rows if None not in row])


def _code(domain: Domain, value: Any) -> int | None:
    """The code of the value that is equal to this one in Python; None where there is none."""
    if domain.labels is not None and domain.listed is not None:
        codes = zip(domain.listed, domain.labels, strict=True)
        return next((code for code, label in codes if label == value), None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, int) else None
