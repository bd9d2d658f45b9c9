"""The user's own rules on a problem: `--set NAME=VALUE` and `--where RULE`, checked before they are added."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from constrint.errors import ParseError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.model import Domain, Problem

#: Domains up to this size are written out in a message.
MAX_SHOWN = 24


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print warnings of the parser as one line each on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)


def apply_setting(problem: Problem, text: str) -> None:
    """Add `--set NAME=VALUE[,VALUE]`.

    Raises:
        UsageError: For an unknown name, a value that is no integer, or one that the parameter does not take.
    """
    from constrint.model import Var, is_in

    name, equals, value_text = text.partition("=")
    name = name.strip()
    if not equals:
        raise UsageError(f"--set takes NAME=VALUE, for example --set tile_m=128; got {text!r}.")
    domain = domain_of(problem, name)
    values = [integer(part, f"--set {name}") for part in value_text.split(",")]
    for value in values:
        if value not in domain:
            raise UsageError(f"--set {name}={value}: {name} takes {allowed(domain)} {nearest(domain, value)}")
    because = f"asked for by --set {text}"
    rule = Var(name) == values[0] if len(values) == 1 else is_in(Var(name), values)
    problem.add(rule, name=f"set_{name}", because=because)


def domain_of(problem: Problem, name: str) -> Domain:
    """The domain of a parameter, or an error that names the nearest ones."""
    if name not in problem.variables:
        raise UnknownNameError("parameter", name, problem.variables)
    return problem.variables[name]


def integer(text: str, what: str) -> int:
    """The integer that a piece of an argument stands for."""
    try:
        return int(text.strip())
    except ValueError:
        shown = text.strip() if len(text) <= 40 else f"{text[:40]}..."
        raise UsageError(f"{what}: expected an integer, got {shown!r}.") from None


def allowed(domain: Domain) -> str:
    """The values of a parameter in a message, with their reason."""
    listed = domain.listed is not None and domain.size <= MAX_SHOWN
    text = ", ".join(map(str, domain.values)) if listed else f"{domain.lower}..{domain.upper}"
    if domain.listed is not None and not listed:
        text = f"{domain.size} values of {text}"
    elif domain.step != 1:
        text += f" in steps of {domain.step}"
    return f"{text} ({domain.because})." if domain.because else f"{text}."


def nearest(domain: Domain, value: int) -> str:
    """The values of a parameter that are nearest to one that it does not take."""
    if domain.listed is not None:
        near = sorted(domain.listed, key=lambda v: (abs(v - value), v))[:2]
    else:
        below = min(max(value - (value - domain.lower) % domain.step, domain.lower), domain.upper)
        near = [below, min(below + domain.step, domain.upper)] if value > domain.lower else [below]
    return f"Nearest: {' or '.join(str(v) for v in sorted(set(near)))}."


def apply_rule(problem: Problem, text: str, dialect: str = "standard") -> None:
    """Add `--where RULE`.

    Raises:
        UsageError: Where the text is no rule or names a parameter that there is not.
    """
    from constrint.model import parse_constraint

    try:
        with shown_warnings():
            rule = parse_constraint(text, dialect=dialect)
    except ParseError as error:
        raise UsageError(f"--where is not a rule: {error}\nA rule looks like: tile_k <= 64") from None
    for name in sorted(rule.variables - set(problem.variables)):
        near = difflib.get_close_matches(name, list(problem.variables), n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        known = ", ".join(problem.variables)
        raise UsageError(f"--where {text!r}: there is no parameter {name!r}.{hint} Parameters: {known}.")
    problem.add(rule, name="where", because=f"asked for by --where {text!r}")
