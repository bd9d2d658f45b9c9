"""`constrint why-not`: which rules one configuration breaks, with the numbers in them, and what would mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.cli.request import Choice, Json, takes_choice
from constrint.cli.rules import domain_of, integer
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.model import Problem
    from constrint.solve import BrokenRule, WhyNot

SCHEMA = "constrint.why-not/1"


@takes_choice
def why_not(
    choice: Choice,
    config: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="A value for every parameter.")],
    json: Json = False,
) -> None:
    """Print every rule that a configuration breaks, with the numbers in it."""
    from constrint.solve import why_not as ask

    asked = choice.one()
    answer = ask(asked.problem, _values(asked.problem, config))
    if json:
        from constrint.cli.output import print_json

        print_json({"schema": SCHEMA, "title": asked.title, **_document(answer)})
        return
    _print(asked.title, answer)


def _values(problem: Problem, pairs: list[str]) -> dict[str, int]:
    values: dict[str, int] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals:
            raise UsageError(f"a configuration is written NAME=VALUE NAME=VALUE ..., got {pair!r}.")
        domain_of(problem, name)
        if name in values:
            raise UsageError(f"{name} is given twice.")
        values[name] = integer(text, name)
    missing = [name for name in problem.variables if name not in values]
    if missing:
        raise UsageError(
            f"why-not needs a value for every parameter; missing: {', '.join(missing)}. "
            "To ask about some parameters alone: constrint explain --set NAME=VALUE."
        )
    return values


def _name(broken: BrokenRule) -> str:
    return broken.variable if broken.constraint is None else broken.constraint.name


def _document(answer: WhyNot) -> dict[str, Any]:
    return {
        "config": dict(answer.config),
        "valid": not answer,
        "broken": [
            {
                "name": _name(broken),
                "rule": broken.text,
                "because": broken.because,
                "seen": broken.seen,
                "values": dict(broken.values),
            }
            for broken in answer
        ],
        "changes": {name: list(values) for name, values in answer.changes.items()},
    }


def _print(title: str, answer: WhyNot) -> None:
    from constrint.cli.output import say, wrap

    say(wrap(f"{title}: " + " ".join(f"{name}={value}" for name, value in answer.config.items())))
    if not answer:
        say("valid: no rule is broken")
        return
    say(f"breaks {len(answer)} rule{'s' if len(answer) > 1 else ''}")
    for broken in answer:
        say()
        name = _name(broken)
        say(wrap(f"{name}: {broken.text}" if name else broken.text, "  "))
        where = ", ".join(f"{name} = {value}" for name, value in broken.values.items())
        say(wrap(f"{broken.seen} ({where})", "    "))
        if broken.because:
            say(wrap(f"because {broken.because}", "    "))
    if answer.ways_out:
        say()
        say(wrap(answer.ways_out))
