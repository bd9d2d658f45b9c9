"""Random problems for every way into the solver, and plain Python that says what their solutions are.

A problem is drawn as plain data: nested tuples. From these come expressions, text, and restrictions; and the functions
here decide them with nothing but Python's integers. Numbers are drawn small, near 2^31, 2^53 and 2^63, and beyond;
ranges have large steps; some domains are too wide to list, and a rule leaves few of their values.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from constrint import model as m

#: Expressions and rules as tuples: an operation and its operands.
Tree = tuple[Any, ...]
Assignment = dict[str, int]

NAMES: Final = ("a", "b", "c", "d", "e", "f")
#: The solver refuses longer numbers; where one is met the answer is not known here either.
MAX_BITS: Final = 65_536
#: Around these magnitudes something is apt to wrap or to be rounded.
_ANCHORS: Final = (0, 2**31, 2**32, 2**52, 2**53, 2**61, 2**62, 2**63, 2**64, 2**65, 2**100)


class TooLongError(Exception):
    """Raised where a number would be longer than the solver takes."""


@dataclass
class Drawn:
    """A problem as plain data.

    Attributes:
        domains: Per variable ("values", v, ...) or ("range", lower, upper, step).
        candidates: Per variable all values that can be in a solution, in declared order.
        rules: Every one must hold.
        objective: Whether to maximise, and what; None for none.
    """

    seed: int
    domains: dict[str, Tree] = field(default_factory=dict)
    candidates: dict[str, list[int]] = field(default_factory=dict)
    rules: list[Tree] = field(default_factory=list)
    objective: tuple[bool, Tree] | None = None

    @property
    def is_listed(self) -> bool:
        """Whether every domain has few values."""
        return all(len(self.candidates[n]) == size_of(d) for n, d in self.domains.items())


# Plain Python


def size_of(domain: Tree) -> int:
    """Number of values of a domain."""
    return len(domain) - 1 if domain[0] == "values" else (domain[2] - domain[1]) // domain[3] + 1


def is_member(value: int, domain: Tree) -> bool:
    """Whether a value lies in a domain."""
    if domain[0] == "values":
        return value in domain[1:]
    return bool(domain[1] <= value <= domain[2]) and (value - domain[1]) % domain[3] == 0


def _bounded(value: int) -> int:
    if value.bit_length() > MAX_BITS:
        raise TooLongError
    return value


def _power(base: int, exponent: int) -> int | None:
    if exponent < 0:
        return None
    if abs(base) > 1 and (base.bit_length() - 1) * exponent > MAX_BITS:
        raise TooLongError
    return int(base**exponent)


_EXACT: Final[dict[str, Callable[..., int | None]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else None,
    "%": lambda a, b: a % b if b else None,
    "/": lambda a, b: a // b if b and a % b == 0 else None,
    "^": _power,
    "ceildiv": lambda a, b: -(-a // b) if b else None,
    "min": lambda *args: min(args),
    "max": lambda *args: max(args),
    "gcd": lambda *args: math.gcd(*args),
    "lcm": lambda *args: math.lcm(*args),
    "neg": lambda a: -a,
    "abs": abs,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
}
_TESTS: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "divides": lambda a, b: a != 0 and b % a == 0,
}


def value_of(expr: Tree, assignment: Assignment) -> int | None:
    """Value of an expression; None where it has none."""
    if expr[0] == "var":
        return assignment[expr[1]]
    if expr[0] == "number":
        return int(expr[1])
    if expr[0] == "truth":
        return int(holds(expr[1], assignment))
    if expr[0] == "choice":
        test, then, otherwise = holds(expr[1], assignment), *(value_of(arg, assignment) for arg in expr[2:])
        return then if test else otherwise
    args = [value_of(arg, assignment) for arg in expr[1:]]
    if expr[0] == "element":
        at, items = args[0], args[1:]
        return items[at] if at is not None and 0 <= at < len(items) else None
    if None in args:
        return None
    found = _EXACT[expr[0]](*args)
    return None if found is None else _bounded(found)


def holds(rule: Tree, assignment: Assignment) -> bool:
    """Whether a rule holds; a test with an undefined value in it does not."""
    kind = rule[0]
    if kind in ("and", "or"):
        verdicts = [holds(part, assignment) for part in rule[1:]]
        return all(verdicts) if kind == "and" else any(verdicts)
    if kind == "not":
        return not holds(rule[1], assignment)
    if kind == "->":
        condition, consequence = holds(rule[1], assignment), holds(rule[2], assignment)
        return consequence or not condition
    if kind in ("iff", "xor"):
        first, second = holds(rule[1], assignment), holds(rule[2], assignment)
        return (first is second) is bool(kind == "iff")
    if kind == "if":
        test, then, otherwise = (holds(part, assignment) for part in rule[1:])
        return then if test else otherwise
    if kind == "all_different":
        values = [value_of(part, assignment) for part in rule[1:]]
        return len(values) < 2 or (None not in values and len(set(values)) == len(values))
    if kind == "table":
        row = tuple(value_of(part, assignment) for part in rule[1])
        return any(row == listed for listed in rule[2])
    if kind in ("in", "not in"):
        value = value_of(rule[1], assignment)
        return value is not None and is_member(value, rule[2]) == (kind == "in")
    left, right = value_of(rule[1], assignment), value_of(rule[2], assignment)
    return left is not None and right is not None and _TESTS[kind](left, right)


def solutions_of(drawn: Drawn) -> Iterator[Assignment]:
    """Every solution, in the declared order of variables and of their values."""
    names = tuple(drawn.domains)
    for values in itertools.product(*(drawn.candidates[n] for n in names)):
        assignment = dict(zip(names, values, strict=True))
        verdicts = [holds(rule, assignment) for rule in drawn.rules]
        if all(verdicts):
            yield assignment


# Ways in

_FUNCTIONS: Final[dict[str, Callable[..., m.Expr]]] = {
    "min": m.minimum,
    "max": m.maximum,
    "gcd": m.gcd,
    "lcm": m.lcm,
    "abs": m.absolute,
    "ceildiv": m.ceildiv,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: a**b,
    "neg": lambda a: -a,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "element": lambda index, *items: m.element(index, items),
}


def expression(expr: Tree) -> m.Expr:
    """An expression as Python's operators build it."""
    if expr[0] == "var":
        return m.Var(expr[1])
    if expr[0] == "number":
        return m.const(expr[1])
    if expr[0] == "truth":
        return m.count(constraint(expr[1]))
    if expr[0] == "choice":
        chosen: m.Expr = m.if_then_else(constraint(expr[1]), *map(expression, expr[2:]))
        return chosen
    return _FUNCTIONS[expr[0]](*map(expression, expr[1:]))


