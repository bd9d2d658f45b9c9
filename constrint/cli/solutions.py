"""Solutions of problems: `constrint solve` of a file, `--all`, and the rows of `constrint sample`.

`Solutions` numbers the solutions of several spaces through and streams them in batches of columns; a closed pipe ends
the output early. Kernels have different parameters: a row names its kernel and has `ABSENT` for a missing parameter.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from constrint.answers.layout import pair_lines
from constrint.answers.question import Question, StatedProblem
from constrint.answers.table import Column, Page, Table, counted
from constrint.answers.terminal import printable, terminal_width
from constrint.cli.output import Output
from constrint.cli.run import Run
from constrint.errors import CancelledError, LimitReachedError
from constrint.model import Problem
from constrint.model.domain import literal
from constrint.model.encode import Coding
from constrint.solve import Limits, SearchSpace, Solution, Status, best_solutions, solutions_in_order, solve
from constrint.solve.budget import Budget
from constrint.solve.optimise import DEFAULT_SECONDS, as_good_as, best_order

#: Most solutions that are sorted by an objective.
MAX_RANKED = 5_000_000
SCHEMA = "constrint.solutions/1"
#: Share of the time limit for listing all solutions; the rest is for a search for one.
LIST_SHARE: Final = 0.5
#: Seconds for listing all solutions where there are objectives and no time limit.
LIST_SECONDS: Final = 20.0
#: Combinations that a walk to the first solutions may look at before the tables are asked.
WALK_CELLS: Final = 1 << 22
#: Seconds of that search after the user asked to stop.
LAST_SECONDS: Final = 0.15


def print_best(question: Question, top: int, backend: str, run: Run, output: Output) -> None:
    """Print up to `top` solutions of a problem, the best first if the problem has objectives."""
    (stated,) = question.problems
    problem = stated.problem
    stopped: dict[str, Any] = {}
    with run:
        try:
            limits = run.limits(LIST_SHARE)
            if limits.max_seconds is None and (problem.objectives or problem.soft_constraints):
                # Its best solutions may be known long before all are listed.
                limits = replace(limits, max_seconds=LIST_SECONDS, started=None)
            ((_, space),) = question.spaces(backend, limits)
            rows = _best_rows(stated, space, top, limits, run)
            size: int | None = space.size
        except LimitReachedError as error:
            answer = _one(question, backend, run)
            rows, size = [dict(answer.assignment)] * bool(answer.assignment), None
            stopped = _stopped(answer, error, run)
    num_product = problem.num_combinations
    found = f"{counted(size, 'solution')} of {num_product:,}" if size is not None else f"{num_product:,}"
    few = "" if size is not None else ", too many solutions to list"
    order = [f"weight {s.weight} if not {s.constraint}" for s in problem.soft_constraints]
    order += [str(objective) for objective in problem.objectives]
    more = 0 if size is None else size - len(rows)
    page = Page(
        Table(solution_columns(problem.variables), [[row[name] for name in problem.variables] for row in rows], rows),
        lambda items: {
            "schema": SCHEMA,
            "num_product": num_product,
            "num_valid": size,
            "solutions": list(items),
            **({"stopped": stopped} if stopped else {}),
        },
        above=[f"{stated.title}: {found} combinations{few}"]
        + ([f"best first: {'; then '.join(order)}"] if order else []),
        below=[f"... and {more:,} more (--top N prints more, --all prints all)"] if more else [],
    )
    output.show(page)
    if stopped:
        print(f"note: {_note(stopped, bool(rows))}", file=sys.stderr)
    if run.signal or not rows:
        run.leave()


def _stopped(answer: Solution, listing: LimitReachedError, run: Run) -> dict[str, Any]:
    """The status of a single solution that is shown because not all could be listed."""
    return {
        "why": run.why(listing if answer else answer.message),
        "is_best": answer.status is Status.FEASIBLE,
        "bound": answer.bound if answer.bound is None or isinstance(answer.bound, int) else float(answer.bound),
    }


def _note(stopped: dict[str, Any], is_known: bool) -> str:
    if stopped["is_best"]:
        return f"only one solution is shown: {stopped['why']}"
    bound = stopped["bound"]
    limit = "" if bound is None else f", and the first objective cannot be better than {bound}"
    what = "what is shown is the best known, not proven best" if is_known else "no solution is known yet"
    return f"{what}{limit}: {stopped['why']}"


def _one(question: Question, backend: str, run: Run) -> Solution:
    """The best known solution of a problem with too many to list."""
    # A problem with too many solutions to list may be hard: CP-SAT helps if it is installed.
    stated, limits = "auto" if backend == "native" else backend, run.limits()
    if run.is_asked_to_stop():
        stated, limits = backend, run.last_limits(LAST_SECONDS)
    elif limits.max_seconds is None:
        # The default limit of `solve`, counted from now.
        limits = replace(limits, max_seconds=DEFAULT_SECONDS, started=None)
    answer = solve(question.problems[0].problem, limits, stated, on_better=run.better)
    if answer.status is Status.INFEASIBLE:
        raise question.infeasible()
    return answer


def _best_rows(stated: StatedProblem, space: SearchSpace, top: int, limits: Limits, run: Run) -> list[dict[str, int]]:
    problem, objective = stated.problem, stated.problem.objective
    if objective is None and not problem.soft_constraints:
        return _first_rows(problem, space, top, limits)
    if objective is None or len(problem.objectives) > 1 or problem.soft_constraints:
        answers = best_solutions(problem, top, limits, on_better=run.better)
        for answer in answers:
            if answer.status is Status.LIMIT_REACHED:
                raise LimitReachedError(answer.message)
        return [answer.assignment for answer in answers]
    return [ranked.config for ranked in space.best(top, objective.expr, maximise=objective.maximise, limits=limits)]


def _first_rows(problem: Problem, space: SearchSpace, top: int, limits: Limits) -> list[dict[str, Any]]:
    """The first solutions in declared order: by a short walk, else from the tables."""
    try:
        walked = replace(limits, max_cells=min(limits.max_cells, WALK_CELLS))
        return list(islice(solutions_in_order(problem, walked), top))
    except CancelledError:
        raise
    except LimitReachedError:
        Budget(limits).check_work()
    rows: list[dict[str, Any]] = []
    while space and len(rows) < top:
        rows.append(space.first())
        space = space.exclude(rows[-1])
    return rows


def _of_optima(question: Question, backend: str, run: Run) -> Question:
    """The question about the solutions of a problem that are best by its objectives and soft rules."""
    (stated,) = question.problems
    answer = _one(question, backend, run)
    if answer.status is Status.LIMIT_REACHED:
        raise LimitReachedError(answer.message)
    return replace(question, problems=(replace(stated, problem=as_good_as(stated.problem, answer)),))


def print_all(question: Question, backend: str, run: Run, output: Output, *, only_best: bool = False) -> None:
    """Print every solution, or every one of the best, on stdout, and their number on stderr."""
    with run:
        if only_best:
            question = _of_optima(question, backend, run)
        try:
            solutions = Solutions(question, backend, run.limits(LIST_SHARE))
        except CancelledError:
            raise
        except LimitReachedError as error:
            if run.max_seconds is None:
                raise
            _print_found(question, backend, run, output, run.why(error))
            return
        head = f"{question.title}: {counted(solutions.size, 'solution')} of {solutions.product_size:,} combinations"
        run.progress.close()
        print(head, file=sys.stderr)
        for note in question.notes:
            print(f"note: {note}", file=sys.stderr)
        write_rows(solutions.names, _in_order(question, solutions), solutions.size, run, output)


def _print_found(question: Question, backend: str, run: Run, output: Output, why: str) -> None:
    """Print the solutions that a walk finds in the remaining time where there are too many to list."""
    print(f"{question.title}: solutions as they are found, since not all can be listed: {why}", file=sys.stderr)
    names = dict.fromkeys(name for stated in question.problems for name in stated.problem.variables)
    names = {"kernel": None, **names} if question.several else names
    found: list[str] = []
    engine = "numpy" if backend == "numpy" else "native"

    def batches() -> Iterator[Columns]:
        try:
            for stated in question.problems:
                solutions = solutions_in_order(stated.problem, run.limits(), engine)
                while rows := list(islice(solutions, FOUND_AT_ONCE)):
                    yield columns_of(tuple(names), stated.kernel, rows)
        except LimitReachedError as error:
            found.append(run.why(error))

    write_rows(tuple(names), batches(), None, run, output, found)


def _in_order(question: Question, solutions: Solutions) -> Iterator[Columns]:
    """All solutions, the best first if the problem has objectives and few enough solutions."""
    problem = question.problems[0].problem
    has_order = bool(problem.objectives or problem.soft_constraints)
    if has_order and solutions.size > MAX_RANKED:
        print(f"note: more than {MAX_RANKED:,} solutions are not sorted by the objective", file=sys.stderr)
        has_order = False
    if not has_order:
        yield from solutions.all()
        return
    ((_, space),) = solutions.spaces
    columns = space.columns()
    coding = Coding.of(problem)
    order = best_order(problem, columns if coding is None else coding.encoded_columns(columns), space.size)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        yield {name: column[rows] for name, column in columns.items()}


BATCH = 4096
#: Solutions that are printed at once while a walk finds more.
FOUND_AT_ONCE: Final = 256
#: The cell of a parameter that the kernel lacks.
ABSENT: Final = msgspec.UNSET
Columns = Mapping[str, NDArray[Any]]


class Solutions:
    """The solutions of all spaces of a question, numbered through.

    Attributes:
        spaces: The spaces with their kernels' full names, empty for a file.
        names: Names of the columns: `kernel` if the GPU has several implementations, then the parameters.
    """

    def __init__(self, question: Question, backend: str, limits: Limits | None = None) -> None:
        """Enumerate the spaces.

        Raises:
            InfeasibleError: When no problem has a solution.
            LimitReachedError: When a limit ended the enumeration.
        """
        spaces = question.spaces(backend, limits)
        names = dict.fromkeys(name for stated, _ in spaces for name in stated.problem.variables)
        self.spaces = [(stated.kernel, space) for stated, space in spaces]
        self.names = ("kernel", *names) if question.several else tuple(names)

    @property
    def size(self) -> int:
        """The number of solutions."""
        return sum(space.size for _, space in self.spaces)

    @property
    def product_size(self) -> int:
        """The number of combinations of values."""
        return sum(space.product_size for _, space in self.spaces)

    def all(self) -> Iterator[Columns]:
        """Every solution, one space after the other."""
        for kernel, space in self.spaces:
            for start in range(0, space.size, BATCH):
                yield self._named(kernel, space.take(range(start, min(start + BATCH, space.size))))

    def sample(self, count: int, seed: int | None) -> Iterator[Columns]:
        """Distinct solutions, drawn uniformly."""
        only = self.spaces[0][1]
        indices = only.sample_indices(count, seed) if len(self.spaces) == 1 else _draw(self.size, count, seed)
        for start in range(0, count, BATCH):
            yield self._at(indices[start : start + BATCH])

    def _named(self, kernel: str, columns: Columns) -> Columns:
        """The rows of one space with all columns."""
        if self.names == tuple(columns):
            return columns
        length = len(next(iter(columns.values()))) if columns else 1
        absent = np.full(length, ABSENT, dtype=object)
        name = np.full(length, kernel, dtype=object)
        return {n: name if n == "kernel" else columns.get(n, absent) for n in self.names}

    def _at(self, indices: Sequence[int]) -> Columns:
        """Rows of several spaces, in the order of their indices."""
        ends = list(accumulate(space.size for _, space in self.spaces))
        owners = np.array([bisect_right(ends, index) for index in indices])
        rows = {name: np.full(len(indices), ABSENT, dtype=object) for name in self.names}
        for owner, (kernel, space) in enumerate(self.spaces):
            places = np.flatnonzero(owners == owner)
            if len(places):
                first = ends[owner] - space.size
                named = self._named(kernel, space.take([indices[int(place)] - first for place in places]))
                for name in self.names:
                    rows[name][places] = named[name]
        return rows


def columns_of(names: Sequence[str], kernel: str, rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows as columns of Python values."""
    columns: dict[str, NDArray[Any]] = {}
    for name in names:
        columns[name] = np.empty(len(rows), dtype=object)
        columns[name][:] = [kernel if name == "kernel" else row.get(name, ABSENT) for row in rows]
    return columns


