"""`constrint why-not`: the rules that one configuration breaks, with their numbers, and the changes that repair it."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer

from constrint.answers.question import Question, StatedProblem
from constrint.answers.terminal import print_json, say
from constrint.answers.verdict import ConfigVerdict, print_verdict
from constrint.cli.completion import complete_setting
from constrint.cli.options import Choice, Json, KernelCommand, MaxMemory, MaxSeconds
from constrint.cli.question import code_in, domain_of, integer, question_of
from constrint.cli.run import Run
from constrint.errors import CancelledError, UsageError
from constrint.solve import WhyNot
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
    first, *others = [
        ConfigVerdict.of(*answer, names_kernel=question.several or place > 0) for place, answer in enumerate(answers)
    ]
    if json:
        more = {**({"others": others} if others else {}), **({"stopped": stopped} if stopped else {})}
        print_json({"schema": SCHEMA, **msgspec.to_builtins(first), **more})
    else:
        for verdict, (_, answer) in zip((first, *others), answers, strict=True):
            if verdict is not first:
                say()
            print_verdict(verdict, answer.ways_out, question.arguments)
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
