"""`constrint explain`: why a space is as it is - per rule what it removes - or why nothing fits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from constrint.answers.question import Asked, Question
from constrint.answers.table import EXTRA, Cell, Column, Page, Table
from constrint.answers.terminal import say, wrap
from constrint.answers.ways_out import ways_out
from constrint.cli.asked.kernel_options import Choice, KernelCommand
from constrint.cli.asked.request import question_of
from constrint.cli.output import Output, printing
from constrint.cli.running.options import MaxMemory, MaxSeconds
from constrint.cli.running.run import Run
from constrint.cli.space.count import as_bounds
from constrint.cli.space.fastest import Fastest, fastest_of, table_of
from constrint.cli.space.rules import YOURS, kind_of
from constrint.errors import InfeasibleError, LimitReachedError
from constrint.model import Problem
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.model.problem import named_constants
from constrint.model.values import literal
from constrint.select.rank import predict, reason_of
from constrint.solve import Conflict, Count, count_within
from constrint.solve.budget import Budget
from constrint.solve.explain.pruning import removes_alone, removes_only

SCHEMA = "constrint.explain/1"
#: What a rule is worth, in the words of the table.
KINDS = {
    CERTAIN: "what breaks it cannot run",
    REDUNDANT: "what breaks it runs, but does the work of another config",
    ESTIMATED: "it may be wrong",
    YOURS: "asked for",
}
#: The columns of rules; the keys are those of the JSON document, and the kernel.
RULES = (
    Column("kernel", is_text=True, importance=EXTRA),
    Column("name", is_text=True, importance=EXTRA),
    Column("rule", meaning="its name, or what it says", is_text=True, wraps=True, importance=100),
    Column("kind", meaning="what it is worth", is_text=True, importance=70),
    Column("removes_alone", "alone", meaning="configs of the full product that break it", importance=90),
    Column("removes_only", "only it", meaning="configs that break it and no other", importance=80, show="{:,}".format),
    Column("because", meaning="the reason", is_text=True, wraps=True, importance=60),
    Column("prunes", meaning="whether it leaves configs out", importance=EXTRA),
)
#: Of the time that is allowed counting the solutions may take this share; the rest is for the rules.
COUNT_SHARE = 0.5
#: Larger domains are described by their bounds.
MAX_VALUES = 4096


#: What a rule removes alone, and what only it removes; None where that was not counted.
Removed = tuple[int, int | None]


@dataclass(frozen=True)
class Section:
    """What is said of one kernel, or of the file.

    Args:
        asked: The problem.
        valid: How many solutions it has.
        reason: Why there is none; empty where there is one.
        conflict: The rules that cannot hold together.
        ways_out: Changes that would help.
        removed: Per rule, by its `id`, what it removes alone and what only it removes, as far as it was counted.
        stopped: Why something was not counted; empty where all was.
        fastest: What is predicted to be the fastest, where the kernel says what makes it so.
    """

    asked: Asked
    valid: Count
    reason: str = ""
    conflict: Conflict | None = None
    ways_out: tuple[str, ...] = ()
    removed: Mapping[int, Removed] = field(default_factory=dict)
    stopped: str = ""
    fastest: tuple[Fastest, ...] = ()

    @property
    def advice(self) -> str:
        """Why nothing fits, and what would."""
        return "\n  ".join([f"{self.reason}\nNearest ways out:", *self.ways_out]) if self.ways_out else self.reason


@KernelCommand
@printing
def explain(choice: Choice, max_seconds: MaxSeconds = None, max_memory: MaxMemory = None, *, output: Output) -> None:
    """Say per rule how many configurations it removes; for an infeasible request, the conflict and the way out."""
    run = Run("explaining", max_seconds, max_memory)
    question = question_of(choice)
    with run:
        sections = [_section(asked, run) for asked in question.asked]
        if all(section.reason for section in sections):
            raise _nothing_fits(question, sections)
    documents = {id(section): cache(partial(_document, section)) for section in sections}

    def drawn(draw: Callable[[Table], None]) -> None:
        for place, section in enumerate(sections):
            if place:
                say("\n")
            _print(section, documents[id(section)], draw)
        for note in question.notes:
            say()
            say(wrap(note))

    def whole(_: object) -> dict[str, Any]:
        return {"schema": SCHEMA, "results": [documents[id(section)]() for section in sections]}

    rows = [] if output.is_table or output.is_json else [r for each in documents.values() for r in _rule_rows(each())]
    output.show(Page(Table(RULES, rows), whole, draw=drawn))
    stopped = next((section.stopped for section in sections if section.stopped), "")
    if stopped:
        print(f"note: what each rule removes is not counted: {stopped}", file=sys.stderr)
    if run.signal or any(section.valid.exact is None for section in sections) or (stopped and run.reason()):
        run.leave()


def _section(asked: Asked, run: Run) -> Section:
    valid = count_within(asked.problem, run.limits(COUNT_SHARE))
    if valid.exact == 0:
        limits = run.limits()
        reason, conflict = reason_of(asked.problem, is_kernel=asked.request is not None, limits=limits)
        return Section(asked, valid, reason, conflict, tuple(ways_out(asked, conflict, limits)))
    if valid.exact is None:
        valid = replace(valid, stopped=run.why(valid.stopped))
    removed: dict[int, Removed] = {}
    stopped = valid.stopped
    try:
        _count_removed(asked.problem, valid.exact, removed, run)
    except LimitReachedError as error:
        stopped = run.why(error)
    return Section(asked, valid, removed=removed, stopped=stopped, fastest=fastest_of(asked, run.limits()))


def _count_removed(problem: Problem, total: int | None, removed: dict[int, Removed], run: Run) -> None:
    """Counts rule by rule what each removes, as far as the limits let it.

    Raises:
        LimitReachedError: When a limit left something open; what was counted by then is in `removed`.
    """
    rules, budget = (*problem.constraints, *problem.estimates), Budget(run.limits())
    left_open: LimitReachedError | None = None
    for place, rule in enumerate(rules):
        run.progress.say(f"rule {place + 1} of {len(rules)}", place, len(rules))
        alone = only = None
        try:
            alone = removes_alone(problem, rule, budget)
            only = None if total is None else removes_only(problem, rule, total, budget)
        except LimitReachedError as error:
            left_open = left_open or error
        if alone is not None:
            removed[id(rule)] = alone, only
        if run.reason():
            break
    if left_open is not None or len(removed) < len(rules):
        raise left_open or LimitReachedError(run.reason())


def _nothing_fits(question: Question, sections: list[Section]) -> InfeasibleError:
    """The error that says of every kernel why it has no configuration, and its ways out."""
    head, last = question.asked[0].has_none, sections[-1]
    if not question.several:
        return InfeasibleError(f"{head} {last.advice}", last.conflict)
    texts = [f"{section.asked.kernel}: {section.advice}" for section in sections]
    by_kernel = {section.asked.kernel: section.conflict for section in sections}
    return InfeasibleError("\n".join([head, *texts, *question.notes]), last.conflict, by_kernel)


def _document(section: Section) -> dict[str, Any]:
    asked, request = section.asked, section.asked.request
    document: dict[str, Any] = {"title": asked.title}
    if request is not None:
        document |= {
            "kernel": asked.kernel,
            "gpu": request.gpu.name,
            "sizes": dict(request.workload.sizes),
            "dtype": request.workload.dtype,
        }
    document |= {
        "num_product": asked.problem.num_combinations,
        "num_valid": section.valid.exact,
        **as_bounds(section.valid),
        "parameters": _parameters(asked),
        "rules": _rules(section),
        "constants": _constants(asked),
    }
    if section.stopped:
        document["stopped"] = section.stopped
    if section.fastest:
        document["fastest"] = [one.document() for one in section.fastest]
    if section.reason:
        members = section.conflict.members if section.conflict is not None else ()
        document["conflict"] = [{"rule": member.text, "because": member.because} for member in members]
        document["ways_out"] = section.ways_out
    return document


def _constants(asked: Asked) -> dict[str, int]:
    """The named numbers in the rules, with their values."""
    used = [named_constants(rule) for rule in asked.problem.constraints]
    return {**asked.problem.constants, **{name: number for numbers in used for name, number in numbers.items()}}


def _rules(section: Section) -> list[dict[str, Any]]:
    asked = section.asked
    rules = []
    for rule in (*asked.problem.constraints, *asked.problem.estimates):
        alone, only = section.removed.get(id(rule), (None, None))
        named = {"name": rule.name, "kind": kind_of(asked, rule), "rule": str(rule), "because": rule.because}
        prunes = not any(rule is estimate for estimate in asked.problem.estimates)
        rules.append({**named, "prunes": prunes, "removes_alone": alone, "removes_only": only})
    return rules


def _parameters(asked: Asked) -> list[dict[str, Any]]:
    if asked.request is not None:
        params = asked.request.spec.params(asked.request.gpu, asked.request.workload)
        return [{"name": p.name, "values": list(p.values), "meaning": p.meaning, "because": p.because} for p in params]
    return [
        {
            "name": name,
            "values": list(domain.labels or domain) if domain.size <= MAX_VALUES else None,
            "meaning": "",
            "because": domain.because,
            "lower": domain.lower if domain.labels is None else None,
            "upper": domain.upper if domain.labels is None else None,
            "num_values": domain.size,
        }
        for name, domain in asked.problem.variables.items()
    ]


def _values(parameter: dict[str, Any]) -> str:
    values = parameter["values"]
    if values is None and parameter["lower"] is None:
        return f"{parameter['num_values']:,} values"
    if values is None:
        return f"{parameter['lower']:,} .. {parameter['upper']:,} ({parameter['num_values']:,} values)"
    if not all(type(value) is int for value in values):
        return " ".join(map(literal, values))
    ordered = sorted(values)
    step = ordered[1] - ordered[0] if len(ordered) > 1 else 0
    if len(ordered) > 12 and ordered == list(range(ordered[0], ordered[-1] + 1, step)):
        return f"{ordered[0]} .. {ordered[-1]}" + (f" step {step}" if step > 1 else "")
    return " ".join(map(str, ordered))


def _print(section: Section, document_of: Callable[[], dict[str, Any]], draw: Callable[[Table], None]) -> None:
    say(wrap(section.asked.title))
    if not section.asked.problem.variables:
        say(f"no parameters: there is one way to run it{_time(section.asked)}")
        return
    say(wrap(f"{section.asked.problem.num_combinations:,} configs in the full product, {section.valid} valid"))
    if section.reason:
        for line in section.advice.splitlines():
            say(wrap(line.lstrip(), line[: len(line) - len(line.lstrip())]))
        return
    say()
    document = document_of()
    say("parameters")
    draw(_parameter_table(document["parameters"]))
    if document["rules"]:
        _print_rules(document, draw)
    if section.fastest:
        say()
        say("the fastest by prediction, and what makes it so")
        draw(table_of(section.fastest))


def _parameter_table(parameters: list[dict[str, Any]]) -> Table:
    """Names, values and meanings; where nobody said what they mean, why they have these values."""
    said = "meaning" if any(p["meaning"] for p in parameters) else "because"
    columns = (
        Column("name", is_text=True, importance=100),
        Column("values", is_text=True, wraps=True, importance=90),
        Column(said, is_text=True, wraps=True, importance=80),
    )
    return Table(columns, [[p["name"], _values(p), p[said] or None] for p in parameters])


def _print_rules(document: dict[str, Any], draw: Callable[[Table], None]) -> None:
    say()
    say(wrap("rules, by how many configs of the full product each removes on its own"))
    ordered = sorted(document["rules"], key=lambda r: -(r["removes_alone"] or 0))
    heading = "estimated rules, which rank and leave nothing out (--strict lets them)"
    for prunes in (True, False):
        some = [r for r in ordered if r["prunes"] is prunes]
        if some and not prunes:
            say()
            say(wrap(heading))
        if some:
            draw(Table(RULES, list(_rule_rows(document | {"rules": some}))))
    say()
    say(wrap("alone: share of the full product that breaks the rule; only it: configs that break no other rule"))
    if document["constants"]:
        values = ", ".join(f"{name} = {number:,}" for name, number in document["constants"].items())
        say(wrap(f"where {values}"))
    words = [f"{kind}: {KINDS[kind]}" for kind in dict.fromkeys(r["kind"] for r in ordered) if kind]
    if words:
        say(wrap("; ".join(words)))


def _rule_rows(document: dict[str, Any]) -> Iterator[list[Any]]:
    """The rules of one space, in the order of `RULES`."""
    product = document["num_product"]
    for rule in document["rules"]:
        alone = rule["removes_alone"]
        shown = None if alone is None else Cell(alone, f"{alone / product:.1%}")
        told = [document.get("kernel"), rule["name"] or None, Cell(rule["rule"], rule["name"] or rule["rule"])]
        yield [*told, rule["kind"] or None, shown, rule["removes_only"], rule["because"] or None, rule["prunes"]]


def _time(asked: Asked) -> str:
    """The predicted time of a kernel that has nothing to choose."""
    if asked.request is None:
        return ""
    seconds = float(predict(asked.request.spec, asked.request.gpu, asked.request.workload, {}).seconds[0])
    return f", in {1e6 * seconds:,.1f} us (modelled)"