def write_rows(
    names: Sequence[str],
    batches: Iterable[Columns],
    number: int | None,
    run: Run,
    output: Output,
    limits: Sequence[str] = (),
) -> None:
    """Print solutions as they come, until the run has to end.

    If the run ends early, stderr says so, and JSON gets a last object with the single key `stopped`.

    Args:
        names: The columns.
        batches: The solutions.
        number: Their number; None if it is not known.
        run: The run.
        output: The options about the output.
        limits: Receives the limit that ended the batches, if one did.
    """
    table, chosen = Table(solution_columns(names), []), output.page_options.columns
    printed = _Counted(run.while_it_may(batches), number, run)

    def drawn(_: object) -> None:
        print_rows([column.key for column in table.named(chosen)] if chosen else names, printed)

    output.show(Page(table, draw=drawn, rows=lambda: _rows(printed)))
    why = run.reason() if number is None or printed.num_rows < number else ""
    why = why or next(iter(limits), "")
    if why or (number is not None and printed.num_rows < number):
        stopped = {"num_printed": printed.num_rows, "num_asked": number, "why": why}
        if output.format in ("json", "jsonl"):
            sys.stdout.write(msgspec.json.encode({"stopped": stopped}).decode() + "\n")
        sys.stdout.flush()
        run.progress.close()
        of = "" if number is None else f" of {number:,}"
        print(f"stopped after {printed.num_rows:,}{of} rows: {why}", file=sys.stderr)
        run.leave()


