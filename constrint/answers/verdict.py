"""Verdicts about given configurations: the rules that one breaks, and predicted figures beside compiled ones."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from constrint.answers.question import Question, StatedProblem, kind_of
from constrint.answers.ranking import ConfigColumns, registers_cell, spill_text, time_text
from constrint.answers.table import EXTRA, Cell, Column, Page, Table, pairs_text
from constrint.answers.terminal import say, wrap
from constrint.hwmodels import GpuModel
from constrint.model import Var
from constrint.select import Candidate, ResourceUse
from constrint.select.core_space import chance_of
from constrint.select.toolchain import caution, is_verified
from constrint.solve import BrokenRule, WhyNot


class RuleVerdict(msgspec.Struct):
    """A broken rule: `seen` is the rule with its numbers, `20480 <= 16384 is false`."""

    name: str
    kind: str
    rule: str
    because: str
    seen: str
    values: dict[str, Any]

    @classmethod
    def of(cls, stated: StatedProblem, broken: BrokenRule) -> RuleVerdict:
        """The verdict about a rule, or about a parameter's domain."""
        name, kind = broken.variable, ""
        if broken.constraint is not None:
            name, kind = broken.constraint.name, kind_of(stated, broken.constraint)
        return cls(name, kind, broken.text, broken.because, broken.seen, dict(broken.values))


class ConfigVerdict(msgspec.Struct, kw_only=True):
    """The verdict about a configuration, as `constrint why-not --json` prints it.

    Args:
        kernel: The kernel's full name; absent if the question has a single one.
        title: The problem in a line.
        config: The configuration.
        valid: Whether it breaks no pruning rule.
        broken, doubts: The pruning rules and the estimated rules that it breaks.
        spill_chance: The estimated chance that it spills; None for a file.
        changes: For each parameter the values with which the configuration is valid.
        together: Where there is none, the fewest changes that are enough together; absent elsewhere.
    """

    kernel: str | UnsetType = UNSET
    title: str
    config: dict[str, Any]
    valid: bool
    broken: list[RuleVerdict]
    doubts: list[RuleVerdict]
    spill_chance: float | None
    changes: dict[str, list[Any]]
    together: dict[str, Any] | UnsetType = UNSET

    @classmethod
    def of(cls, stated: StatedProblem, answer: WhyNot, *, names_kernel: bool) -> ConfigVerdict:
        """The verdict of one problem."""
        return cls(
            kernel=stated.kernel if names_kernel else UNSET,
            title=stated.title,
            config=dict(answer.config),
            valid=not answer,
            broken=[RuleVerdict.of(stated, broken) for broken in answer],
            doubts=[RuleVerdict.of(stated, broken) for broken in answer.doubts],
            spill_chance=_chance(stated, answer),
            changes={name: list(values) for name, values in answer.changes.items()},
            together=answer.together or UNSET,
        )


def _chance(stated: StatedProblem, answer: WhyNot) -> float | None:
    """The chance that the configuration spills; None for a file, and for a value outside the domains."""
    request, config = stated.request, answer.config
    if request is None or any(config[name] not in domain for name, domain in stated.problem.variables.items()):
        return None
    use = request.spec.use(request.gpu, request.workload, {name: Var(name) for name in config})
    if use is None:
        return None
    return chance_of(request.gpu, use, stated.problem.estimates, config)


def print_verdict(verdict: ConfigVerdict, ways_out: str, arguments: Sequence[str]) -> None:
    """Print a verdict on a terminal.

    Args:
        verdict: The verdict.
        ways_out: The changes that help, in a sentence; empty without any.
        arguments: The words that ask another command the same question.
    """
    say(wrap(f"{verdict.title}: {pairs_text(verdict.config)}"))
    if verdict.broken:
        say(f"breaks {_rules(verdict.broken)}")
        for rule in verdict.broken:
            _print_rule(rule)
        if ways_out:
            say()
            say(wrap(ways_out))
    else:
        say("valid: it breaks no rule that prunes" if verdict.doubts else "valid: no rule is broken")
    if verdict.doubts:
        say()
        say(wrap(f"{_rules(verdict.doubts, 'estimated ')} would leave it out, with --strict:"))
        for rule in verdict.doubts:
            _print_rule(rule)
    chance = verdict.spill_chance
    if chance is not None and (verdict.doubts or not verdict.broken):
        settings = [word for name, value in verdict.config.items() for word in ("--set", f"{name}={value}")]
        say()
        text = "less than 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"
        say(wrap(f"estimated chance that its registers spill to memory: {text}"))
        say(f"to know: {shlex.join(('constrint', 'verify', *arguments, *settings))}")


