"""The explanation of a space: its parameters, its rules with what each removes, or the conflict and the ways out.

`Explanation` is a result of `constrint explain --json`. `rule_table` and the other tables print one on a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from constrint.answers.question import YOURS, StatedProblem, kind_of
from constrint.answers.table import EXTRA, Cell, Column, Table
from constrint.answers.terminal import say, wrap
from constrint.errors import ConstrintError, InfeasibleError, LimitReachedError, RulesInConflict
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.model.domain import literal
from constrint.model.problem import named_constants
from constrint.select.rank import KernelProblem, predict, rank_requests
from constrint.select.spec import Operation
from constrint.solve import Conflict, Count, Limits

CONFLICT_SCHEMA = "constrint.infeasible/1"
#: The word for a rule of a kernel that states no kind.
STATED = "stated"
#: The kinds of rules in the words of the table.
KINDS = {
    CERTAIN: "what breaks it cannot run",
    REDUNDANT: "what breaks it runs, but does the work of another config",
    ESTIMATED: "it may be wrong",
    YOURS: "asked for",
    STATED: "its kernel asks for it, and does not say what breaks it",
}
#: The columns of rules; the keys are fields of `RuleEffect`, and the kernel.
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
#: Largest domain whose values are listed; a larger one is described by its bounds.
MAX_VALUES = 4096
#: Fewest values of a regular domain that a table prints as a range.
LEAST_RANGE = 13
#: The sets of configurations of which one is the fastest.
OF_ASKED, OF_ALL = "as asked", "of all"

#: Configurations that break a rule, and those that break it and no other; None if they were not counted.
Removed = tuple[int, int | None]


class CountBounds(msgspec.Struct):
    """The number of solutions of a problem; the bounds are absent from a complete count."""

    num_valid: int | None
    at_least: int | UnsetType = UNSET
    at_most: int | UnsetType = UNSET
    searched: float | UnsetType | None = UNSET
    stopped: str | UnsetType = UNSET

    @classmethod
    def of(cls, counted: Count) -> CountBounds:
        """The bounds of a count."""
        if counted.exact is not None:
            return cls(counted.exact)
        return cls(None, counted.at_least, counted.at_most, counted.searched, counted.stopped)

    def fields(self) -> dict[str, Any]:
        """The fields by name, without absent ones."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}


class ParameterDomain(msgspec.Struct):
    """A parameter and its values; `values` is None for a large domain, and only files state bounds."""

    name: str
    values: list[Any] | None
    meaning: str
    because: str
    lower: int | UnsetType | None = UNSET
    upper: int | UnsetType | None = UNSET
    num_values: int | UnsetType = UNSET


class RuleEffect(msgspec.Struct):
    """A rule and the configurations that it removes; None if they were not counted."""

    name: str
    kind: str
    rule: str
    because: str
    prunes: bool
    removes_alone: int | None
    removes_only: int | None


class Fastest(msgspec.Struct):
    """The configuration with the least predicted time, as asked or of all, and the figures that explain it."""

    of: str
    config: dict[str, int]
    seconds: float
    figures: dict[str, float]


class ConflictRule(msgspec.Struct):
    """A rule of a conflict: rules that cannot hold together."""

    rule: str
    because: str


