"""Wires a run of `constrint propose`: who answers, where candidates are measured, and where all of it is kept."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from constrint.cli.compiling import compile_shown
from constrint.cli.propose.asked import Asked
from constrint.cli.propose.progress import Progress, say
from constrint.cli.propose.report import Outcome, print_dry_run, print_outcomes
from constrint.cli.propose.speaking import Speaking, built_in
from constrint.cli.propose.target import Target, target_of
from constrint.cli.records_selection import opened
from constrint.cli.tune import goals_of_choice
from constrint.errors import UsageError
from constrint.kernels.registry import DEFAULT_KERNEL, code_of, importable_name, load_spec
from constrint.propose.builtin import BuiltInProposer
from constrint.propose.llm.answer import Question
from constrint.propose.records import Ranked
from constrint.propose.resolve import Resolver
from constrint.propose.rounds.configs import Plan, Rounds, run_modelled
from constrint.propose.rounds.gates import NUM_INPUTS, CompileGate
from constrint.propose.rounds.measured import SEED_BITS, ProposedSearch
from constrint.propose.rounds.profiler import Profiler, find_ncu
from constrint.propose.rounds.provenance import Provenance, Work
from constrint.tune.engine.interface import Setup
from constrint.tune.search.interface import Task
from constrint.tune.session import Goal, latest
from constrint.tune.store.choices import of_one_code
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import Settings, is_same, records_of

if TYPE_CHECKING:
    from constrint.tune.engine.interface import Engine

#: What launches a candidate for the profiler.
PROFILED = "constrint.cli.propose.profiled"
#: Trials of a workload for the tuner: the rounds end it, not their number.
NO_LIMIT = 1 << 30


def show(asked: Asked) -> None:
    """Print what would be asked and done; nobody is asked, and nothing is compiled or kept."""
    target = target_of(asked)
    goals = goals_of_choice(asked.choice, target.gpu, None, install=False)
    resolver = Resolver(Task(goals[0].operation, target.gpu, goals[0].workload, fixed=goals[0].fixed))
    said = built_in(resolver).answer(Question(resolver.facts)).text if asked.model is None else ""
    print_dry_run(asked, target, goals, resolver.facts, said)


def run(asked: Asked) -> None:
    """Run the rounds of every workload that is meant, and print what came of them."""
    target = target_of(asked)
    goals = goals_of_choice(asked.choice, target.gpu, None, install=False)
    if target.note:
        say(f"note: {target.note}.")
    with ExitStack() as stack:
        kernel = asked.choice.kernel or DEFAULT_KERNEL
        speaking = Speaking(asked, target.gpu.name, kernel, str(goals[0].workload), BuiltInProposer.name)
        stack.callback(speaking.close)
        store = stack.enter_context(opened(asked.store, is_made=True))
        engine = _engine(asked, target)
        if engine is not None:
            stack.callback(engine.close)
        course = Course(asked, target, speaking, store, engine)
        outcomes: list[Outcome] = []
        for goal in goals:
            outcomes.append(course.run(goal))
            if outcomes[-1].is_interrupted:
                break
    print_outcomes(speaking.header, target, outcomes, speaking.spending, asked.output)


def _engine(asked: Asked, target: Target) -> Engine | None:
    """The devices that measure; None where none does."""
    if not target.devices:
        return None
    if asked.has_profile and find_ncu() is None:
        raise UsageError(
            "--profile needs Nsight Compute, and there is no command ncu on the path; leave --profile out."
        )
    from constrint.tune.engine.process import start_server
    from constrint.tuning import local_engine

    start_server(asked.device)
    setup = Setup(load_spec, target.gpu, asked.device, num_inputs=NUM_INPUTS, has_unusual=True)
    return local_engine(replace(setup.with_patience(asked.timeout_s), seed=secrets.randbits(SEED_BITS)), target.devices)


@dataclass(frozen=True)
class Course:
    """What the workloads of a run share.

    Args:
        asked: The options.
        target: Where candidates are measured.
        speaking: Who answers, and what may be spent.
        store: Where everything is kept.
        engine: The devices; None where the cost model stands in for them.
    """

    asked: Asked
    target: Target
    speaking: Speaking
    store: RecordStore
    engine: Engine | None

    def run(self, goal: Goal) -> Outcome:
        """The rounds of one workload."""
        header = self.speaking.header
        task = Task(goal.operation, self.target.gpu, goal.workload, self._nearby(goal), 0, goal.fixed)
        resolver = Resolver(task)
        speaker = self.speaking.speaker(built_in(resolver))
        provenance = Provenance(header.run, Work.of(task), speaker, self.asked.replay is not None)
        rounds = Rounds(
            resolver,
            speaker,
            CompileGate(task, partial(compile_shown, is_apart=True)),
            Plan(header.rounds, header.trials, self.engine is None, header.judge),
            spending=self.speaking.spending,
            watcher=Progress(provenance, self.store),
            known=self._known(goal),
            profile=self._profile(goal),
        )
        if self.engine is not None:
            return self._measured(goal, rounds, self.engine)
        try:
            run_modelled(rounds)
        except KeyboardInterrupt:
            return Outcome(goal, rounds, is_interrupted=True)
        return Outcome(goal, rounds)

    def _measured(self, goal: Goal, rounds: Rounds, engine: Engine) -> Outcome:
        """The same on devices: the tuner carries the candidates there, and publishes the winner."""
        from constrint.tuning import tune

        search = ProposedSearch(rounds)
        settings = Settings(
            self.target.gpu,
            lambda task: search,
            NO_LIMIT,
            self.speaking.left_s(),
            resume=self.asked.resume,
            run=self.speaking.header.run,
        )
        report = tune([goal], settings, engine, self.store, search)
        tuned = report.tuned[0] if report.tuned else None
        return Outcome(goal, rounds, tuned, report.is_interrupted)

    def _profile(self, goal: Goal) -> Callable[[Ranked], Mapping[str, float]] | None:
        """What takes metrics of candidates; None where that was not asked, or nothing is measured."""
        ncu = find_ncu()
        if not self.asked.has_profile or self.engine is None or ncu is None:
            return None
        gpu = self.asked.choice.gpu or self.target.gpu.name
        profiler = Profiler(ncu, PROFILED, goal.workload, gpu, self.asked.device)

        def profile(candidate: Ranked) -> Mapping[str, float]:
            metrics = profiler(candidate, importable_name(goal.operation.spec(candidate.kernel)))
            if profiler.problem:
                say(f"note: {profiler.problem}.")
            return metrics

        return profile

    def _nearby(self, goal: Goal) -> Sequence[TuningRecord]:
        """Records of other workloads by the kernels of today."""
        found = self.store.find(operation=goal.workload.operation, gpu=self.target.gpu.name)
        return [record for record in of_one_code(found, code_of) if record.workload != goal.workload]

    def _known(self, goal: Goal) -> Sequence[TuningRecord]:
        """What need not be measured again."""
        if self.engine is None or not self.asked.resume:
            return ()
        found = records_of(self.store, goal, self.target.gpu, self.engine.toolchain)
        return latest(one for one in found if is_same(goal, one))