class _Counted:
    """Batches that count their rows, and report progress unless the rows themselves go to the terminal."""

    def __init__(self, batches: Iterable[Columns], number: int | None, run: Run) -> None:
        self.num_rows = 0
        self._batches, self._number, self._run = batches, number, run

    def __iter__(self) -> Iterator[Columns]:
        for columns in self._batches:
            yield columns
            self.num_rows += len(next(iter(columns.values()))) if columns else 1
            if not sys.stdout.isatty():
                of = "" if self._number is None else f" of {self._number:,}"
                self._run.progress.say(f"{self.num_rows:,}{of} rows", self.num_rows, self._number)


def solution_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """A column per variable, and for the kernel."""
    return tuple(Column(name, is_text=name == "kernel", show=_written) for name in names)


def _draw(total: int, count: int, seed: int | None) -> list[int]:
    """Distinct numbers below `total`, drawn uniformly; `total` may exceed 64 bits."""
    source = random.Random(seed)
    if total <= sys.maxsize:
        return source.sample(range(total), count)
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn[source.randrange(total)] = None
    return list(drawn)


def _rows(batches: Iterable[Columns]) -> Iterator[list[Any]]:
    for columns in batches:
        yield from map(list, zip(*(column.tolist() for column in columns.values()), strict=True))