class Explanation(msgspec.Struct, kw_only=True):
    """The explanation of one space, as `constrint explain --json` prints it.

    Args:
        title: The kernel, its workload and the GPU; or the file.
        kernel, gpu, sizes, dtype: The same as data; absent for a file.
        num_product: Configurations in the full product.
        num_valid: Valid configurations; None if a limit ended the count.
        at_least, at_most, searched: Bounds of `num_valid` in that case.
        stopped: The reason why counting ended early.
        parameters, rules: The parameters, and the rules with what each removes.
        constants: The named numbers in the rules.
        fastest: The fastest configurations by prediction, of kernels that state figures.
        conflict, ways_out: Without a valid configuration, the rules in conflict and the nearest changes that help.
    """

    title: str
    kernel: str | UnsetType = UNSET
    gpu: str | UnsetType = UNSET
    sizes: dict[str, int] | UnsetType = UNSET
    dtype: str | UnsetType = UNSET
    num_product: int
    num_valid: int | None
    at_least: int | UnsetType = UNSET
    at_most: int | UnsetType = UNSET
    searched: float | UnsetType | None = UNSET
    parameters: list[ParameterDomain]
    rules: list[RuleEffect]
    constants: dict[str, int]
    stopped: str | UnsetType = UNSET
    fastest: list[Fastest] | UnsetType = UNSET
    conflict: list[ConflictRule] | UnsetType = UNSET
    ways_out: list[str] | UnsetType = UNSET


@dataclass(frozen=True)
class Section:
    """The findings about one problem, from which its explanation is made.

    Args:
        stated: The problem.
        valid: The number of solutions.
        reason: The reason why no configuration is valid; empty if one is.
        conflict: The rules that cannot hold together.
        ways_out: Changes that would help.
        removed: The number of configurations that each counted rule removes, by the rule's `id`.
        stopped: The reason why counting ended early; empty after a complete count.
        fastest: The fastest configurations by prediction.
    """

    stated: StatedProblem
    valid: Count
    reason: str = ""
    conflict: Conflict | None = None
    ways_out: tuple[str, ...] = ()
    removed: Mapping[int, Removed] = field(default_factory=dict)
    stopped: str = ""
    fastest: tuple[Fastest, ...] = ()

    @property
    def advice(self) -> str:
        """The reason why nothing fits, with the nearest ways out."""
        return "\n  ".join([f"{self.reason}\nNearest ways out:", *self.ways_out]) if self.ways_out else self.reason


def explanation_of(section: Section) -> Explanation:
    """The typed explanation of one problem."""
    stated, request = section.stated, section.stated.request
    used = [named_constants(rule) for rule in stated.problem.constraints]
    counted = CountBounds.of(section.valid).fields() | {"stopped": section.stopped or UNSET}
    explanation = Explanation(
        title=stated.title,
        num_product=stated.problem.num_combinations,
        parameters=_parameters(stated),
        rules=_rules(section),
        constants={**stated.problem.constants, **dict(pair for numbers in used for pair in numbers.items())},
        **counted,
    )
    if request is not None:
        explanation.kernel, explanation.gpu = stated.kernel, request.gpu.name
        explanation.sizes, explanation.dtype = dict(request.workload.sizes), request.workload.dtype
    if section.fastest:
        explanation.fastest = list(section.fastest)
    if section.reason:
        members = section.conflict.members if section.conflict is not None else ()
        explanation.conflict = [ConflictRule(member.text, member.because) for member in members]
        explanation.ways_out = list(section.ways_out)
    return explanation


def _rules(section: Section) -> list[RuleEffect]:
    problem, removed = section.stated.problem, section.removed
    estimates = {id(rule) for rule in problem.estimates}
    return [
        RuleEffect(
            rule.name,
            kind_of(section.stated, rule),
            str(rule),
            rule.because,
            id(rule) not in estimates,
            *removed.get(id(rule), (None, None)),
        )
        for rule in (*problem.constraints, *problem.estimates)
    ]


def _parameters(stated: StatedProblem) -> list[ParameterDomain]:
    if stated.request is not None:
        params = stated.request.spec.params(stated.request.gpu, stated.request.workload)
        return [ParameterDomain(p.name, list(p.values), p.meaning, p.because) for p in params]
    return [
        ParameterDomain(
            name,
            list(domain.labels or domain) if domain.size <= MAX_VALUES else None,
            "",
            domain.because,
            domain.lower if domain.labels is None else None,
            domain.upper if domain.labels is None else None,
            domain.size,
        )
        for name, domain in stated.problem.variables.items()
    ]


