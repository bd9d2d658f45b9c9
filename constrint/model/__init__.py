"""Integer problems as data: expressions, constraints with reasons, the text language. No solver."""

from constrint.model import columns as columns
from constrint.model.constraint import (
    AllOf,
    AnyOf,
    Comparison,
    Constraint,
    Divides,
    Implies,
    IsIn,
    Not,
    all_of,
    any_of,
    divides,
    implies,
    is_in,
    negate,
    not_in,
)
from constrint.model.domain import Domain
from constrint.model.expr import Const, Expr, Operation, Var, absolute, ceildiv, const, gcd, lcm, maximum, minimum
from constrint.model.problem import Objective, Problem, SoftConstraint
from constrint.model.text.grammar import DialectWarning
from constrint.model.text.parse import parse, parse_constraint
from constrint.model.text.render import render

__all__ = [
    "AllOf",
    "AnyOf",
    "Comparison",
    "Const",
    "Constraint",
    "DialectWarning",
    "Divides",
    "Domain",
    "Expr",
    "Implies",
    "IsIn",
    "Not",
    "Objective",
    "Operation",
    "Problem",
    "SoftConstraint",
    "Var",
    "absolute",
    "all_of",
    "any_of",
    "ceildiv",
    "const",
    "divides",
    "gcd",
    "implies",
    "is_in",
    "lcm",
    "maximum",
    "minimum",
    "negate",
    "not_in",
    "parse",
    "parse_constraint",
    "render",
]