def constraint(rule: Tree) -> m.Constraint:
    """A rule as Python's operators build it."""
    kind = rule[0]
    if kind in ("and", "or"):
        return (m.all_of if kind == "and" else m.any_of)(*map(constraint, rule[1:]))
    if kind == "not":
        return m.negate(constraint(rule[1]))
    if kind == "->":
        return m.implies(constraint(rule[1]), constraint(rule[2]))
    if kind in ("in", "not in"):
        return (m.is_in if kind == "in" else m.not_in)(expression(rule[1]), members_of(rule[2]))
    if kind in ("iff", "xor"):
        return (m.iff if kind == "iff" else m.xor)(*map(constraint, rule[1:]))
    if kind == "if":
        chosen: m.Constraint = m.if_then_else(*map(constraint, rule[1:]))
        return chosen
    if kind == "all_different":
        return m.all_different(*map(expression, rule[1:]))
    if kind == "table":
        return m.table(map(expression, rule[1]), rule[2])
    if kind == "divides":
        return m.divides(expression(rule[1]), expression(rule[2]))
    return m.Comparison(expression(rule[1]), kind, expression(rule[2]))


def members_of(domain: Tree) -> list[int] | range:
    """The values of a domain."""
    return list(domain[1:]) if domain[0] == "values" else range(domain[1], domain[2] + 1, domain[3])