def fastest_of(stated: StatedProblem, limits: Limits | None = None) -> tuple[Fastest, ...]:
    """The fastest configuration as asked and, if the user added rules, of all; none for kernels without figures."""
    request = stated.request
    if request is None or not request.spec.has_figures or not stated.problem.variables:
        return ()
    rankings = [_fastest(OF_ASKED, replace(request, problem=stated.problem), limits)]
    if any(kind_of(stated, rule) == YOURS for rule in stated.problem.constraints):
        whole = request.spec.problem(request.gpu, request.workload)
        rankings.append(_fastest(OF_ALL, replace(request, problem=whole), limits))
    return tuple(one for one in rankings if one is not None)


def _fastest(of: str, request: KernelProblem, limits: Limits | None) -> Fastest | None:
    spec = request.spec
    try:
        ranking = rank_requests(Operation(spec.full_name, (spec,)), [request], {}, top=1, limits=limits)
    except LimitReachedError:
        return None
    best = ranking.candidates[0]
    figures = spec.figures(request.gpu, request.workload, best.config)
    return Fastest(of, dict(best.config), best.cost.seconds, dict(figures))


def print_section(section: Section, explained: Callable[[], Explanation], draw: Callable[[Table], None]) -> None:
    """Print one problem's explanation on a terminal.

    Args:
        section: The findings.
        explained: Makes the typed explanation; called only if a table needs it.
        draw: Prints a table.
    """
    stated = section.stated
    say(wrap(stated.title))
    if not stated.problem.variables:
        say(f"no parameters: there is one way to run it{_time(stated)}")
        return
    say(wrap(f"{stated.problem.num_combinations:,} configs in the full product, {section.valid} valid"))
    if section.reason:
        for line in section.advice.splitlines():
            say(wrap(line.lstrip(), line[: len(line) - len(line.lstrip())]))
        return
    explanation = explained()
    say()
    say("parameters")
    draw(_parameter_table(explanation.parameters))
    if explanation.rules:
        _print_rules(explanation, draw)
    if section.fastest:
        say()
        say("the fastest by prediction, and what makes it so")
        columns = [Column("figure", is_text=True, importance=100)]
        columns += [Column(one.of, importance=90) for one in section.fastest]
        draw(Table(tuple(columns), list(_fastest_rows(section.fastest))))


def _time(stated: StatedProblem) -> str:
    """The predicted time of a kernel without parameters."""
    if stated.request is None:
        return ""
    seconds = float(predict(stated.request.spec, stated.request.gpu, stated.request.workload, {}).seconds[0])
    return f", in {1e6 * seconds:,.1f} us (modelled)"


def _parameter_table(parameters: Sequence[ParameterDomain]) -> Table:
    """Names, values and meanings; reasons of the values if no parameter has a meaning."""
    attribute = "meaning" if any(p.meaning for p in parameters) else "because"
    columns = (
        Column("name", is_text=True, importance=100),
        Column("values", is_text=True, wraps=True, importance=90),
        Column(attribute, is_text=True, wraps=True, importance=80),
    )
    return Table(columns, [[p.name, _values_text(p), getattr(p, attribute) or None] for p in parameters])


def _values_text(parameter: ParameterDomain) -> str:
    values = parameter.values
    if values is None and parameter.lower is None:
        return f"{parameter.num_values:,} values"
    if values is None:
        return f"{parameter.lower:,} .. {parameter.upper:,} ({parameter.num_values:,} values)"
    if not all(type(value) is int for value in values):
        return " ".join(map(literal, values))
    ordered = sorted(values)
    step = ordered[1] - ordered[0] if len(ordered) > 1 else 0
    if len(ordered) >= LEAST_RANGE and ordered == list(range(ordered[0], ordered[-1] + 1, step)):
        return f"{ordered[0]} .. {ordered[-1]}" + (f" step {step}" if step > 1 else "")
    return " ".join(map(str, ordered))


