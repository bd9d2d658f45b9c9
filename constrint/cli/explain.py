"""`constrint explain`: why a space is as it is - per rule what it removes - or why nothing fits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from constrint.cli.kernel_options import Choice, Json, KernelCommand
from constrint.cli.output import print_json, print_table, say, wrap
from constrint.cli.question import Asked, Question
from constrint.cli.request import question_of
from constrint.cli.rules import YOURS, kind_of
from constrint.cli.ways_out import ways_out
from constrint.errors import InfeasibleError, LimitReachedError
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.model.values import literal
from constrint.select.rank import predict, reason_of
from constrint.solve import Conflict, SearchSpace, enumerate_space, pruning, would_remove

SCHEMA = "constrint.explain/1"
#: What a rule is worth, in the words of the table.
KINDS = {
    CERTAIN: "what breaks it cannot run",
    REDUNDANT: "what breaks it runs, but does the work of another config",
    ESTIMATED: "it may be wrong",
    YOURS: "asked for",
}
#: Larger domains are described by their bounds.
MAX_VALUES = 4096
#: A longer rule is shortened in the table; `--json` has all of it.
MAX_TEXT = 60


@dataclass(frozen=True)
class Section:
    """What is said of one kernel, or of the file.

    Args:
        asked: The problem.
        space: Its solutions.
        reason: Why there is none; empty where there is one.
        conflict: The rules that cannot hold together.
        ways_out: Changes that would help.
    """

    asked: Asked
    space: SearchSpace
    reason: str = ""
    conflict: Conflict | None = None
    ways_out: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """Why nothing fits, and what would."""
        return "\n  ".join([f"{self.reason}\nNearest ways out:", *self.ways_out]) if self.ways_out else self.reason


@KernelCommand
def explain(choice: Choice, json: Json = False) -> None:
    """Say per rule how many configurations it removes; for an infeasible request, the conflict and the way out."""
    question = question_of(choice)
    sections = [_section(asked) for asked in question.asked]
    if all(section.reason for section in sections):
        raise _nothing_fits(question, sections)
    if json:
        print_json({"schema": SCHEMA, "results": [_document(section) for section in sections]})
        return
    for place, section in enumerate(sections):
        if place:
            say("\n")
        _print(section)
    for note in question.notes:
        say()
        say(wrap(note))


def _section(asked: Asked) -> Section:
    space = enumerate_space(asked.problem)
    if space.size:
        return Section(asked, space)
    reason, conflict = reason_of(asked.problem, is_kernel=asked.request is not None)
    return Section(asked, space, reason, conflict, tuple(ways_out(asked, conflict)))


def _nothing_fits(question: Question, sections: list[Section]) -> InfeasibleError:
    """The error that says of every kernel why it has no configuration, and its ways out."""
    head, last = question.asked[0].has_none, sections[-1]
    if not question.several:
        return InfeasibleError(f"{head} {last.advice}", last.conflict)
    texts = [f"{section.asked.kernel}: {section.advice}" for section in sections]
    return InfeasibleError("\n".join([head, *texts, *question.notes]), last.conflict)


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
        "num_product": section.space.product_size,
        "num_valid": section.space.size,
        "parameters": _parameters(asked),
        "rules": _rules(asked),
    }
    if section.reason:
        members = section.conflict.members if section.conflict is not None else ()
        document["conflict"] = [{"rule": member.text, "because": member.because} for member in members]
        document["ways_out"] = section.ways_out
    return document


def _rules(asked: Asked) -> list[dict[str, Any]]:
    try:
        counts = {id(f.constraint): (f.removes_alone, f.removes_only) for f in pruning(asked.problem)}
        counts |= {id(f.constraint): (f.removes_alone, f.removes_only) for f in would_remove(asked.problem)}
    except LimitReachedError as error:
        print(f"note: what each rule removes is not counted: {error}", file=sys.stderr)
        counts = {}
    rules = []
    for rule in (*asked.problem.constraints, *asked.problem.estimates):
        alone, only = counts.get(id(rule), (None, None))
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


def _print(section: Section) -> None:
    say(wrap(section.asked.title))
    if not section.asked.problem.variables:
        say(f"no parameters: there is one way to run it{_time(section.asked)}")
        return
    say(wrap(f"{section.space.product_size:,} configs in the full product, {section.space.size:,} valid"))
    if section.reason:
        for line in section.advice.splitlines():
            say(wrap(line.lstrip(), line[: len(line) - len(line.lstrip())]))
        return
    say()
    document = _document(section)
    product, parameters, rules = document["num_product"], document["parameters"], document["rules"]
    say("parameters")
    titles = ["name", "values", "meaning" if any(p["meaning"] for p in parameters) else "because"]
    print_table(titles, [[p["name"], _values(p), p[titles[2]]] for p in parameters], left=titles)
    if not rules:
        return
    say()
    say("rules, by how many configs of the full product each removes on its own")
    ordered = sorted(rules, key=lambda r: -(r["removes_alone"] or 0))
    for heading, prunes in (
        ("", True),
        ("estimated rules, which rank and leave nothing out (--strict lets them)", False),
    ):
        some = [r for r in ordered if r["prunes"] is prunes]
        if not some:
            continue
        if heading:
            say()
            say(wrap(heading))
        kinds = any(r["kind"] for r in some)
        rows = [[_rule(r), *([r["kind"]] * kinds), *_removed(r, product), r["because"]] for r in some]
        titles = ["rule", *(["kind"] * kinds), "alone", "only it", "because"]
        print_table(titles, rows, left=("rule", "kind", "because"))
    say()
    say(wrap("alone: share of the full product that breaks the rule; only it: configs that break no other rule"))
    words = [f"{kind}: {KINDS[kind]}" for kind in dict.fromkeys(r["kind"] for r in ordered) if kind]
    if words:
        say(wrap("; ".join(words)))


def _time(asked: Asked) -> str:
    """The predicted time of a kernel that has nothing to choose."""
    if asked.request is None:
        return ""
    seconds = float(predict(asked.request.spec, asked.request.gpu, asked.request.workload, {}).seconds[0])
    return f", in {1e6 * seconds:,.1f} us (modelled)"


def _rule(rule: dict[str, Any]) -> str:
    text: str = rule["name"] or rule["rule"]
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _removed(rule: dict[str, Any], product: int) -> tuple[str | None, str | None]:
    if rule["removes_alone"] is None:
        return None, None
    return f"{rule['removes_alone'] / product:.1%}", f"{rule['removes_only']:,}"
