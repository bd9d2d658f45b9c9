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
from constrint.model.element import Element, element
from constrint.model.expr import (
    Const,
    Expr,
    Operation,
    Truth,
    Var,
    absolute,
    ceildiv,
    const,
    gcd,
    lcm,
    maximum,
    minimum,
)
from constrint.model.logic import AllDifferent, all_different, count, if_then_else, iff, xor
from constrint.model.problem import Objective, Problem, SoftConstraint
from constrint.model.ratio import Ratio, Symbol
from constrint.model.table import Table, table
from constrint.model.text.grammar import DialectWarning
from constrint.model.text.parse import parse, parse_constraint
from constrint.model.text.render import render

__all__ = [
    "AllDifferent",
    "AllOf",
    "AnyOf",
    "Comparison",
    "Const",
    "Constraint",
    "DialectWarning",
    "Divides",
    "Domain",
    "Element",
    "Expr",
    "Implies",
    "IsIn",
    "Not",
    "Objective",
    "Operation",
    "Problem",
    "Ratio",
    "SoftConstraint",
    "Symbol",
    "Table",
    "Truth",
    "Var",
    "absolute",
    "all_different",
    "all_of",
    "any_of",
    "ceildiv",
    "const",
    "count",
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
    "parse_constraint",
    "render",
    "table",
    "xor",
]
