"""The user's own rules on a problem: `--set NAME=VALUE` and `--where RULE`, checked before they are added."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from constrint.cli.asked.kernel_options import Choice
from constrint.errors import ParseError, UnknownNameError, UsageError
from constrint.model import Constraint, Domain, Problem, Var, is_in, parse_constraint
from constrint.model.ratio import code_variable
from constrint.model.text.numbers import Names
from constrint.model.values import literal

if TYPE_CHECKING:
    from constrint.answers.question import Asked

#: The kind of a rule of the user's own.
YOURS = "yours"
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


def add_own_rules(
    choice: Choice, problems: Mapping[str, Problem], names: Names | None = None
) -> tuple[dict[str, tuple[Constraint, ...]], dict[str, str]]:
    """Add the user's rules to every problem that has the parameters; the others are left out.

    A value that one kernel takes and another does not leaves the other without a solution.

    Args:
        choice: The user's rules.
        problems: The problems by their kernels.
        names: Numbers of a GPU that rules may name.

    Returns:
        What was added, by kernel, and why the kernels left out cannot answer.

    Raises:
        UsageError: For a text that is no rule, a parameter that no problem has, or a value that it does not take; or
            where no problem has all the parameters.
    """
    wanted = [_setting(problems, text) for text in choice.set_ or ()]
    wanted += [_rule(problems, text, choice.dialect or "standard", names) for text in choice.where or ()]
    lacking: dict[str, str] = {}
    added: dict[str, tuple[Constraint, ...]] = {}
    for kernel, problem in problems.items():
        missing = sorted({n for rule in wanted for n in rule.variables if n not in problem.variables})
        if missing:
            lacking[kernel] = f"it has no parameter {' and no parameter '.join(map(repr, missing))}"
        else:
            added[kernel] = tuple(problem.add(rule) for rule in wanted)
    if not added and problems:
        reasons = "; ".join(f"{kernel}: {reason}" for kernel, reason in lacking.items())
        raise UsageError(f"no kernel has all the parameters that --set and --where name. {reasons}.")
    return added, lacking


def kind_of(asked: Asked, rule: Constraint) -> str:
    """What a rule is worth: its kind, or that it is the user's own."""
    return YOURS if any(rule is own for own in asked.own) and asked.request is not None else rule.kind


def _setting(problems: Mapping[str, Problem], text: str) -> Constraint:
    """The rule of `--set NAME=VALUE[,VALUE]`."""
    name, equals, value_text = text.partition("=")
    name = name.strip()
    if not equals:
        raise UsageError(f"--set takes NAME=VALUE, for example --set tile_m=128; got {text!r}.")
    domain = domain_of(problems.values(), name)
    if domain.labels is not None:
        codes = [code_in(domain, part, f"--set {name}") for part in value_text.split(",")]
        return is_in(code_variable(name, domain), codes).labelled(f"asked for by --set {text}", f"set_{name}")
    values = [integer(part, f"--set {name}") for part in value_text.split(",")]
    for value in values:
        if value not in domain:
            raise UsageError(f"--set {name}={value}: {name} takes {allowed(domain)} {nearest(domain, value)}")
    rule: Constraint = Var(name) == values[0] if len(values) == 1 else is_in(Var(name), values)
    return rule.labelled(f"asked for by --set {text}", f"set_{name}")


def _rule(problems: Mapping[str, Problem], text: str, dialect: str, gpu: Names | None) -> Constraint:
    """The rule of `--where RULE`."""
    try:
        with shown_warnings():
            known = {n: d for problem in problems.values() for n, d in problem.variables.items()}
            rule = parse_constraint(text, dialect=dialect, variables=known, names=gpu)
    except ParseError as error:
        raise UsageError(f"--where is not a rule: {error}\nA rule looks like: tile_k <= 64") from None
    names = list(dict.fromkeys(name for problem in problems.values() for name in problem.variables))
    for name in sorted(rule.variables - set(names)):
        near = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"--where {text!r}: there is no parameter {name!r}.{hint} Parameters: {', '.join(names)}.")
    return rule.labelled(f"asked for by --where {text!r}", "where")


def domain_of(problems: Iterable[Problem], name: str) -> Domain:
    """The values that some problem's parameter takes, or an error that names the nearest parameters."""
    every = [problem.variables for problem in problems]
    domains = [variables[name] for variables in every if name in variables]
    if not domains:
        raise UnknownNameError("parameter", name, {known for variables in every for known in variables})
    if all(domain.values == domains[0].values for domain in domains[1:]):
        return domains[0]
    values = dict.fromkeys(value for domain in domains for value in domain.values)
    reasons = {domain.because for domain in domains}
    # What is a reason for one kernel's values need not be one for all of them.
    return Domain.from_values(list(values), reasons.pop() if len(reasons) == 1 else "")


def integer(text: str, what: str) -> int:
    """The integer that a piece of an argument stands for."""
    try:
        return int(text.strip())
    except ValueError:
        shown = text.strip() if len(text) <= 40 else f"{text[:40]}..."
        raise UsageError(f"{what}: expected an integer, got {shown!r}.") from None


def code_in(domain: Domain, text: str, what: str) -> int:
    """The code of a value of other variables than integers: `1.5`, `true`, `none`, or text with or without quotes."""
    wanted = text.strip()
    for value in domain.labels or ():
        if wanted in (literal(value), str(value)):
            code = domain.code_of(value)
            if code is not None:
                return code
    raise UsageError(f"{what}={wanted[:40]}: it takes {', '.join(map(literal, domain.labels or ()))}.")


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