def _rules(rules: Sequence[RuleVerdict], kind: str = "") -> str:
    return f"{len(rules)} {kind}rule{'s' if len(rules) > 1 else ''}"


def _print_rule(rule: RuleVerdict) -> None:
    say()
    titled = f"{rule.name} ({rule.kind})" if rule.name and rule.kind else rule.name
    say(wrap(f"{titled}: {rule.rule}" if titled else rule.rule, "  "))
    where = ", ".join(f"{name} = {value}" for name, value in rule.values.items())
    say(wrap(f"{rule.seen} ({where})", "    "))
    if rule.because:
        say(wrap(f"because {rule.because}", "    "))


@dataclass(frozen=True)
class Verified:
    """One configuration before and after compilation.

    Args:
        place: The place by prediction, from 1.
        before: The prediction.
        after: The same with the compiler's resources; its problem is that of both.
    """

    place: int
    before: Candidate
    after: Candidate

    @property
    def problem(self) -> str:
        """The reason why the compiled kernel cannot run or spills; empty without one."""
        return self.after.problem


class ModelledBlock(msgspec.Struct):
    """Predicted resources of a block, and the predicted time."""

    smem_bytes_per_block: int
    registers_per_thread: int
    registers_error_percent: int
    spill_chance: float
    blocks_per_sm: int
    predicted_s: float


class CompiledBlock(msgspec.Struct):
    """Resources of a block as a compiler states them, and the time that follows from them."""

    target: str
    triton_version: str
    is_verified_version: bool
    smem_bytes_per_block: int
    registers_per_thread: int
    spill_bytes_per_thread: int
    blocks_per_sm: int
    instruction: str
    predicted_s: float


class VerifiedConfig(msgspec.Struct):
    """A compiled configuration, as `constrint verify --json` prints it; `compiled` is None if it does not compile."""

    kernel: str
    config: dict[str, Any]
    place_modelled: int
    modelled: ModelledBlock
    compiled: CompiledBlock | None
    problem: str

    @classmethod
    def of(cls, one: Verified) -> VerifiedConfig:
        """The result of one configuration."""
        before, after = one.before.resources, one.after.resources
        assert before is not None
        assert after is not None
        modelled = ModelledBlock(
            before.smem_bytes,
            before.registers_per_thread,
            before.error_percent,
            before.spill_chance,
            before.blocks_per_sm,
            one.before.cost.seconds,
        )
        use, compiled = after.compiled, None
        if use is not None:
            compiled = CompiledBlock(
                use.target,
                use.triton_version,
                is_verified(use.triton_version),
                use.smem_bytes,
                use.registers_per_thread,
                use.spill_bytes,
                after.blocks_per_sm,
                use.instruction,
                one.after.cost.seconds,
            )
        return cls(one.before.kernel, dict(one.before.config), one.place, modelled, compiled, one.problem)


def verified_page(question: Question, verified: Sequence[Verified]) -> Page:
    """The page of compiled configurations, without the JSON document; the items of its table are `Verified`."""
    gpu = question.requests[0].gpu
    figures = _figures(gpu)
    config = ConfigColumns([v.before for v in verified], question.requests, [column.key for column in figures])
    compiled = [v.after.resources.compiled for v in verified if v.after.resources is not None]
    compilers = sorted({use.compiler for use in compiled if use is not None})
    versions = sorted({use.triton_version for use in compiled if use is not None and not use.is_named})
    by = f"compiled by {', '.join(compilers)}" if compilers else "not compiled"
    places = (
        Column("place", "#", meaning="the row's place by the times that follow from what was compiled", importance=100),
        Column("place_modelled", "was", "place by prediction", importance=70),
    )
    rows = [[at, v.place, *config.cells(v.before), *_cells(v)] for at, v in enumerate(verified, 1)]
    problems = [f"row {at}: {v.problem}" for at, v in enumerate(verified, 1) if v.problem]
    return Page(
        Table((*places, *config.columns, *figures), rows, items=verified),
        above=[f"{question.title_of(config.kernels)} ({gpu.arch.target}): modelled / {by}, ranked again"],
        answer=problems,
        below=[*filter(None, map(caution, versions)), _summary(gpu.terms.smem_column, verified)],
    )


