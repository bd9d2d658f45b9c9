"""Tests that cost much take turns: a run with `--in-turn` has a part of their cases, and the next commit another part.

`tests/costs.csv` lists each test function whose cases cost more than `ALLOWED_S` together, as `--write-costs`
measured it: their CPU time or, since processes that outlive a test hide theirs, half of their wall time. The cases of
such a function are dealt to as many turns as it takes to stay near that time, at most `MOST_TURNS`, and the commit says
whose turn it is. Every case of a test file that the commit changed runs. Without `--in-turn`, which `make test` and
continuous integration set, every case runs.
"""

from __future__ import annotations

import csv
import math
import os
import resource
import subprocess
import time
import zlib
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
COSTS = TESTS / "costs.csv"
#: Seconds that the cases of one function may cost in one run, and in how many turns they run at most.
ALLOWED_S, MOST_TURNS = 1.0, 8
#: What a report says of its test's cost.
PROPERTY = "cost"
#: Names the turn, to repeat the run of another commit.
TURN_VARIABLE = "CONSTRINT_TESTS_TURN"
#: Names the seed of what tests draw; without it, every run has the same numbers.
SEED_VARIABLE = "CONSTRINT_TESTS_SEED"


@dataclass(frozen=True)
class Cost:
    """What all cases of one test function took.

    Args:
        cases: How many cases it has.
        seconds: Their CPU time, that of ended child processes included, or half of their wall time if that is more.
    """

    cases: int
    seconds: float

    @property
    def turns(self) -> int:
        """In how many turns the cases run."""
        return min(MOST_TURNS, max(1, math.ceil(self.seconds / ALLOWED_S)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options of this file."""
    group = parser.getgroup("turns")
    group.addoption("--in-turn", action="store_true", help="run the cases of costly tests whose turn this commit is")
    group.addoption(
        "--write-costs", action="store_true", help="write what the tests of this run cost to tests/costs.csv"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Costs are summed up where reports arrive."""
    if config.getoption("write_costs"):
        config.pluginmanager.register(_Costs(), "costs")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Says which part of the tests runs, and with which seed where one is set."""
    lines = []
    if SEED_VARIABLE in os.environ:
        lines.append(f"tests draw with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}")
    turn = turn_of_commit() if config.getoption("in_turn") else None
    if turn is not None:
        costs = read_costs().values()
        run = sum(cost.cases / cost.turns for cost in costs)
        lines.append(
            f"turn {turn}: of {len(costs)} functions that cost over {ALLOWED_S:g} s (tests/costs.csv), "
            f"about {run:.0f} of {sum(cost.cases for cost in costs)} cases run; `make test-all` runs every case"
        )
    return lines


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases whose turn it is not."""
    turn = turn_of_commit() if config.getoption("in_turn") else None
    if turn is None:
        return
    costs, changed = read_costs(), changed_files()
    names = [item.nodeid for item in items]
    kept = set(cases_of_turn(names, {n: c for n, c in costs.items() if _file_of(n) not in changed}, turn))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def cases_of_turn(names: Sequence[str], costs: dict[str, Cost], turn: int) -> list[str]:
    """The cases that run in one turn.

    Args:
        names: Names of cases as pytest writes them, in its order.
        costs: What functions cost, by their names; all cases of a function that is missing run.
        turn: Which turn it is.
    """
    seen: dict[str, int] = defaultdict(int)
    kept = []
    for name in names:
        function = _function_of(name)
        # Functions of one case each do not all have the same turn.
        number = seen[function] + zlib.crc32(function.encode())
        seen[function] += 1
        turns = costs[function].turns if function in costs else 1
        if number % turns == turn % turns:
            kept.append(name)
    return kept


@cache
def turn_of_commit() -> int | None:
    """Which turn it is: a number that the checked-out commit gives, or None outside of a repository."""
    if TURN_VARIABLE in os.environ:
        return int(os.environ[TURN_VARIABLE])
    commit = _git("rev-parse", "HEAD")
    return int(commit[:8], 16) if commit else None


@cache
def changed_files() -> frozenset[str]:
    """The files that differ from the commit before this one, where that one is known."""
    return frozenset(_git("diff", "--name-only", "HEAD~1").splitlines())


def read_costs(path: Path = COSTS) -> dict[str, Cost]:
    """Costs by the name of the test function."""
    with path.open(newline="") as lines:
        return {row["function"]: Cost(int(row["cases"]), float(row["seconds"])) for row in csv.DictReader(lines)}


def write_costs(costs: dict[str, Cost], path: Path = COSTS) -> None:
    """Write those that cost more than is allowed in one run, the most expensive first."""
    with path.open("w", newline="") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(("function", "cases", "seconds"))
        for name, cost in sorted(costs.items(), key=lambda item: -item[1].seconds):
            if cost.turns > 1:
                rows.writerow((name, cost.cases, f"{cost.seconds:.1f}"))


class _Costs:
    """Measures every test where it runs, and writes the sums in the process that gathers reports."""

    def __init__(self) -> None:
        self._begun = 0.0, 0.0
        self._cases: dict[str, dict[str, float]] = defaultdict(dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._begun = _cpu_s(), time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            cost = max(_cpu_s() - self._begun[0], (time.monotonic() - self._begun[1]) / 2)
            report.user_properties.append((PROPERTY, cost))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY:
                self._cases[_function_of(report.nodeid)][report.nodeid] = float(str(value))

    def pytest_sessionfinish(self) -> None:
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        measured = {name: Cost(len(cases), sum(cases.values())) for name, cases in self._cases.items()}
        # What did not run in this session keeps its costs; cheap functions drop out.
        write_costs((read_costs() if COSTS.exists() else {}) | measured)


def _function_of(name: str) -> str:
    return name.split("[", 1)[0]


def _file_of(name: str) -> str:
    return name.split("::", 1)[0]


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=TESTS, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
