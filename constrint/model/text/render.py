"""Writes problems, constraints and expressions in the text language, so that `parse(render(p)) == p`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from constrint.errors import UsageError
from constrint.model import constraint as c
from constrint.model.domain import Coded, Domain, is_literal, literal, quoted
from constrint.model.expr import (
    DOTTED_PATTERN,
    NAME_PATTERN,
    RESERVED,
    Calculation,
    Const,
    Expr,
    Truth,
    Var,
    is_total,
)
from constrint.model.logic import Element
from constrint.model.operations import BINARY
from constrint.model.problem import Problem, SoftConstraint
from constrint.model.ratio import Ratio, fractions, ratio_of
from constrint.model.table import InTable
from constrint.model.words import Word

# Binding strength, weakest first; `parse` reads the same order.
_WHOLE, _ADD, _MUL, _NEG, _POW, _ATOM = 0, 1, 2, 3, 4, 5
_IMPLIES, _OR, _AND, _NOT, _TEST = 1, 2, 3, 4, 5


def identifier(name: str) -> str:
    """Writes a rule's or a problem's name, in quotes unless it is a plain name."""
    plain = NAME_PATTERN.match(name) is not None and name not in RESERVED
    return name if plain else quoted(name)


def variable(name: str) -> str:
    """Writes the name of a variable, between backquotes unless it is a plain name."""
    plain = NAME_PATTERN.match(name) is not None and name not in RESERVED
    return name if plain else quoted(name, "`")


def constant(name: str) -> str:
    """Writes the name of a constant, which may have dots."""
    return name if DOTTED_PATTERN.match(name) else variable(name)


def render_expr(expr: Expr) -> str:
    """Writes an expression with as few brackets as the precedence allows."""
    return _expr(expr)[0]


def _at(expr: Expr, strength: int) -> str:
    text, own = _expr(expr)
    return text if own >= strength else f"({text})"


def _expr(expr: Expr) -> tuple[str, int]:
    if isinstance(expr, Var):
        if isinstance(expr, Coded) and expr.scale > 1:
            # The integer that codes the value; in brackets beside other operators, so that it is read as one.
            return f"{variable(expr.name)} * {expr.scale}", _WHOLE
        return variable(expr.name), _ATOM
    if isinstance(expr, Truth):
        return f"({render_constraint(expr.condition)})", _ATOM
    if isinstance(expr, _Number):
        return expr.text, _NEG if expr.text.startswith("-") else _ATOM
    if isinstance(expr, Const):
        if expr.name:
            return constant(expr.name), _ATOM
        return str(expr.number), _ATOM if expr.number >= 0 else _NEG
    assert isinstance(expr, Calculation)
    args = expr.args
    if isinstance(expr, Element) and isinstance(args[0], Truth) and len(args) == 3 and not _conditions(args[1:]):
        test = render_constraint(args[0].condition)
        return f"if_then_else({test}, {_expr(args[2])[0]}, {_expr(args[1])[0]})", _ATOM
    if expr.op == "neg":
        # Brackets keep -(3) apart from the number -3.
        return f"-({_expr(args[0])[0]})" if isinstance(args[0], Const) else f"-{_at(args[0], _NEG)}", _NEG
    if expr.op == "pow":
        return f"{_at(args[0], _ATOM)} ^ {_at(args[1], _NEG)}", _POW
    if expr.op == "add":
        return _sum(args), _ADD
    sign = BINARY[expr.op].sign if expr.op in BINARY else ""
    if sign:
        first = args[0]
        # A remainder gets brackets: the dialect "constrint" would read x % y * z as x % (y * z).
        bracketed = isinstance(first, Calculation) and first.op == "mod" and expr.op != "mod"
        head = f"({_expr(first)[0]})" if bracketed else _at(first, _MUL)
        return f" {sign} ".join([head, *(_at(a, _NEG) for a in args[1:])]), _MUL
    return f"{expr.op}({', '.join(_expr(a)[0] for a in args)})", _ATOM


class _Number(Expr):
    """A number as it is written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text, self.named = text, False
        self.measure(())


def _unit(expr: Expr) -> int:
    """The denominator of the fraction whose numerator an expression is, as far as its form shows."""
    if isinstance(expr, Coded):
        return max(1, expr.scale)
    if isinstance(expr, Calculation) and expr.op in ("add", "neg"):
        return max(map(_unit, expr.args))
    return math.prod(map(_unit, expr.args)) if isinstance(expr, Calculation) and expr.op == "mul" else 1


