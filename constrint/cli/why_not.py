"""`constrint why-not`: the rules that one configuration breaks, with their numbers, and the changes that repair it."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Any

import typer

from constrint.answers.question import Question, StatedProblem, kind_of
from constrint.answers.ranking import named_values
from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.completion import complete_setting
from constrint.cli.options import Choice, Json, KernelCommand, MaxMemory, MaxSeconds
from constrint.cli.question import code_in, domain_of, integer, question_of
from constrint.cli.run import Run
from constrint.errors import CancelledError, UsageError
from constrint.model import Var
from constrint.select.core_space import chance_of
from constrint.solve import BrokenRule, WhyNot
from constrint.solve import why_not as ask

SCHEMA = "constrint.why-not/1"


@KernelCommand
def why_not(
    choice: Choice,
    config: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="A value for every parameter.", autocompletion=complete_setting),
    ],
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    json: Json = False,
) -> None:
    """Print every rule that a configuration breaks, with the numbers in it."""
    run = Run("looking for what would mend it", max_seconds, max_memory)
    question = question_of(choice)
    values = _values(question, config)
    with run:
        answers = [(stated, _answer(stated, values, run)) for stated in _that_have(question, values)]
        stopped = run.reason()
    if json:
        first, *others = [_document(*answer, question.several or i > 0) for i, answer in enumerate(answers)]
        more = {**({"others": others} if others else {}), **({"stopped": stopped} if stopped else {})}
        print_json({"schema": SCHEMA, **first, **more})
    else:
        for place, (stated, answer) in enumerate(answers):
            if place:
                say()
            _print(question, stated, answer)
        if stopped:
            print(f"note: not every change that would mend it was tried: {stopped}", file=sys.stderr)
    if run.signal:
        run.leave()


def _answer(stated: StatedProblem, values: dict[str, Any], run: Run) -> WhyNot:
    """The broken rules, and the changes that were tried within the limits."""
    try:
        return ask(stated.problem, values, run.limits())
    except CancelledError:
        return ask(stated.problem, values, run.last_limits(0.0))


def _values(question: Question, pairs: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals:
            raise UsageError(f"a configuration is written NAME=VALUE NAME=VALUE ..., got {pair!r}.")
        domain = domain_of([stated.problem for stated in question.problems], name)
        if name in values:
            raise UsageError(f"{name} is given twice.")
        labelled = domain.labels is not None
        values[name] = domain.value_of(code_in(domain, text, name)) if labelled else integer(text, name)
    return values


def _that_have(question: Question, values: dict[str, Any]) -> list[StatedProblem]:
    """The problems with exactly the named parameters.

    Raises:
        UsageError: When no problem has them; names what each lacks.
    """
    matching = [stated for stated in question.problems if set(stated.problem.variables) == values.keys()]
    if matching:
        return matching
    lines = []
    for stated in question.problems:
        missing = ", ".join(name for name in stated.problem.variables if name not in values)
        unknown = ", ".join(name for name in values if name not in stated.problem.variables)
        parts = [f"missing: {missing}" if missing else "", f"unknown to it: {unknown}" if unknown else ""]
        lines.append(f"  {stated.kernel}: {'; '.join(filter(None, parts))}")
    lacking = "\n".join(["why-not needs a value for every parameter of one kernel, and no others.", *lines, ""])
    if len(question.problems) == 1:
        lacking = f"why-not needs a value for every parameter; missing: {missing}. "
    raise UsageError(f"{lacking}To ask about some parameters alone: constrint explain --set NAME=VALUE.")


def _name(broken: BrokenRule) -> str:
    return broken.variable if broken.constraint is None else broken.constraint.name


def _document(stated: StatedProblem, answer: WhyNot, names_kernel: bool) -> dict[str, Any]:
    return {
        **({"kernel": stated.kernel} if names_kernel else {}),
        "title": stated.title,
        "config": dict(answer.config),
        "valid": not answer,
        "broken": [_rule(stated, broken) for broken in answer],
        "doubts": [_rule(stated, broken) for broken in answer.doubts],
        "spill_chance": _chance(stated, answer),
        "changes": {name: list(values) for name, values in answer.changes.items()},
    }


def _rule(stated: StatedProblem, broken: BrokenRule) -> dict[str, Any]:
    return {
        "name": _name(broken),
        "kind": _kind(stated, broken),
        "rule": broken.text,
        "because": broken.because,
        "seen": broken.seen,
        "values": dict(broken.values),
    }


def _kind(stated: StatedProblem, broken: BrokenRule) -> str:
    return "" if broken.constraint is None else kind_of(stated, broken.constraint)


def _chance(stated: StatedProblem, answer: WhyNot) -> float | None:
    """The chance that the configuration spills; None for a file, and for a value outside the domains."""
    request, config = stated.request, answer.config
    if request is None or any(config[name] not in domain for name, domain in stated.problem.variables.items()):
        return None
    use = request.spec.use(request.gpu, request.workload, {name: Var(name) for name in config})
    if use is None:
        return None
    return chance_of(request.gpu, use, stated.problem.estimates, config)


def _print(question: Question, stated: StatedProblem, answer: WhyNot) -> None:
    say(wrap(f"{stated.title}: {named_values(answer.config)}"))
    if answer:
        say(f"breaks {len(answer)} rule{'s' if len(answer) > 1 else ''}")
        for broken in answer:
            _print_rule(stated, broken)
        if answer.ways_out:
            say()
            say(wrap(answer.ways_out))
    else:
        say("valid: it breaks no rule that prunes" if answer.doubts else "valid: no rule is broken")
    chance = _chance(stated, answer)
    if answer.doubts:
        say()
        number = len(answer.doubts)
        say(wrap(f"{number} estimated rule{'s' if number > 1 else ''} would leave it out, with --strict:"))
        for broken in answer.doubts:
            _print_rule(stated, broken)
    if chance is not None and (answer.doubts or not answer):
        say()
        settings = [word for name, value in answer.config.items() for word in ("--set", f"{name}={value}")]
        command = shlex.join(("constrint", "verify", *question.arguments, *settings))
        text = "less than 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"
        say(wrap(f"estimated chance that its registers spill to memory: {text}"))
        say(f"to know: {command}")


def _print_rule(stated: StatedProblem, broken: BrokenRule) -> None:
    say()
    name, kind = _name(broken), _kind(stated, broken)
    titled = f"{name} ({kind})" if name and kind else name
    say(wrap(f"{titled}: {broken.text}" if titled else broken.text, "  "))
    where = ", ".join(f"{name} = {value}" for name, value in broken.values.items())
    say(wrap(f"{broken.seen} ({where})", "    "))
    if broken.because:
        say(wrap(f"because {broken.because}", "    "))
