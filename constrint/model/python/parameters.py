"""The text of one restriction in Python's syntax: its syntax tree, places in it for errors, and its parameters."""

from __future__ import annotations

import ast
import difflib
import re
import unicodedata
import warnings
from collections.abc import Mapping
from typing import Any, Final

from constrint.errors import ParseError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.python.quotient import InexactError, Number, Quotient
from constrint.model.ratio import code_variable
from constrint.model.table import table_of


class Parameters:
    """Finds parameters in a restriction's tree."""

    def __init__(self, place: TextPlace, domains: Mapping[str, Domain]) -> None:
        self.place, self.domains = place, domains
        # Python reads identifiers in this form.
        self.spelled = {unicodedata.normalize("NFKC", name): name for name in domains}

    def name_of(self, node: ast.expr) -> str | None:
        """The parameter that a name or `p["name"]` refers to; None for another node."""
        if isinstance(node, ast.Name):
            name = node.id
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id not in self.domains
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            name = node.slice.value
        else:
            return None
        if name in self.domains:
            return name
        if name in self.spelled:
            return self.spelled[name]
        near = difflib.get_close_matches(name, list(self.domains), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"the parameters are {', '.join(list(self.domains)[:20])}."
        raise self.place.at(node, f"there is no parameter {name!r}; {hint}")

    def variable(self, name: str) -> e.Var:
        """Variable that holds the codes of a parameter."""
        return code_variable(name, self.domains[name])

    def number(self, name: str) -> Number:
        """The value of a parameter, as Python computes with it."""
        domain = self.domains[name]
        if domain.labels is not None and not all(isinstance(label, (int, float)) for label in domain.labels):
            raise InexactError(f"{name} has values that are no numbers")
        if domain.scale == 0:
            raise InexactError(f"{name} has values that are not finite")
        floats = any(isinstance(label, float) for label in domain.labels or ())
        return Quotient(self.variable(name), e.Const(domain.scale)) if floats else self.variable(name)

    def names_in(self, node: ast.expr) -> list[str]:
        """The parameters in a node, in declared order."""
        names: set[str] = set()
        stack: list[ast.AST] = [node]
        while stack:
            part = stack.pop()
            name = self.name_of(part) if isinstance(part, (ast.Name, ast.Subscript)) else None
            if name is not None:
                names.add(name)
            elif isinstance(part, ast.Call):
                stack.extend(part.args)
            elif not isinstance(part, (ast.Lambda, ast.comprehension, ast.ListComp, ast.SetComp, ast.GeneratorExp)):
                stack.extend(ast.iter_child_nodes(part))
        return [name for name in self.domains if name in names]


MAX_NESTING: Final = 80
TOO_DEEP: Final = f"nested more than {MAX_NESTING} levels deep; split the restriction up"


class TextPlace:
    """Text of a restriction, with positions for errors."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source

    def error(self, message: str, line: int, column: int) -> ParseError:
        """An error at a line and a column."""
        lines = self.text.split("\n")
        shown = "".join(ch if ch.isprintable() else " " for ch in lines[line - 1]) if line <= len(lines) else ""
        return ParseError(message, text="\n" * (line - 1) + shown, line=line, column=column, source=self.source)

    def at(self, node: ast.AST, message: str) -> ParseError:
        """An error at a node; ast counts columns in bytes of UTF-8."""
        line = getattr(node, "lineno", 1)
        lines = self.text.split("\n")
        prefix = lines[line - 1].encode()[: getattr(node, "col_offset", 0)] if line <= len(lines) else b""
        return self.error(message, line, len(prefix.decode(errors="replace")) + 1)

    def parsed(self) -> ast.expr:
        """The tree of the text, which is a single expression.

        Raises:
            ParseError: Where it is none, or is nested too deep.
        """
        self._check_nesting()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            lines = self.text.split("\n")
            # Python gives no position for what is missing at the end.
            at = (error.lineno, error.offset) if error.lineno and error.offset else (len(lines), len(lines[-1]) + 1)
            raise self.error(f"not a Python expression: {error.msg}", *at) from None
        except ValueError:
            raise self.error("not a Python expression: it holds characters that Python cannot read", 1, 1) from None
        except (RecursionError, MemoryError):
            message = "too long or nested too deep for Python's parser; split the restriction up"
            raise self.error(message, 1, 1) from None

    def _check_nesting(self) -> None:
        """Counts brackets and prefix operators first: Python's own parser may run out of stack."""
        if sum(map(self.text.count, ("(", "[", "{", "not", "-", "+", "~"))) <= MAX_NESTING:
            return
        depth = prefixes = 0
        for hit in re.finditer(r"\bnot\b|\S", self.text):
            token = hit.group()
            if token in "([{":
                depth += 1
            elif token in ")]}":
                depth -= 1
            prefixes = prefixes + 1 if token in ("not", "-", "+", "~") else 0
            if max(depth, prefixes) > MAX_NESTING:
                line = self.text.count("\n", 0, hit.start()) + 1
                column = hit.start() - self.text.rfind("\n", 0, hit.start())
                raise self.error(TOO_DEEP, line, column)


def rows_of(left: ast.expr, right: ast.expr, parameters: Parameters) -> c.Constraint | None:
    """Table of `left in right` for parameters on the left and rows of constants on the right; None otherwise."""
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