def _figures(gpu: GpuModel) -> tuple[Column, ...]:
    """Columns of compiled figures, shown beside the predictions; other formats have columns for the predictions."""
    smem, both = gpu.terms.smem_column, "as modelled / as compiled"
    return (
        Column("smem_bytes_per_block", smem, "bytes a block", f"bytes of {smem} that a block takes, {both}"),
        Column("modelled_smem_bytes_per_block", importance=EXTRA),
        Column("registers_per_thread", "regs", meaning=f"registers a thread, {both}", importance=80),
        Column("modelled_registers_per_thread", importance=EXTRA),
        Column("spill_bytes_per_thread", "spill", "chance / bytes a thread", importance=70),
        Column("modelled_spill_chance", importance=EXTRA),
        Column("blocks_per_sm", "blk", f"blocks {gpu.terms.a_sm}", f"blocks {gpu.terms.a_sm}, {both}", importance=55),
        Column("modelled_blocks_per_sm", importance=EXTRA),
        Column("predicted_s", "us", "predicted time, still modelled", importance=92),
        Column("modelled_s", importance=EXTRA, show=time_text),
        Column("instruction", "compiled to", meaning="the matrix instruction", is_text=True, wraps=True, importance=60),
        Column("problem", meaning="what is wrong with it", is_text=True, wraps=True, importance=EXTRA),
    )


def _cells(one: Verified) -> list[Any]:
    """The cells of `_figures`: compiled and predicted in turn."""
    before, after = one.before.resources, one.after.resources
    assert before is not None
    assert after is not None
    use, problem = after.compiled, one.problem or None
    was = (before.smem_bytes, before.registers_per_thread, before.spill_chance, before.blocks_per_sm)
    if use is None:
        shown = (str(was[0]), registers_cell(before).text, spill_text(before), str(was[3]))
        cells = [cell for text, value in zip(shown, was, strict=True) for cell in (Cell(None, text), value)]
        return [*cells, None, one.before.cost.seconds, Cell(None, "refused"), problem]
    same_smem = before.smem_bytes == use.smem_bytes
    smem = str(use.smem_bytes) if same_smem else f"{before.smem_bytes}/{use.smem_bytes}"
    times = (one.before.cost.seconds, one.after.cost.seconds)
    return [
        Cell(use.smem_bytes, smem),
        was[0],
        Cell(use.registers_per_thread, f"{before.registers_per_thread}/{use.registers_per_thread}"),
        was[1],
        Cell(use.spill_bytes, f"{spill_text(before)}/{spill_text(after)}"),
        was[2],
        Cell(after.blocks_per_sm, f"{before.blocks_per_sm}/{after.blocks_per_sm}"),
        was[3],
        Cell(times[1], "/".join(map(time_text, times))),
        times[0],
        Cell(
            use.instruction or None,
            use.instruction or ("as its source says" if use.is_named else "no matrix instruction"),
        ),
        problem,
    ]


def _summary(smem: str, verified: Sequence[Verified]) -> str:
    """The errors of the model in one sentence."""
    pairs: list[tuple[ResourceUse, ResourceUse]] = [
        (v.before.resources, v.after.resources)
        for v in verified
        if v.before.resources is not None and v.after.resources is not None and v.after.resources.compiled is not None
    ]
    problems = sum(bool(one.problem) for one in verified)
    if not pairs:
        return f"{problems} of {len(verified)} with a problem"
    exact = sum(before.smem_bytes == after.smem_bytes for before, after in pairs)
    errors = sorted(abs(before.registers_per_thread / after.registers_per_thread - 1) for before, after in pairs)
    return (
        f"{smem} exact for {exact} of {len(pairs)}; registers off by {errors[len(errors) // 2]:.0%} (median); "
        f"{sum(after.spill_chance for _, after in pairs):.0f} of {len(pairs)} spill "
        f"(expected {sum(before.spill_chance for before, _ in pairs):.1f}), {problems} with a problem"
    )
