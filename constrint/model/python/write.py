"""Writes constraints as Python expressions over the values of parameters: the way back from `expression`.

The written expression is true in Python exactly where the constraint holds, and never raises: a test that the divisor
is not 0 guards every division. Where that is impossible, `CannotWrite` is raised.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from constrint.errors import UsageError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Coded, Domain
from constrint.model.logic import Element
from constrint.model.operations import MAX_BITS
from constrint.model.python.quotient import Bounds
from constrint.model.table import InTable

#: Functions that written expressions call: no parameter may have one of these names.
CALLED: Final = frozenset(("abs", "int", "max", "min", "range"))
#: Binding strength in Python, weakest first.
_OR, _AND, _NOT, _TEST, _BIT_OR, _BIT_XOR, _BIT_AND, _ADD, _MUL, _NEG, _POW, _ATOM = range(12)
_SIGNS: Final = {
    "add": ("+", _ADD),
    "mul": ("*", _MUL),
    "div": ("//", _MUL),
    "floordiv": ("//", _MUL),
    "mod": ("%", _MUL),
    "bitand": ("&", _BIT_AND),
    "bitor": ("|", _BIT_OR),
    "bitxor": ("^", _BIT_XOR),
}
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<=": ">", "<": ">=", ">=": "<", ">": "<="}
#: Constant conditions and their negations.
_CONSTANTS: Final = {"True": "False", "False": "True"}
#: Rows of the longest table that is written.
MAX_ROWS: Final = 100_000

Written = tuple[str, int]


class CannotWrite(Exception):
    """Raised where a constraint has no exact equivalent in Python; the message is part of a sentence."""


def check_parameter(name: str) -> None:
    """Refuses a name by which a parameter cannot stand in a Python expression.

    Raises:
        UsageError: For what is no plain identifier, a word of Python, or a function that expressions call.
    """
    if e.NAME_PATTERN.match(name) is None or keyword.iskeyword(name) or name in CALLED:
        raise UsageError(
            f"the parameter {name!r} cannot stand in a Python expression: a name is letters, digits and _, and no word "
            "of Python. Give it another name."
        )


def is_literal(value: object) -> bool:
    """Says whether `write_value` can write a value."""
    if isinstance(value, tuple):
        return all(map(is_literal, value))
    if isinstance(value, float):
        return type(value) is float and value - value == 0  # neither infinite nor not-a-number
    return value is None or type(value) in (bool, int, str)


def write_value(value: object, space: str = " ") -> str:
    """A value as a Python literal in ASCII.

    Args:
        value: The value.
        space: Replacement of a space inside text literals.

    Raises:
        CannotWrite: For what has no literal: infinity, fractions, objects.
    """
    if not is_literal(value):
        raise CannotWrite(f"the value {value!r} has no literal")
    if isinstance(value, tuple):
        items = ", ".join(write_value(item, space) for item in value)
        return f"({items}{',' if len(value) == 1 else ''})"
    return ascii(value).replace(" ", space) if isinstance(value, str) else repr(value)


def write_restriction(
    constraint: c.Constraint, domains: Mapping[str, Domain], names: Mapping[str, str] | None = None
) -> str:
    """Writes a constraint.

    Args:
        constraint: Over codes, as problems store it.
        domains: The domain of every variable in it: what the codes stand for, and where a divisor cannot be 0.
        names: Text of a variable where it differs from its name: another name, or a literal.

    Raises:
        CannotWrite: When there is no exact way to say it.
    """
    text = _Writer(domains, names or {}).test(constraint)[0]
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise CannotWrite(f"Python does not read it: {error}") from None
    return text


class _Writer:
    """Writes what stands over some domains; every method gives a text and how strongly it binds."""

    def __init__(self, domains: Mapping[str, Domain], names: Mapping[str, str]) -> None:
        self.domains, self.names = domains, names
        self.bounds = Bounds(domains)

    # Conditions.

    def test(self, item: c.Constraint) -> Written:
        """A condition: true where it holds, and false elsewhere, undefined values included."""
        if isinstance(item, c.Comparison):
            return self._where_defined((item.left, item.right), self._compared(item))
        if isinstance(item, c.Divides):
            needed = [] if self.bounds.nonzero(item.divisor) else [f"{self._at(item.divisor, _BIT_OR)} != 0"]
            rest = f"{self._at(item.number, _MUL)} % {self._at(item.divisor, _NEG)} == 0"
            return self._where_defined((item.divisor, item.number), rest, needed)
        if isinstance(item, c.IsIn):
            return self._where_defined((item.expr,), self._member(item, "in"))
        if isinstance(item, InTable):
            return self._where_defined(item.exprs, self._table(item))
        if isinstance(item, (c.AllOf, c.AnyOf)):
            is_every = isinstance(item, c.AllOf)
            return _joined([self.test(part) for part in item.parts], _AND if is_every else _OR)
        if isinstance(item, c.Not):
            return self._negated(item.part)
        if isinstance(item, c.Implies):
            return _joined([self._negated(item.condition), self.test(item.consequence)], _OR)
        raise CannotWrite(f"a {type(item).__name__} is not known")

    def _where_defined(self, exprs: Sequence[e.Expr], text: str, needed: Sequence[str] = ()) -> Written:
        """A test behind those that its expressions have values."""
        needs = dict.fromkeys([*(need for expr in exprs for need in self._needs(expr)), *needed])
        return _joined([*((need, _TEST) for need in needs), (text, _ATOM if text in _CONSTANTS else _TEST)])

    def _negated(self, part: c.Constraint) -> Written:
        if isinstance(part, c.Comparison) and not self._needs(part.left) and not self._needs(part.right):
            return self._compared(c.Comparison(part.left, _OPPOSITE[part.op], part.right)), _TEST
        if isinstance(part, c.IsIn) and not self._needs(part.expr):
            return self._member(part, "not in"), _TEST
        text, strength = self.test(part)
        if text in _CONSTANTS:
            return _CONSTANTS[text], _ATOM
        return f"not {_in_brackets((text, strength), _NOT)}", _NOT

    def _compared(self, item: c.Comparison) -> str:
        for coded, op, number in ((item.left, item.op, item.right), (item.right, item.op, item.left)):
            value = self._value_of(coded, op, number)
            if value is not None:
                sides = (self._name(coded), value) if coded is item.left else (value, self._name(coded))
                return f"{sides[0]} {op} {sides[1]}"
        return f"{self._at(item.left, _BIT_OR)} {item.op} {self._at(item.right, _BIT_OR)}"

    def _value_of(self, coded: e.Expr, op: str, number: e.Expr) -> str | None:
        """The literal of the value that a number stands for beside a coded variable; None where there is none."""
        if not isinstance(coded, e.Var) or not isinstance(number, e.Const):
            return None
        domain = self.domains[coded.name]
        if domain.labels is None:
            return None
        if op in ("==", "!=") and number.number in domain:
            return _literal(domain, number.number)
        if domain.scale < 2:
            return None
        exact = Fraction(number.number, domain.scale)
        if exact.denominator == 1:
            return str(exact.numerator)
        try:
            return repr(float(exact)) if Fraction(float(exact)) == exact else None
        except OverflowError:
            return None

    def _member(self, item: c.IsIn, sign: str) -> str:
        domain = item.domain
        if isinstance(item.expr, e.Var) and self.domains[item.expr.name].labels is not None:
            whole = self.domains[item.expr.name]
            values = [_literal(whole, code) for code in whole if code in domain]
            return _one_of(self._name(item.expr), sign, values)
        text = self._at(item.expr, _BIT_OR)
        if domain.listed is not None:
            return _one_of(text, sign, [str(value) for value in domain.listed])
        step = f", {domain.step}" if domain.step != 1 else ""
        return f"{text} {sign} range({domain.lower}, {domain.upper + 1}{step})"

    def _table(self, item: InTable) -> str:
        if len(item.rows) > MAX_ROWS:
            raise CannotWrite(f"a table of {len(item.rows):,} rows is longer than {MAX_ROWS:,}")
        heads, columns = [], []
        for place, expr in enumerate(item.exprs):
            domain = self.domains[expr.name] if isinstance(expr, e.Var) else None
            if domain is None or domain.labels is None:
                heads.append(self._at(expr, _OR))
                columns.append([str(row[place]) for row in item.rows])
            else:
                heads.append(self._name(expr))
                coded = (row[place] for row in item.rows)
                columns.append([_literal(domain, code) if code in domain else "" for code in coded])
        rows = [f"({', '.join(row)})" for row in zip(*columns, strict=True) if all(row)]
        return f"({', '.join(heads)}) in {{{', '.join(rows)}}}" if rows else "False"

    # Numbers.

    def _at(self, expr: e.Expr, strength: int) -> str:
        return _in_brackets(self.number(expr), strength)

    def number(self, expr: e.Expr) -> Written:
        """An expression; where it has no value, the text may raise."""
        if isinstance(expr, e.Var):
            return self._code(expr)
        if isinstance(expr, e.Const):
            return str(expr.number), _ATOM if expr.number >= 0 else _NEG
        if isinstance(expr, e.Truth):
            return f"({self.test(expr.condition)[0]})", _ATOM
        assert isinstance(expr, e.Calculation)
        if isinstance(expr, Element):
            return self._chosen(expr, lambda item: self._at(item, _OR)), _ATOM
        return self._operation(expr.op, expr.args, expr)

    def _operation(self, op: str, args: tuple[e.Expr, ...], whole: e.Expr) -> Written:
        if op == "neg":
            return f"-{self._at(args[0], _NEG)}", _NEG
        if op == "ceildiv":
            return f"-(-{self._at(args[0], _NEG)} // {self._at(args[1], _NEG)})", _NEG
        if op == "pow":
            if self.bounds.size(whole) >= 2**MAX_BITS:
                raise CannotWrite("a power in it may be too large")
            return f"{self._at(args[0], _ATOM)} ** {self._at(args[1], _NEG)}", _POW
        if op in ("min", "max", "abs"):
            if op != "abs" and len(args) == 1:
                return self.number(args[0])
            return f"{op}({', '.join(self._at(a, _OR) for a in args)})", _ATOM
        if op not in _SIGNS:
            raise CannotWrite(f"Python has no operator for {op}")
        sign, strength = _SIGNS[op]
        text = self._at(args[0], strength)
        for arg in args[1:]:
            if op == "add" and isinstance(arg, e.Calculation) and arg.op == "neg":
                text += f" - {self._at(arg.args[0], _MUL)}"
            elif op == "add" and isinstance(arg, e.Const) and arg.number < 0:
                text += f" - {-arg.number}"
            else:
                text += f" {sign} {self._at(arg, strength + 1)}"
        return text, strength

    def _chosen(self, expr: Element, written: Callable[[e.Expr], str]) -> str:
        """The text of the item that the index selects; only that item is evaluated."""
        index, items = expr.args[0], expr.args[1:]
        if isinstance(index, e.Truth) and len(items) == 2:
            return f"({written(items[1])} if {self.test(index.condition)[0]} else {written(items[0])})"
        at = self._at(index, _BIT_OR)
        cases = "".join(f"{written(item)} if {at} == {place} else " for place, item in enumerate(items[:-1]))
        return f"({cases}{written(items[-1])})"

    def _name(self, var: e.Expr) -> str:
        assert isinstance(var, e.Var)
        return self.names.get(var.name, var.name)

    def _code(self, var: e.Var) -> Written:
        """The integer that codes a variable's value."""
        domain, name = self.domains[var.name], self._name(var)
        if isinstance(var, Coded) and domain.labels is None:
            raise CannotWrite(f"the values of {var.name} are not known")
        labels = domain.labels or ()
        if domain.scale == 1 and all(isinstance(label, int) for label in labels):
            return name, _ATOM if name.isidentifier() else _NEG
        codes = zip(labels, domain.listed or (), strict=True)
        if domain.scale == 0 or not all(_is_coded_in_python(label, domain.scale, code) for label, code in codes):
            raise CannotWrite(f"Python does not compute exactly with the values of {var.name}")
        return (f"int({name} * {domain.scale})" if domain.scale > 1 else f"int({name})"), _ATOM

    def _needs(self, expr: e.Expr) -> list[str]:
        """Tests, in this order, that an expression has a value; none where it always has."""
        if not isinstance(expr, e.Calculation) or e.is_total(expr):
            return []
        if isinstance(expr, Element):
            return self._needs_of_choice(expr)
        needs = [need for arg in expr.args for need in self._needs(arg)]
        if expr.op not in ("floordiv", "ceildiv", "mod", "div", "pow"):
            return needs
        left, right = expr.args
        if expr.op == "pow":
            return needs + ([] if self.bounds.of(right)[0] >= 0 else [f"{self._at(right, _BIT_OR)} >= 0"])
        if not self.bounds.nonzero(right):
            needs.append(f"{self._at(right, _BIT_OR)} != 0")
        if expr.op == "div":
            needs.append(f"{self._at(left, _MUL)} % {self._at(right, _NEG)} == 0")
        return needs

    def _needs_of_choice(self, expr: Element) -> list[str]:
        index, items = expr.args[0], expr.args[1:]
        needs = self._needs(index)
        low, high = self.bounds.of(index)
        if low < 0 or high >= len(items):
            needs.append(f"{self._at(index, _BIT_OR)} in range({len(items)})")
        if any(map(self._needs, items)):
            needs.append(self._chosen(expr, lambda item: " and ".join(self._needs(item)) or "True"))
        return needs


