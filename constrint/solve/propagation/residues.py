"""Equalities that no remainders allow: `x ^ 2 + y ^ 2 == 4 * z + 3` has no solution, since squares leave 0 or 1 mod 4.

Every occurrence of a variable takes any remainder that its domain has, so what is ruled out is ruled out for certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from constrint.model import Comparison, Const, Constraint, Domain, Expr, Operation, Truth, Var

# Remainders of squares, cubes and higher powers are few modulo these.
MODULI: Final = (4, 5, 7, 8, 9, 11, 13, 16)

Residues = frozenset[int]


def impossible(domains: Mapping[str, Domain], constraints: Iterable[Constraint]) -> bool:
    """Says whether the remainders of some equality's two sides differ whatever the variables are."""
    for constraint in constraints:
        if not isinstance(constraint, Comparison) or constraint.op != "==":
            continue
        for modulus in MODULI:
            if not _residues(constraint.left, domains, modulus) & _residues(constraint.right, domains, modulus):
                return True
    return False


def _residues(expr: Expr, domains: Mapping[str, Domain], modulus: int) -> Residues:
    """Remainders that an expression may leave."""
    if isinstance(expr, Const):
        return frozenset((expr.number % modulus,))
    if isinstance(expr, Var):
        return _of_domain(domains[expr.name], modulus)
    if isinstance(expr, Truth):
        return frozenset((0, 1 % modulus))
    assert isinstance(expr, Operation)
    if expr.op == "neg":
        return frozenset(-a % modulus for a in _residues(expr.args[0], domains, modulus))
    if expr.op == "pow" and isinstance(expr.args[1], Const) and expr.args[1].number >= 0:
        exponent = expr.args[1].number
        return frozenset(pow(a, exponent, modulus) for a in _residues(expr.args[0], domains, modulus))
    if expr.op not in ("add", "mul"):
        return frozenset(range(modulus))
    first, *others = (_residues(a, domains, modulus) for a in expr.args)
    for other in others:
        first = frozenset((a + b if expr.op == "add" else a * b) % modulus for a in first for b in other)
    return first


def _of_domain(domain: Domain, modulus: int) -> Residues:
    values = domain.values
    if domain.listed is None:
        # A range repeats its remainders after at most `modulus` values.
        values = values[:modulus]
    return frozenset(v % modulus for v in values)