def problem_of(drawn: Drawn) -> m.Problem:
    """The problem, built with expressions."""
    problem = m.Problem(f"random {drawn.seed}")
    for name, domain in drawn.domains.items():
        problem.declare(name, m.Domain.from_values(members_of(domain)))
    for rule in drawn.rules:
        problem.add(constraint(rule))
    if drawn.objective is not None:
        (problem.maximise if drawn.objective[0] else problem.minimise)(expression(drawn.objective[1]))
    return problem


def _domain_text(domain: Tree) -> str:
    if domain[0] == "values":
        return "{" + ", ".join(map(str, domain[1:])) + "}"
    return f"{domain[1]}..{domain[2]} step {domain[3]}"


def text_of(tree: Tree) -> str:
    """An expression or a rule in the text language, every part in brackets."""
    kind, parts = tree[0], tree[1:]
    if kind == "var":
        return str(parts[0])
    if kind == "number":
        return f"({parts[0]})"
    if kind in ("in", "not in"):
        return f"({text_of(parts[0])} {kind} {_domain_text(parts[1])})"
    if kind == "table":
        rows = (f"({', '.join(map(str, row))})" for row in parts[1])
        return f"(({', '.join(map(text_of, parts[0]))}) in {{{', '.join(rows)}}})"
    texts = [text_of(part) for part in parts]
    if kind == "truth":
        return texts[0]
    if kind in ("iff", "xor"):
        return f"({texts[0]} {'==' if kind == 'iff' else '!='} {texts[1]})"
    if kind in ("choice", "if"):
        return f"if_then_else({', '.join(texts)})"
    if kind in (*_BITWISE, "min", "max", "gcd", "lcm", "abs", "ceildiv", "element", "all_different"):
        return f"{kind}({', '.join(texts)})"
    if kind in ("neg", "not"):
        return f"(-{texts[0]})" if kind == "neg" else f"(not {texts[0]})"
    return "(" + f" {kind} ".join(texts) + ")"


def problem_text(drawn: Drawn) -> str:
    """The problem in the text language."""
    lines = [f"var {name} in {_domain_text(domain)}" for name, domain in drawn.domains.items()]
    lines += [text_of(rule) for rule in drawn.rules]
    if drawn.objective is not None:
        lines.append(f"{'maximise' if drawn.objective[0] else 'minimise'} {text_of(drawn.objective[1])}")
    return "\n".join(lines) + "\n"


_BITWISE: Final = {"bitand": "&", "bitor": "|", "bitxor": "^"}
_PYTHON_OPERATIONS: Final = frozenset(("+", "-", "*", "//", "%", "min", "max", "abs", "neg", "var", "number"))


def python_of(tree: Tree) -> str | None:
    """An expression or a rule as a restriction in Python's syntax; None where that has no such operation."""
    kind, parts = tree[0], tree[1:]
    if kind in ("in", "not in"):
        inner = python_of(parts[0])
        if inner is None or size_of(parts[1]) > 50:
            return None
        return f"({inner} {kind} [{', '.join(map(str, members_of(parts[1])))}])"
    if kind in ("var", "number"):
        return text_of(tree)
    if kind == "table":
        return None
    texts = [python_of(part) for part in parts]
    if None in texts:
        return None
    words = [str(text) for text in texts]
    if kind in ("and", "or", *_TESTS) and kind != "divides":
        return "(" + f" {kind} ".join(words) + ")"
    if kind == "not":
        return f"(not {words[0]})"
    if kind in _BITWISE:
        return f"({words[0]} {_BITWISE[kind]} {words[1]})"
    if kind not in _PYTHON_OPERATIONS or (kind in ("min", "max") and len(words) < 2):
        return None
    return text_of((kind, *(("var", word) for word in words)))


# Drawing


