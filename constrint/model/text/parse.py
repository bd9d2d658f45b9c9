"""Reads the text language: a problem from declarations, constraints with reasons, and objectives.

One statement per line; `;` also ends one, and a line that ends or begins with an operator goes on. `#` begins
a comment. Where no variable is declared, names are positive integers. Errors name line and column.

    const smem_bytes = 101376
    var tile_m in {16, 32, 64} because "the matrix instruction takes m = 16"
    var num_stages in 1..4
    smem: num_stages * tile_m * 64 <= smem_bytes because "all stages are resident"
    maximise tile_m
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from constrint.errors import ConstrintError, ParseError, UsageError, shortened
from constrint.model import expr as e
from constrint.model.constraint import Constraint
from constrint.model.domain import Domain
from constrint.model.problem import Problem
from constrint.model.ratio import Ratio, expression_of
from constrint.model.text.grammar import Grammar
from constrint.model.text.lexer import SourceText, Token, tokens
from constrint.model.text.members import Names, TextArray, number_named

DIALECTS: Final = ("standard", "constrint")
_MARK: Final = re.compile(r"^[ \t]*#[ \t]*dialect:[ \t]*([A-Za-z0-9_-]+)[ \t]*\r?$", re.MULTILINE)


def parse(
    text: str,
    *,
    dialect: str | None = None,
    source: str = "",
    names: Names | None = None,
    implicit_variables: bool = False,
) -> Problem:
    """Reads a problem.

    Args:
        text: The text; `render` writes it back.
        dialect: "standard", or "constrint" where `%` separates whole terms (A % B * C is A % (B * C)). By
            default a comment `# dialect: constrint` in the text decides.
        source: Name of the file, for messages.
        names: Numbers that the text may use by names with dots, `gpu.sm_count`, beside its own constants
            (`constrint.hwmodels.gpu_names` has those of a GPU); text says why a number is not known.
        implicit_variables: Whether a name without a declaration is a positive integer also where the text declares
            variables, or a name that is much like it. In the dialect "constrint" it is.

    Raises:
        ParseError: Where the text is not in the language, with line, column and a caret.
    """
    if not isinstance(text, str):
        raise UsageError(f"parse takes text, got {type(text).__name__}; read the file first.")
    marked = _MARK.search(text)
    chosen = dialect or (marked.group(1) if marked else "standard")
    if chosen not in DIALECTS:
        raise UsageError(f"unknown dialect {chosen!r}; known: {', '.join(DIALECTS)}.")
    place = SourceText(text, source)
    is_constrint = chosen == "constrint"
    return _ProblemReader(place, tokens(place), is_constrint, names, implicit_variables or is_constrint).problem()


def parse_constraint(
    text: str,
    *,
    dialect: str = "standard",
    variables: Mapping[str, Domain] | None = None,
    names: Names | None = None,
) -> Constraint:
    """Reads a single constraint; every name in it is a variable.

    Args:
        text: The constraint.
        dialect: As for `parse`.
        variables: The domains of variables, which are needed where their values are no integers.
        names: As for `parse`.

    Raises:
        ParseError: Where the text is no constraint.
    """
    declared = variables or {}

    def named(name: str, _: int) -> Any:
        return expression_of(name, declared[name]) if name in declared else e.Var(name)

    def named_number(name: str) -> e.Expr:
        return e.Const(number_named(names, name), name)

    place = SourceText(text, "")
    grammar = Grammar(place, tokens(place), named, named_number, dialect == "constrint")
    grammar.skip_lines()
    constraint = grammar.constraint()
    grammar.skip_lines()
    if grammar.token.kind != "end":
        raise grammar.error(f"unexpected {grammar.describe(grammar.token)} after the constraint", grammar.token)
    return constraint


class UndeclaredNameWarning(UserWarning):
    """Warns of a name that is not declared and looks like one that is."""


class _ProblemReader:
    def __init__(
        self, source: SourceText, words: list[Token], constrint: bool, names: Names | None, implicit: bool
    ) -> None:
        self.result = Problem()
        self.implicit = implicit
        self.arrays: dict[str, TextArray] = {}
        self.grammar = Grammar(source, words, self._resolve, self._named_number, constrint)
        self.names = names
        # Declarations may follow a use: names are collected before anything is read.
        self.declared = _declared(words)
        self.constants: dict[str, e.Const] = {}
        self.waiting: list[tuple[Constraint, str, str, int | None, Token]] = []
        self.objectives: list[tuple[str, e.Expr | Ratio, Token]] = []
        # Variables that were used before their declaration, taken as integers.
        self.early: set[str] = set()

    def _resolve(self, name: str, start: int) -> Any:
        if name in self.constants:
            return self.constants[name]
        if name in self.arrays:
            return self.arrays[name]
        if self.declared.get(name) == "array":
            raise self.grammar.source.error(f"the array {name!r} is used before its declaration; move it up", start)
        if self.declared.get(name) == "const":
            raise self.grammar.source.error(f"the constant {name!r} is used before its definition; move it up", start)
        if name in self.result.variables:
            return expression_of(name, self.result.variables[name])
        if name not in self.declared:
            self._compare(name, start)
            self.result.declare(name, Domain.positive())
        self.early.add(name)
        return e.Var(name)

    def _compare(self, name: str, start: int) -> None:
        """Refuses, or warns of, a name without a declaration beside others; numbered names differ on purpose."""
        alike = {known.lower(): known for known in self.declared if _digits(known) == _digits(name)}
        near = difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.75)
        own = shortened(name)
        meant = f"did you mean `{shortened(alike[near[0]])}`? If not, declare" if near else "declare"
        if not self.implicit and (near or "var" in self.declared.values() or "array" in self.declared.values()):
            raise self.grammar.source.error(
                f"`{own}` is not declared; {meant} it: var {own} in 1..100 (--implicit-variables takes any name "
                "as a positive integer)",
                start,
            )
        if near:
            line, column = self.grammar.source.position(start)
            warnings.warn(
                f"{self.grammar.source.name or 'text'}:{line}:{column}: `{own}` is not declared, so it is any positive "
                f"integer; {meant} it: var {own}",
                UndeclaredNameWarning,
                stacklevel=2,
            )

    def _named_number(self, name: str) -> e.Const:
        """A constant of the text, or a number that the caller gave a name, which becomes one."""
        if name not in self.constants:
            self.constants[name] = self.result.constant(name, number_named(self.names, name))
        return self.constants[name]

    def problem(self) -> Problem:
        """Reads all statements."""
        grammar = self.grammar
        while grammar.token.kind != "end":
            if grammar.token.kind == "newline" or grammar.accept(";"):
                grammar.skip_lines()
                continue
            first = grammar.token
            try:
                self._statement(first)
            except ParseError:
                raise
            except ConstrintError as error:
                raise grammar.error(str(error), first) from None
            last = grammar.token
            if last.kind not in ("newline", "end") and (last.kind, last.value) != ("sign", ";"):
                raise grammar.error(f"unexpected {grammar.describe(last)}; the statement is complete here", last)
        return self._finish()

    def _finish(self) -> Problem:
        for constraint, because, name, weight, token in self.waiting:
            if weight is None:
                self._located(token, partial(self.result.add, constraint, because, name))
            else:
                self._located(token, partial(self.result.add_soft, constraint, weight, because, name))
        for word, expr, token in self.objectives:
            act = self.result.maximise if word.startswith("max") else self.result.minimise
            self._located(token, partial(act, expr))
        return self.result

    def _located(self, token: Token, action: Callable[[], object]) -> None:
        try:
            action()
        except ConstrintError as error:
            raise self.grammar.error(str(error), token) from None

    def _statement(self, first: Token) -> None:
        word = first.value if first.kind == "word" else ""
        if word == "var":
            self._variable()
        elif word == "const":
            self._constant()
        elif word == "problem":
            self._title(first)
        elif word in ("maximise", "maximize", "minimise", "minimize"):
            self.grammar.next()
            self.objectives.append((word, self.grammar.objective(), first))
        elif word == "soft" and self._begins_soft_rule(self.grammar.at + 1):
            self.grammar.next()
            self._rule(self.grammar.token, soft=True)
        else:
            self._rule(first)

    def _name(self, what: str, may_have_dots: bool = False) -> str:
        token = self.grammar.next()
        if token.kind == "dotted" and not may_have_dots:
            raise self.grammar.error(f"{what} has a name without dots; write `{token.value}` in backquotes", token)
        if token.kind not in ("name", "dotted") and (token.kind != "word" or token.value in e.RESERVED):
            raise self.grammar.error(f"expected the name of {what}, found {self.grammar.describe(token)}", token)
        return token.value

    def _title(self, first: Token) -> None:
        self.grammar.next()
        token = self.grammar.next()
        if token.kind not in ("word", "name", "text"):
            raise self.grammar.error("expected the problem's name", token)
        if self.result.name:
            raise self.grammar.error("the problem already has a name", first)
        self.result.name = token.value

    def _variable(self) -> None:
        self.grammar.next()
        token = self.grammar.token
        name = self._name("a variable")
        shape = self.grammar.dimensions() if self._opens_list() else None
        domain = Domain.positive()
        if self.grammar.accept("in"):
            given = self.grammar.domain()
            if given is None:
                raise self.grammar.error(f"variable {name!r} has no value: its domain is empty", token)
            domain = replace(given, because=self._because())
        if shape is not None:
            self._declare_array(name, *shape, domain)
            return
        if name in self.arrays:
            raise UsageError(f"the name {name!r} is declared twice; remove one declaration.")
        if domain.labels is not None and name in self.early:
            raise self.grammar.error(
                f"variable {name!r} has values that are no integers; declare it before it is used", token
            )
        self.result.declare(name, domain)

    def _opens_list(self) -> bool:
        token = self.grammar.token
        return token.kind == "sign" and token.value == "["

    def _declare_array(self, name: str, lowers: list[int], sizes: list[int], domain: Domain) -> None:
        """Declares the variables of an array: `x_0_1` is that of `x[0, 1]`."""
        if name in self.arrays or name in self.result.variables or name in self.constants:
            raise UsageError(f"the name {name!r} is declared twice; remove one declaration.")
        ranges = (range(lower, lower + size) for lower, size in zip(lowers, sizes, strict=True))
        items = []
        for indices in itertools.product(*ranges):
            full = "_".join((name, *map(str, indices)))
            self.result.declare(full, domain)
            items.append(expression_of(full, domain))
        self.arrays[name] = TextArray(tuple(lowers), tuple(sizes), tuple(items))

    def _constant_array(self, name: str, shape: tuple[list[int], list[int]] | None) -> None:
        """Reads the numbers of an array of constants: `const cost[1..2, 2] = [[1, 2], [3, 4]]`."""
        token = self.grammar.token
        self.grammar.expect("[", "before the numbers of an array of constants")
        array = self.grammar.listed()
        if name in self.arrays or name in self.result.variables:
            raise UsageError(f"the name {name!r} is declared twice; remove one declaration.")
        for item in array.items:
            if not isinstance(item, (e.Expr, Ratio)) or (
                item.variables if isinstance(item, e.Expr) else item.num.variables
            ):
                raise self.grammar.error("an array of constants holds fixed numbers, lists of one length", token)
        items = tuple(e.Const(item.value({})) if isinstance(item, e.Expr) else item for item in array.items)
        lowers, sizes = (array.lowers, array.sizes) if shape is None else (tuple(shape[0]), tuple(shape[1]))
        if sizes != array.sizes and not (len(sizes) > 1 and len(array.sizes) == 1 and math.prod(sizes) == len(items)):
            written, given = (" x ".join(map(str, one)) for one in (sizes, array.sizes))
            raise self.grammar.error(f"the array {name!r} has {written} numbers, and {given} are given", token)
        self.arrays[name] = TextArray(lowers, sizes, items)

    def _constant(self) -> None:
        self.grammar.next()
        name = self._name("a constant", may_have_dots=True)
        if self.names and name in self.names:
            raise UsageError(f"{name!r} is known already, since a GPU was named; remove the definition or name no GPU.")
        if name in self.constants:
            raise UsageError(f"the constant {name!r} is defined twice; remove one definition.")
        shape = self.grammar.dimensions() if self._opens_list() else None
        self.grammar.expect("=", "after the constant's name")
        if shape is not None or self._opens_list():
            self._constant_array(name, shape)
            return
        self.constants[name] = self.result.constant(name, self.grammar.number())

    def _because(self) -> str:
        grammar = self.grammar
        ahead = grammar.at
        while grammar.tokens[ahead].kind == "newline":
            ahead += 1
        token = grammar.tokens[ahead]
        if token.kind != "word" or token.value != "because":
            return ""
        grammar.at = ahead + 1
        grammar.skip_lines()
        reason = grammar.next()
        if reason.kind != "text":
            raise grammar.error('expected the reason in double quotes: because "..."', reason)
        return reason.value

    def _begins_soft_rule(self, at: int) -> bool:
        """Whether a rule begins at the token after `soft`; what stands after a variable of that name cannot."""
        token, following = (self.grammar.tokens[min(i, len(self.grammar.tokens) - 1)] for i in (at, at + 1))
        if token.kind == "sign":
            return token.value == "(" or (token.value == "-" and "soft" not in self.declared)
        if token.value == "not":
            return following.value != "in"
        if token.kind == "word":
            return token.value not in ("in", "divides", "and", "or", "because")
        return token.kind in ("name", "dotted", "number", "decimal", "text")

    def _rule(self, first: Token, soft: bool = False) -> None:
        grammar = self.grammar
        name = ""
        following = grammar.tokens[min(grammar.at + 1, len(grammar.tokens) - 1)]
        if first.kind in ("word", "name", "text") and following.kind == "sign" and following.value == ":":
            name = first.value
            if not name or (first.kind == "word" and name in e.RESERVED):
                raise grammar.error("a rule's name must be a plain word or quoted text", first)
            grammar.at += 2
            grammar.skip_lines()
        constraints, labels = grammar.rule()
        weight = 1 if soft else None
        if soft and grammar.accept("weight"):
            weight = grammar.number()
        because = self._because()
        for constraint, label in zip(constraints, labels, strict=True):
            # The rules of a loop are rules of their own, so that explanations name those that matter.
            full = f"{name}[{label}]" if name and label else name
            self.waiting.append((constraint, because, full, weight, first))


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _declared(words: list[Token]) -> dict[str, str]:
    """Names after `var` and `const` at the beginning of a statement: "var", "const", or "array" of variables."""
    declared: dict[str, str] = {}
    begins = True
    for place, (token, following) in enumerate(itertools.pairwise(words)):
        if begins and token.kind == "word" and token.value in ("var", "const") and following.kind in ("word", "name"):
            declared[following.value] = token.value
            bracket = words[min(place + 2, len(words) - 1)]
            if bracket.kind == "sign" and bracket.value == "[":
                declared[following.value] = "array" if token.value == "var" else "const"
        begins = token.kind == "newline" or (token.kind == "sign" and token.value == ";")
    return declared
