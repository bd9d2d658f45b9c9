"""Spaces that are stated as lists of values and Python expressions rather than as code.

Rules and resources are texts over the parameters and over numbers of the workload and the GPU (`m`, `warp_size`). They
are parsed with `ast`, never evaluated. A parameter's values may be any hashable objects; a configuration holds their
integer codes (`constrint.model.domain`), which `decoded` translates back.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from constrint.errors import ParseError, UndefinedValueError, UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.model import Constraint, Domain, Expr, Problem
from constrint.model.encode import in_codes
from constrint.model.expr import check_name
from constrint.model.python.expression import read_number, read_restriction
from constrint.model.python.restrictions import problem_from_space
from constrint.select.candidate import Config
from constrint.select.spec import Param

#: A rule: a Python expression, or a function that says whether a configuration is valid.
StatedRule = str | Callable[..., object]
#: `cdiv(a, b)`, the quotient rounded up, is accepted beside Python's operators.
CEILDIV = "cdiv"
_MAX_SHOWN = 60


def gpu_names(gpu: GpuModel) -> dict[str, int]:
    """Numbers of a GPU that texts may name."""
    return {
        "warp_size": gpu.sm.warp_size,
        "sm_count": gpu.device.sm_count,
        "max_threads_per_block": gpu.sm.max_threads_per_block,
        "max_smem_bytes_per_block": gpu.sm.max_smem_bytes_per_block,
    }


#: The names that `gpu_names` returns, and the size of an element of the workload's dtype.
GPU_NAMES = ("warp_size", "sm_count", "max_threads_per_block", "max_smem_bytes_per_block")
ELEMENT_BYTES_NAME = "element_bytes"


class StatedSpace:
    """A parameter space stated as data: values per parameter, and rules.

    Args:
        params: The values of each parameter, preferred ones first.
        rules: Python expressions over parameters and named numbers; functions of parameters where they are trusted.
        where: Owner of the space, for messages.

    Raises:
        UsageError: Where `params` is no mapping to lists of values, or a rule has another type.
    """

    def __init__(self, params: Mapping[str, Iterable[object]], rules: Sequence[StatedRule], where: str) -> None:
        if not isinstance(params, Mapping) or not params:
            raise UsageError(
                f"{where}: params must map the name of each parameter to its values, got {_shown(params)}."
            )
        if isinstance(rules, str) or not isinstance(rules, Sequence):
            raise UsageError(f"{where}: rules must be a list of Python expressions, got {_shown(rules)}.")
        self.where, self.rules = where, tuple(rules)
        self.domains: dict[str, Domain] = {}
        for name, values in params.items():
            check_name(name, f"{where}: the name of a parameter")
            if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
                raise UsageError(f"{where}: {name!r} must have a list of values, got {_shown(values)}.")
            self.domains[name] = Domain.of(values, "the values that were given", f"{where}: {name!r}")

    def check_rules(self, others: Iterable[str]) -> None:
        """Parse every rule once, so that mistakes surface before there is a workload; see `check_text`."""
        names = {*self.domains, *others}
        for number, rule in enumerate(self.rules):
            if not callable(rule):
                ones = self._checked(rule, f"rules[{number}]", names)
                with suppress(UndefinedValueError):  # another number than 1 may give it a value
                    self._rule(rule, ones, number)

    def check_text(self, text: object, what: str, names: Collection[str]) -> None:
        """Parse an expression once, with 1 for every named number.

        Raises:
            ParseError: For text that is no Python expression, or no whole number.
            UnknownNameError: For a name that is neither a parameter nor one of these numbers.
            UsageError: For a value that is neither text nor a whole number.
        """
        if not isinstance(text, int) or isinstance(text, bool):
            ones = self._checked(text, what, names)
            with suppress(UndefinedValueError):
                self.number(str(text), ones, what)

    def _checked(self, text: object, what: str, names: Collection[str]) -> dict[str, int]:
        """Check the names in a text, and return numbers for those that are no parameters."""
        place = f"{self.where}: {what}"
        if not isinstance(text, str):
            raise UsageError(f"{place} must be the text of an expression, got {_shown(text)}.")
        for name in _names_in(text, place):
            if name not in names:
                raise UnknownNameError("name", name, names, f"It stands in {place} {text!r}.")
        return dict.fromkeys(set(names) - self.domains.keys(), 1)

    def params(self) -> Iterator[Param]:
        """The parameters with codes as values; integers are their own codes."""
        for name, domain in self.domains.items():
            yield Param(name, tuple(domain), "a parameter of the kernel", domain.because)

    def problem(self, name: str, values: Mapping[str, int]) -> Problem:
        """The problem of all configurations that keep every rule, in codes."""
        problem = Problem(name)
        for param, domain in self.domains.items():
            problem.declare(param, domain)
        for number, rule in enumerate(self.rules):
            because = rule if isinstance(rule, str) else f"the function {getattr(rule, '__name__', 'of no name')}"
            problem.add(self._rule(rule, values, number), because=f"it was stated: {because}")
        return in_codes(problem)

    def number(self, text: str | int, values: Mapping[str, int], what: str) -> Expr:
        """An expression over the parameters."""
        return read_number(_with_numbers(str(text), values), self.domains, f"{self.where}: {what}")

    def decoded(self, config: Config) -> dict[str, Any]:
        """The values that a configuration's codes stand for."""
        return {n: self.domains[n].value_of(code) if n in self.domains else code for n, code in config.items()}

    def encoded(self, values: Mapping[str, object]) -> dict[str, int]:
        """The codes of values.

        Raises:
            UsageError: For a value that its parameter does not have.
        """
        codes = {name: self.domains[name].code_of(value) for name, value in values.items()}
        for name, code in codes.items():
            if code is None:
                raise UsageError(f"{self.where}: {name} has no value {values[name]!r}; it has {self.domains[name]}.")
        return {name: code for name, code in codes.items() if code is not None}

    def _rule(self, rule: StatedRule, numbers: Mapping[str, int], number: int) -> Constraint:
        source = f"{self.where}: rules[{number}]"
        if isinstance(rule, str):
            return read_restriction(_with_numbers(rule, numbers), self.domains, source)
        values = {name: domain.labels or tuple(domain) for name, domain in self.domains.items()}
        return problem_from_space(values, [rule], source=source, trusted=True).constraints[0]


class _Numbers(ast.NodeTransformer):
    """Replaces named numbers by their values, and `cdiv(a, b)` by `-(-a // b)`."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(self.known[node.id]), node) if node.id in self.known else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        args = [self.visit(arg) for arg in node.args]
        if isinstance(node.func, ast.Name) and node.func.id == CEILDIV and len(args) == 2 and not node.keywords:
            over = ast.BinOp(ast.UnaryOp(ast.USub(), args[0]), ast.FloorDiv(), args[1])
            return ast.fix_missing_locations(ast.copy_location(ast.UnaryOp(ast.USub(), over), node))
        return ast.copy_location(ast.Call(node.func, args, node.keywords), node)


def _with_numbers(text: str, values: Mapping[str, int]) -> str:
    """Replace named numbers in a text; text that is no expression is returned as it is, for its parser to refuse."""
    try:
        return ast.unparse(_Numbers(values).visit(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _names_in(text: str, where: str) -> list[str]:
    """Names that an expression reads, without those of called functions."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        message = f"not a Python expression: {error.msg}"
        raise ParseError(message, text=text.strip(), line=line, column=column, source=where) from None
    except (ValueError, RecursionError, MemoryError):
        raise ParseError("not a Python expression that can be read", text=text, source=where) from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
