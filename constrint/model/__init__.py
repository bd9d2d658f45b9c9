"""Integer problems as data: expressions, constraints with reasons, the text language. No solver."""

from typing import TYPE_CHECKING, Final

from constrint.lazy import lazily, names_of
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
from constrint.model.expr import (
    Calculation,
    Const,
    Expr,
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
from constrint.model.logic import Element, count, element, if_then_else, iff, junction, xor
from constrint.model.problem import Objective, Problem, SoftConstraint
from constrint.model.ratio import Ratio, Symbol, fractions
from constrint.model.sequences import circuit, cumulative, inverse, no_overlap, regular
from constrint.model.table import InTable, table
from constrint.model.text.render import render, render_constraint, render_expr, render_fraction
from constrint.model.words import (
    AllDifferent,
    Word,
    all_different,
    at_least,
    at_most,
    exactly,
    global_cardinality,
    lex_less,
    lex_less_equal,
)

if TYPE_CHECKING:
    from constrint.model.text.grammar import DialectWarning
    from constrint.model.text.parse import parse, parse_constraint

# Methods of expressions, constraints and problems whose functions stand in files that import these classes: operators
# (comparisons, `& | ^ ~`, fractions), evaluation over columns, and `str`. All of them are entered here.
Expr.comparison = Comparison
Expr.junction = junction
Expr.fractions = fractions
Expr.evaluator = columns.expression_column
Constraint.evaluator = columns.constraint_column
Expr.writer = render_expr
Constraint.writer = render_constraint
Problem.writer = render
Objective.writer = render_fraction

# The parser of the text language is loaded at its first use.
_NAMES: Final = {"text.grammar": ("DialectWarning",), "text.parse": ("parse", "parse_constraint")}
__getattr__ = lazily(__name__, _NAMES)
__dir__ = names_of(globals(), _NAMES)

__all__ = [
    "AllDifferent",
    "AllOf",
    "AnyOf",
    "Calculation",
    "Comparison",
    "Const",
    "Constraint",
    "DialectWarning",
    "Divides",
    "Domain",
    "Element",
    "Expr",
    "Implies",
    "InTable",
    "IsIn",
    "Not",
    "Objective",
    "Problem",
    "Ratio",
    "SoftConstraint",
    "Symbol",
    "Truth",
    "Var",
    "Word",
    "absolute",
    "all_different",
    "all_of",
    "any_of",
    "at_least",
    "at_most",
    "ceildiv",
    "circuit",
    "const",
    "count",
    "cumulative",
    "divides",
    "element",
    "exactly",
    "gcd",
    "global_cardinality",
    "if_then_else",
    "iff",
    "implies",
    "inverse",
    "is_in",
    "lcm",
    "lex_less",
    "lex_less_equal",
    "maximum",
    "minimum",
    "negate",
    "no_overlap",
    "not_in",
    "parse",
    "parse_constraint",
    "regular",
    "render",
    "table",
    "xor",
]