def _in_units(expr: Expr, unit: int) -> tuple[Expr, Any] | None:
    """An expression divided by a number, to be written and as it is read then; None where it was stated otherwise."""
    if isinstance(expr, Coded) and expr.scale == unit > 1:
        return Var(expr.name), Ratio(expr, unit)
    if unit == 1:
        return expr, expr
    if isinstance(expr, Const):
        text = "" if expr.name else number_text(expr.number, unit)
        return (_Number(text), Fraction(text)) if text else None
    if not isinstance(expr, Calculation) or expr.op not in ("add", "neg", "mul"):
        return None
    args, units = list(expr.args), [unit] * len(expr.args)
    if expr.op == "mul":
        units = list(map(_unit, args))
        if math.prod(units) != unit:
            # A number at the end brought the whole to the common denominator.
            args.pop(), units.pop()
    parts = [part for a, u in zip(args, units, strict=True) if (part := _in_units(a, u)) is not None]
    if not parts or len(parts) < len(args):
        return None
    value = -parts[0][1] if expr.op == "neg" else parts[0][1]
    for term, other in parts[1:]:
        if expr.op == "mul":
            value = value * other
        else:
            value = value - -other if _is_negative(term) else value + other
    shown = tuple(term for term, _ in parts)
    return (shown[0] if expr.op == "mul" and len(shown) == 1 else Calculation(expr.op, shown)), value


def _is_negative(term: Expr) -> bool:
    """Whether a term is written after a minus."""
    if isinstance(term, _Number):
        return term.text.startswith("-")
    is_number = isinstance(term, Const) and term.number < 0 and not term.name
    return is_number or (isinstance(term, Calculation) and term.op == "neg")


def _stated(rule: c.Comparison) -> tuple[int, tuple[Expr, Expr]]:
    """The number by which the sides of a comparison of fractions were multiplied, and both before that."""
    unit = max(_unit(rule.left), _unit(rule.right))
    sides = [] if unit == 1 else [_in_units(side, unit) for side in (rule.left, rule.right)]
    if sides and sides[0] is not None and sides[1] is not None:
        read = fractions(rule.op, sides[0][1], sides[1][1])
        if read.key() == rule.key():
            return unit, (sides[0][0], sides[1][0])
    return 1, (rule.left, rule.right)


def unit_of(rule: c.Comparison) -> int:
    """The number by which both sides of a comparison of fractions were multiplied, so that they are integers."""
    return _stated(rule)[0]


def render_fraction(num: Expr, den: int) -> str:
    """Writes the fraction of an expression and a number as it was stated."""
    stated = _in_units(num, den)
    if stated is not None:
        read = ratio_of(stated[1])
        if (read.num.key(), read.den) == (num.key(), den):
            return render_expr(stated[0])
    part = number_text(1, den)
    return f"({render_expr(num)}) * {part}" if part else render_expr(num)


def number_text(number: int, unit: int) -> str:
    """Writes how many units a number is, as an integer or a decimal number; "" where no float is equal to it."""
    return _decimal(Fraction(number, unit))


def _conditions(args: tuple[Expr, ...]) -> bool:
    """Whether all are conditions or variables of True and False: a choice between these is read as a condition."""
    return all(a.is_condition or isinstance(a, Truth) for a in args)


def _sum(args: tuple[Expr, ...]) -> str:
    text = _at(args[0], _MUL)
    for arg in args[1:]:
        if isinstance(arg, Calculation) and arg.op == "neg":
            text += f" - {_at(arg.args[0], _MUL)}"
        elif _is_negative(arg):
            text += f" - {_expr(arg)[0][1:]}"
        else:
            text += f" + {_at(arg, _MUL)}"
    return text


def render_constraint(constraint: c.Constraint) -> str:
    """Writes a constraint without its name and reason."""
    return _logic(constraint)[0]


def _logic_at(constraint: c.Constraint, strength: int) -> str:
    text, own = _logic(constraint)
    return text if own >= strength else f"({text})"


def _logic(item: c.Constraint) -> tuple[str, int]:
    if isinstance(item, c.Comparison):
        return f" {item.op} ".join(map(render_expr, _stated(item)[1])), _TEST
    if isinstance(item, c.Divides):
        return f"{render_expr(item.divisor)} divides {render_expr(item.number)}", _TEST
    if isinstance(item, c.IsIn):
        return _member(item), _TEST
    if isinstance(item, InTable):
        return _table(item), _TEST
    if isinstance(item, Word):
        return f"{item.word}({', '.join(_written(a) for a in item.written)})", _TEST
    if isinstance(item, (c.AllOf, c.AnyOf)):
        every = isinstance(item, c.AllOf)
        if not item.parts:
            return ("true" if every else "false"), _TEST
        word, own = (" and ", _AND) if every else (" or ", _OR)
        texts = _tests(item.parts, own + 1) if every else [_logic_at(p, own + 1) for p in item.parts]
        return word.join(texts), own if len(texts) > 1 else _TEST
    if isinstance(item, c.Not) and isinstance(item.part, c.IsIn) and is_total(item.part.expr):
        return _member(item.part, "not in"), _TEST
    if isinstance(item, c.Not):
        return f"not {_logic_at(item.part, _NOT)}", _NOT
    assert isinstance(item, c.Implies)
    return f"{_logic_at(item.condition, _OR)} -> {_logic_at(item.consequence, _IMPLIES)}", _IMPLIES