def _print_rules(explanation: Explanation, draw: Callable[[Table], None]) -> None:
    say()
    say(wrap("rules, by how many configs of the full product each removes on its own"))
    ordered = sorted(explanation.rules, key=lambda rule: -(rule.removes_alone or 0))
    for prunes in (True, False):
        some = [rule for rule in ordered if rule.prunes is prunes]
        if some and not prunes:
            say()
            say(wrap("estimated rules, which rank and leave nothing out (--strict lets them)"))
        if some:
            draw(Table(_rule_columns(explanation), list(rule_rows(explanation, some))))
    say()
    say(wrap("alone: share of the full product that breaks the rule; only it: configs that break no other rule"))
    if explanation.constants:
        values = ", ".join(f"{name} = {number:,}" for name, number in explanation.constants.items())
        say(wrap(f"where {values}"))
    words = [f"{kind}: {KINDS[kind]}" for kind in dict.fromkeys(_kind(explanation, rule) for rule in ordered) if kind]
    if words:
        say(wrap("; ".join(words)))


def _kind(explanation: Explanation, rule: RuleEffect) -> str:
    """The kind of a rule in the words of the table; empty for a rule of a file."""
    return rule.kind or (STATED if explanation.kernel else "")


def _rule_columns(explanation: Explanation) -> tuple[Column, ...]:
    """The columns of a terminal: rules of a file have no kinds."""
    has_kinds = any(_kind(explanation, rule) for rule in explanation.rules)
    return RULES if has_kinds else tuple(replace(c, importance=EXTRA) if c.key == "kind" else c for c in RULES)


def rule_rows(explanation: Explanation, rules: Sequence[RuleEffect]) -> Iterator[list[Any]]:
    """The rows of some rules, in the order of `RULES`."""
    for rule in rules:
        alone = rule.removes_alone
        share = None if alone is None else Cell(alone, f"{alone / explanation.num_product:.1%}")
        named = [explanation.kernel, rule.name or None, Cell(rule.rule, rule.name or rule.rule)]
        yield [*named, _kind(explanation, rule) or None, share, rule.removes_only, rule.because or None, rule.prunes]


def _fastest_rows(fastest: Sequence[Fastest]) -> Iterator[list[Any]]:
    """Parameters that differ, the time and the figures, with a cell for each configuration."""
    for name in fastest[0].config:
        values = [one.config[name] for one in fastest]
        if len(set(values)) > 1 or len(fastest) == 1:
            yield [name, *values]
    yield ["predicted us", *(Cell(1e6 * one.seconds, f"{1e6 * one.seconds:,.1f}") for one in fastest)]
    for name in fastest[0].figures:
        if name not in fastest[0].config:
            yield [name, *(_figure_cell(one.figures[name]) for one in fastest)]


def _figure_cell(value: float) -> Cell:
    if float(value).is_integer():
        return Cell(int(value), f"{int(value):,}")
    return Cell(value, f"{value:.3f}" if abs(value) < 2 else f"{value:,.1f}")


def infeasible_document(error: InfeasibleError) -> dict[str, Any]:
    """The JSON document that a command prints in place of its answer when nothing is valid."""
    return {"schema": CONFLICT_SCHEMA, "error": str(error), **conflict_document(error)}


def conflict_document(error: ConstrintError | None) -> dict[str, Any]:
    """The rules in conflict: of the file or the only kernel, or of each kernel."""
    if not isinstance(error, InfeasibleError):
        return {"conflict": []}
    if len(error.by_kernel) < 2:
        return _members(error.conflict)
    kernels = [{"kernel": name, **_members(conflict)} for name, conflict in error.by_kernel.items()]
    return {"conflict": [], "kernels": kernels}


def _members(conflict: RulesInConflict | None) -> dict[str, Any]:
    """The rules as plain data, and whether fewer would do; empty if the conflict could not be narrowed down."""
    if conflict is None:
        return {"conflict": []}
    rules = [{"rule": m.text, "because": m.because, "variable": m.variable} for m in conflict.members]
    return {"conflict": rules, "is_minimal": conflict.minimal}