def print_rows(names: Iterable[str], batches: Iterable[Columns]) -> None:
    """Print a line per solution, or `name=value` pairs on a terminal that is too narrow.

    Batches are printed as they come, so columns may widen from batch to batch.
    """
    widths = {name: len(name) for name in names}
    width = terminal_width()
    is_first = True
    for columns in batches:
        texts = {name: [_written(cell) for cell in columns[name].tolist()] for name in widths}
        widths = {name: max(widths[name], *map(len, texts[name])) for name in widths}
        if width is not None and sum(widths.values()) + 2 * (len(widths) - 1) > width:
            for row in zip(*texts.values(), strict=True):
                pairs = [f"{name}={value}" for name, value in zip(texts, row, strict=True) if value != "-"]
                sys.stdout.writelines(f"{line}\n" for line in pair_lines(pairs, width))
            continue
        if is_first:
            sys.stdout.write("  ".join(printable(name).rjust(widths[name]) for name in widths) + "\n")
            is_first = False
        aligned = [[text.rjust(widths[name]) for text in texts[name]] for name in widths]
        sys.stdout.write("".join("  ".join(row) + "\n" for row in zip(*aligned, strict=True)))


def _written(cell: object) -> str:
    """The text of a cell, without quotes; a dash for a parameter that the kernel lacks."""
    if cell is ABSENT:
        return "-"
    return printable(cell) if isinstance(cell, str) else literal(cell)
