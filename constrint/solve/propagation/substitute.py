"""Replaces a variable by an expression, everywhere in a constraint."""

from __future__ import annotations

from constrint.model import (
    AllDifferent,
    AllOf,
    AnyOf,
    Comparison,
    Constraint,
    Divides,
    Expr,
    Implies,
    IsIn,
    Not,
    Operation,
    Table,
    Truth,
    Var,
)
from constrint.model.element import rebuilt


def substitute_expr(expr: Expr, name: str, value: Expr) -> Expr:
    """Replaces the variable `name` in an expression."""
    if name not in expr.variables:
        return expr
    if isinstance(expr, Var):
        return value
    if isinstance(expr, Truth):
        return Truth(substitute(expr.condition, name, value))
    assert isinstance(expr, Operation)
    return rebuilt(expr, tuple(substitute_expr(a, name, value) for a in expr.args))


def substitute(item: Constraint, name: str, value: Expr) -> Constraint:
    """Replaces the variable `name` in a constraint; reason and name of the rule stay."""
    if name not in item.variables:
        return item
    new: Constraint
    if isinstance(item, Comparison):
        new = Comparison(substitute_expr(item.left, name, value), item.op, substitute_expr(item.right, name, value))
    elif isinstance(item, Divides):
        new = Divides(substitute_expr(item.divisor, name, value), substitute_expr(item.number, name, value))
    elif isinstance(item, IsIn):
        new = IsIn(substitute_expr(item.expr, name, value), item.domain)
    elif isinstance(item, AllDifferent):
        new = AllDifferent(tuple(substitute_expr(e, name, value) for e in item.exprs))
    elif isinstance(item, Table):
        new = Table(tuple(substitute_expr(e, name, value) for e in item.exprs), item.rows)
    elif isinstance(item, (AllOf, AnyOf)):
        new = type(item)(tuple(substitute(p, name, value) for p in item.parts))
    elif isinstance(item, Not):
        new = Not(substitute(item.part, name, value))
    else:
        assert isinstance(item, Implies)
        new = Implies(substitute(item.condition, name, value), substitute(item.consequence, name, value))
    return new.labelled(item.because, item.name, item.kind)