def _literal(domain: Domain, code: int) -> str:
    """The value that a code stands for; some readers of restrictions compare them with their spaces taken out."""
    return write_value(domain.value_of(code), "\\x20")


def _in_brackets(written: Written, strength: int) -> str:
    text, own = written
    return text if own >= strength else f"({text})"


def _joined(parts: Sequence[Written], strength: int = _AND) -> Written:
    """Conditions joined by `and`, or by `or`; what is always so is left out."""
    neutral, final = ("True", "False") if strength == _AND else ("False", "True")
    terms = [part for part in parts if part[0] != neutral]
    if any(text == final for text, _ in terms):
        return final, _ATOM
    if len(terms) < 2:
        return terms[0] if terms else (neutral, _ATOM)
    return (" and " if strength == _AND else " or ").join(_in_brackets(p, strength + 1) for p in terms), strength


def _one_of(text: str, sign: str, values: Sequence[str]) -> str:
    if not values:
        return "False" if sign == "in" else "True"
    if len(values) == 1:
        return f"{text} {'==' if sign == 'in' else '!='} {values[0]}"
    return f"{text} {sign} ({', '.join(values)})"


def _is_coded_in_python(label: Any, scale: int, code: int) -> bool:
    """Whether Python's own arithmetic makes the code of a value."""
    try:
        return isinstance(label, (int, float)) and int(label * scale) == code
    except OverflowError:
        return False
