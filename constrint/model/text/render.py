"""Writes problems, constraints and expressions in the text language, so that `parse(render(p)) == p`."""

from __future__ import annotations

import json

from constrint.model import constraint as c
from constrint.model.domain import Domain
from constrint.model.expr import NAME_PATTERN, RESERVED, Const, Expr, Operation, Var, is_total
from constrint.model.operations import BINARY
from constrint.model.problem import Problem, SoftConstraint

# Binding strength, weakest first; `parse` reads the same order.
_ADD, _MUL, _NEG, _POW, _ATOM = 1, 2, 3, 4, 5
_IMPLIES, _OR, _AND, _NOT, _TEST = 1, 2, 3, 4, 5


def quoted(text: str) -> str:
    """Writes a text constant in double quotes; control characters are escaped."""
    body = json.dumps(text, ensure_ascii=False)
    return "".join(ch if ch.isprintable() else json.dumps(ch)[1:-1] for ch in body)


def identifier(name: str) -> str:
    """Writes a rule's or a problem's name, in quotes unless it is a plain name."""
    plain = NAME_PATTERN.match(name) is not None and name not in RESERVED
    return name if plain else quoted(name)


def render_expr(expr: Expr) -> str:
    """Writes an expression with as few brackets as the precedence allows."""
    return _expr(expr)[0]


def _at(expr: Expr, strength: int) -> str:
    text, own = _expr(expr)
    return text if own >= strength else f"({text})"


def _expr(expr: Expr) -> tuple[str, int]:
    if isinstance(expr, Var):
        return expr.name, _ATOM
    if isinstance(expr, Const):
        if expr.name:
            return expr.name, _ATOM
        return str(expr.number), _ATOM if expr.number >= 0 else _NEG
    assert isinstance(expr, Operation)
    args = expr.args
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
        bracketed = isinstance(first, Operation) and first.op == "mod" and expr.op != "mod"
        head = f"({_expr(first)[0]})" if bracketed else _at(first, _MUL)
        return f" {sign} ".join([head, *(_at(a, _NEG) for a in args[1:])]), _MUL
    return f"{expr.op}({', '.join(_expr(a)[0] for a in args)})", _ATOM


def _sum(args: tuple[Expr, ...]) -> str:
    text = _at(args[0], _MUL)
    for arg in args[1:]:
        if isinstance(arg, Operation) and arg.op == "neg":
            text += f" - {_at(arg.args[0], _MUL)}"
        elif isinstance(arg, Const) and arg.number < 0 and not arg.name:
            text += f" - {-arg.number}"
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
        return f"{render_expr(item.left)} {item.op} {render_expr(item.right)}", _TEST
    if isinstance(item, c.Divides):
        return f"{render_expr(item.divisor)} divides {render_expr(item.number)}", _TEST
    if isinstance(item, c.IsIn):
        return f"{render_expr(item.expr)} in {item.domain}", _TEST
    if isinstance(item, (c.AllOf, c.AnyOf)):
        every = isinstance(item, c.AllOf)
        if not item.parts:
            return ("true" if every else "false"), _TEST
        word, own = (" and ", _AND) if every else (" or ", _OR)
        texts = _tests(item.parts, own + 1) if every else [_logic_at(p, own + 1) for p in item.parts]
        return word.join(texts), own if len(texts) > 1 else _TEST
    if isinstance(item, c.Not) and isinstance(item.part, c.IsIn) and is_total(item.part.expr):
        return _not_in(item.part), _TEST
    if isinstance(item, c.Not):
        return f"not {_logic_at(item.part, _NOT)}", _NOT
    assert isinstance(item, c.Implies)
    return f"{_logic_at(item.condition, _OR)} -> {_logic_at(item.consequence, _IMPLIES)}", _IMPLIES


def _not_in(item: c.IsIn) -> str:
    return f"{render_expr(item.expr)} not in {item.domain}"


def _tests(parts: tuple[c.Constraint, ...], strength: int) -> list[str]:
    """Writes the parts of a conjunction; `e == e and not e in d`, which is what `e not in d` means, as that."""
    texts: list[str] = []
    for before, part in zip((None, *parts), parts, strict=False):
        if isinstance(part, c.Not) and isinstance(part.part, c.IsIn) and not is_total(part.part.expr):
            expr = part.part.expr
            if isinstance(before, c.Comparison) and before.key() == ("==", expr.key(), expr.key()):
                texts[-1] = _not_in(part.part)
                continue
        texts.append(_logic_at(part, strength))
    return texts


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
    return f"var {name} in {domain}{_reason(domain.because)}" if domain.declared else f"var {name}"


def render(problem: Problem) -> str:
    """Writes a whole problem; `parse` reads it back as an equal one."""
    lines = [f"problem {identifier(problem.name)}"] if problem.name else []
    lines += [f"const {name} = {number}" for name, number in problem.constants.items()]
    lines += [_declaration(name, domain) for name, domain in problem.variables.items()]
    lines += [render_rule(constraint) for constraint in problem.constraints]
    lines += [render_soft(soft) for soft in problem.soft_constraints]
    lines += [str(objective) for objective in problem.objectives]
    return "\n".join(lines) + "\n"


Expr.writer = render_expr
c.Constraint.writer = render_constraint
Problem.writer = render