def _written(argument: object, opening: str = "[", closing: str = "]") -> str:
    """Writes an argument of a word: a list in square brackets, rows of numbers within in round ones."""
    if isinstance(argument, tuple):
        return f"{opening}{', '.join(_written(one, '(', ')') for one in argument)}{closing}"
    if isinstance(argument, Expr):
        return _expr(argument)[0]
    return render_constraint(argument) if isinstance(argument, c.Constraint) else str(argument)


def _tests(parts: tuple[c.Constraint, ...], strength: int) -> list[str]:
    """Writes the parts of a conjunction; `e == e and not e in d`, which is what `e not in d` means, as that."""
    texts: list[str] = []
    for before, part in zip((None, *parts), parts, strict=False):
        if isinstance(part, c.Not) and isinstance(part.part, c.IsIn) and not is_total(part.part.expr):
            expr = part.part.expr
            if isinstance(before, c.Comparison) and before.key() == ("==", expr.key(), expr.key()):
                texts[-1] = _member(part.part, "not in")
                continue
        texts.append(_logic_at(part, strength))
    return texts


def code_text(side: Expr, code: int) -> str:
    """Writes what an integer stands for beside an expression: the value that it codes, or the integer itself."""
    if isinstance(side, Coded) and side.labels:
        return literal(side.labels[code])
    return _value(side, Const(code)) or str(code)


def _value(side: Expr, number: Expr) -> str:
    """The value that a number stands for beside a coded variable; "" where it has to be written as an integer."""
    if not isinstance(side, Coded) or side.scale < 2 or not isinstance(number, Const) or number.name:
        return ""
    return _decimal(Fraction(number.number, side.scale))


def _decimal(exact: Fraction) -> str:
    """An exact fraction as an integer or as a decimal number; "" where no float is equal to it."""
    if exact.denominator == 1:
        return str(exact.numerator)
    try:
        rounded = float(exact)
    except OverflowError:
        return ""
    return repr(rounded) if Fraction(rounded) == exact else ""


def _member(item: c.IsIn, word: str = "in") -> str:
    side, listed = item.expr, item.domain.listed
    if isinstance(side, Coded) and listed is not None:
        values = [literal(side.labels[code]) if side.labels else _value(side, Const(code)) for code in listed]
        if all(values):
            return f"{variable(side.name)} {word} {{{', '.join(values)}}}"
    return f"{render_expr(side)} {word} {item.domain}"


def _table(item: InTable) -> str:
    heads, columns = [], []
    for place, expr in enumerate(item.exprs):
        codes = [row[place] for row in item.rows]
        head, values = _expr(expr)[0], list(map(str, codes))
        if isinstance(expr, Coded) and expr.scale != 1:
            decimals = [literal(expr.labels[v]) if expr.labels else _value(expr, Const(v)) for v in codes]
            if all(decimals):
                head, values = variable(expr.name), decimals
        heads.append(head)
        columns.append(values)
    rows = ", ".join(f"({', '.join(row)})" for row in zip(*columns, strict=True))
    return f"({', '.join(heads)}) in {{{rows}}}"


def render_rule(constraint: c.Constraint) -> str:
    """Writes a constraint as a line: name, statement, reason."""
    label = f"{identifier(constraint.name)}: " if constraint.name else ""
    return label + render_constraint(constraint) + _reason(constraint.because)


def render_soft(soft: SoftConstraint) -> str:
    """Writes a soft constraint as a line."""
    constraint = soft.constraint
    label = f"{identifier(constraint.name)}: " if constraint.name else ""
    body = render_constraint(constraint)
    # Without brackets `soft -x <= 3` would be about a variable named soft.
    body = f"({body})" if not label and body.startswith("-") else body
    weight = f" weight {soft.weight}" if soft.weight != 1 else ""
    return f"soft {label}{body}{weight}{_reason(constraint.because)}"


def _reason(because: str) -> str:
    return f" because {quoted(because)}" if because else ""


def _declaration(name: str, domain: Domain) -> str:
    for label in domain.labels or ():
        if not is_literal(label):
            raise UsageError(f"the text language cannot write the value {label!r} of variable {name!r}.")
    named = variable(name)
    return f"var {named} in {domain}{_reason(domain.because)}" if domain.declared else f"var {named}"


def render(problem: Problem) -> str:
    """Writes a whole problem; `parse` reads it back as an equal one."""
    lines = [f"problem {identifier(problem.name)}"] if problem.name else []
    lines += [f"const {constant(name)} = {number}" for name, number in problem.constants.items()]
    lines += [_declaration(name, domain) for name, domain in problem.variables.items()]
    lines += [render_rule(constraint) for constraint in problem.constraints]
    lines += [render_soft(soft) for soft in problem.soft_constraints]
    lines += [str(objective) for objective in problem.objectives]
    return "\n".join(lines) + "\n"