class _Drawer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.drawn = Drawn(seed)
        # Half of the problems are small: there the most happens.
        self.anchors = [0] if self.random.random() < 0.4 else self.random.sample(_ANCHORS, 2)
        self.some: Assignment = {}
        self.most_wide = 1

    def number(self) -> int:
        """A number near one of this problem's magnitudes."""
        pick = self.random
        anchor = pick.choice(self.anchors)
        near = anchor + pick.randint(-4, 12) if anchor == 0 or pick.random() < 0.7 else anchor // pick.randint(1, 9)
        return -near if pick.random() < 0.25 else near

    def domain(self, name: str, most: int) -> None:
        pick, drawn = self.random, self.drawn
        size = pick.randint(1, most)
        kind = pick.random()
        if kind < 0.5:
            values = list(dict.fromkeys(self.number() for _ in range(size)))
            drawn.domains[name] = ("values", *values)
            drawn.candidates[name] = values
        elif kind < 0.85 or len(drawn.domains) > 2:
            step = pick.choice((1, 1, 2, 3, max(1, abs(self.number()))))
            lower = self.number()
            drawn.domains[name] = ("range", lower, lower + step * (size - 1), step)
            drawn.candidates[name] = list(range(lower, lower + step * (size - 1) + 1, step))
        else:
            self.wide(name, size)

    def wide(self, name: str, size: int) -> None:
        """A domain of very many values, and a rule that leaves few of them."""
        pick, drawn, var = self.random, self.drawn, ("var", name)
        step = pick.choice((1, 1, 2, 3, 7))
        lower, width = self.number(), pick.choice((10**6, 2**40, 2**53, 10**17, 2**63, 2**64, 2**90))
        upper = lower + width // step * step
        inside = range(lower, upper + 1, step)
        kind = pick.randrange(4)
        if kind == 0:
            values = sorted({inside[pick.randrange((upper - lower) // step + 1)] for _ in range(size)})
            rule: Tree = ("in", var, ("values", *values))
        elif kind == 1:
            by = max(1, width // pick.randint(1, max(2, self.most_wide)) + pick.randint(-3, 3))
            first = -(-lower // by) * by
            values = [v for v in range(first, upper + 1, by) if v in inside]
            rule = (
                ("divides", ("number", by), var)
                if pick.random() < 0.5
                else ("==", ("%", var, ("number", by)), ("number", 0))
            )
        elif kind == 2:
            count = min(pick.randint(1, 3000), self.most_wide)
            end = upper - (upper - lower) // step // 2 * step
            values = list(range(end - min(count, (end - lower) // step) * step, end + 1, step))
            rule = ("and", (">=", var, ("number", values[0])), ("<", var, ("number", end + 1)))
        else:
            number, divisors = pick.choice(_divided())
            values = [d for d in divisors if d in inside]
            rule = ("and", ("divides", var, ("number", number)), ("<=", ("abs", var), ("number", 10**4)))
        drawn.domains[name] = ("range", lower, upper, step)
        drawn.candidates[name] = values
        drawn.rules.append(rule)

    def expr(self, depth: int) -> Tree:
        pick = self.random
        if depth == 0 or pick.random() < 0.2:
            return ("var", pick.choice(list(self.drawn.domains))) if pick.random() < 0.75 else ("number", self.number())
        if pick.random() < 0.15:
            return self.chosen(depth)
        kind = pick.random()
        if kind < 0.55:
            return (pick.choice("+-*"), self.expr(depth - 1), self.expr(depth - 1))
        if kind < 0.8:
            return (pick.choice(("//", "%", "/", "ceildiv")), self.expr(depth - 1), self.expr(depth - 1))
        if kind < 0.9:
            args = [self.expr(depth - 1) for _ in range(pick.randint(1, 3))]
            return (pick.choice(("min", "max", "gcd", "lcm")), *args)
        if kind < 0.95:
            exponent = ("number", pick.randint(0, 4)) if pick.random() < 0.6 else ("%", self.expr(0), ("number", 5))
            return ("^", self.expr(depth - 1), exponent)
        return (pick.choice(("neg", "abs")), self.expr(depth - 1))

    def chosen(self, depth: int) -> Tree:
        """Bits, conditions as numbers, and one of several numbers."""
        pick = self.random
        kind = pick.randrange(4)
        if kind == 0:
            return (pick.choice(list(_BITWISE)), self.expr(depth - 1), self.expr(depth - 1))
        if kind == 1:
            index = self.expr(depth - 1)
            index = ("%", index, ("number", pick.randint(1, 4))) if pick.random() < 0.6 else index
            return ("element", index, *(self.expr(depth - 1) for _ in range(pick.randint(1, 3))))
        if kind == 2:
            return ("+", *(("truth", self.test(0)) for _ in range(2)))
        return ("choice", self.test(0), self.expr(depth - 1), self.expr(depth - 1))

    def close_to(self, expr: Tree) -> int:
        """A number that the expression has, or one beside it."""
        try:
            value = value_of(expr, self.some)
        except TooLongError:
            value = None
        return (
            self.number() if value is None or value.bit_length() > 2000 else value + self.random.choice((-1, 0, 0, 1))
        )

    def rule(self, depth: int) -> Tree:
        pick = self.random
        kind = pick.randrange(10) if depth else 9
        if kind < 4:
            parts = [self.rule(depth - 1) for _ in range(2)]
            return (("or", *parts), ("->", *parts), ("and", *parts), ("not", parts[0]))[kind]
        if depth and pick.random() < 0.3:
            return (pick.choice(("iff", "xor")), self.rule(0), self.rule(0))
        if depth and pick.random() < 0.15:
            return ("if", *(self.rule(0) for _ in range(3)))
        return self.test(2)

    def test(self, depth: int) -> Tree:
        """A comparison, a divisibility, or whether values are among others."""
        pick = self.random
        left = self.expr(depth)
        choice = pick.randrange(10)
        if choice == 8:
            return ("all_different", *(self.expr(pick.randint(0, 1)) for _ in range(pick.randint(0, 3))))
        if choice == 9:
            exprs = tuple(self.expr(pick.randint(0, 1)) for _ in range(pick.randint(1, 3)))
            rows = [tuple(self.close_to(e) for e in exprs) for _ in range(pick.choice((1, 3, 12, 40)))]
            return ("table", exprs, tuple(dict.fromkeys(rows)))
        if choice == 0:
            return ("divides", self.expr(1), left)
        if choice == 1:
            return ("divides", ("number", pick.choice((1, 2, 3, 5, max(1, abs(self.number()))))), left)
        if choice == 2:
            by = pick.choice((1, 1, 2, 5, max(1, abs(self.number()))))
            low = self.close_to(left) - by * pick.randint(0, 3)
            listed = ("values", *dict.fromkeys(self.close_to(left) + pick.choice((0, 0, 1, 7)) for _ in range(4)))
            within = ("range", low, low + by * pick.randint(0, 5), by)
            return (pick.choice(("in", "not in")), left, pick.choice((listed, within)))
        right: Tree = ("number", self.close_to(left)) if pick.random() < 0.6 else self.expr(1)
        return (pick.choice(("==", "!=", "<=", "<", ">=", ">")), left, right)

    def draw(self) -> Drawn:
        pick, drawn = self.random, self.drawn
        names = NAMES[: pick.choice((1, 1, 2, 2, 3, 3, 4, 5, 6))]
        most, self.most_wide = {1: (40, 3000), 2: (12, 60), 3: (7, 20), 4: (5, 6), 5: (3, 3), 6: (3, 2)}[len(names)]
        for name in names:
            self.domain(name, most)
        self.some = {n: pick.choice(values) if values else 0 for n, values in drawn.candidates.items()}
        for _ in range(pick.choice((0, 1, 1, 2, 2, 3, 4))):
            drawn.rules.append(self.rule(pick.choice((0, 0, 1, 2))))
        pick.shuffle(drawn.rules)
        if pick.random() < 0.4:
            drawn.objective = (pick.random() < 0.5, self.expr(2))
        return drawn


@functools.cache
def _divided() -> list[tuple[int, list[int]]]:
    """Numbers, and their divisors of at most 10^4."""
    numbers = (2**61 - 1, 2**53 - 111, 10**18, 2**40 * 3**5, 2**70, 720_720 * 97, -(7**24), 97 * 89)
    positive = [(n, [d for d in range(1, 10**4 + 1) if n % d == 0]) for n in numbers]
    return [(n, [*(-d for d in reversed(found)), *found]) for n, found in positive]


def draw(seed: int) -> Drawn:
    """The problem of a seed."""
    return _Drawer(seed).draw()


def draw_listed(seed: int) -> Drawn:
    """The first problem from a seed on whose domains all have few values."""
    for number in itertools.count():
        drawn = draw(seed + 1_000_003 * number)
        if drawn.is_listed:
            return drawn
    raise AssertionError
