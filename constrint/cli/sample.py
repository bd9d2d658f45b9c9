"""`constrint sample`: uniform random solutions, also of spaces that are too large to list."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from constrint.cli.options import Backend, Choice, KernelCommand, MaxMemory, MaxSeconds
from constrint.cli.output import Output, printing
from constrint.cli.question import check_backend, question_of
from constrint.cli.run import Run
from constrint.cli.solutions import Solutions, write_rows
from constrint.errors import UsageError

#: Most solutions; their indices are drawn at once.
MAX_SAMPLE = 10_000_000


@KernelCommand
@printing
def sample(
    choice: Choice,
    count: Annotated[int, typer.Option("--count", help="Number of configurations to draw.")] = 10,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw the same ones again.")] = None,
    backend: Backend = "native",
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    *,
    output: Output,
) -> None:
    """Draw distinct solutions uniformly at random; with --json one per line."""
    if not 1 <= count <= MAX_SAMPLE:
        raise UsageError(f"--count must be between 1 and {MAX_SAMPLE:,}, got {count}.")
    if seed is not None and seed < 0:
        raise UsageError(f"--seed must not be negative, got {seed}.")
    check_backend(backend)
    run = Run("sampling", max_seconds, max_memory)
    question = question_of(choice)
    with run:
        solutions = Solutions(question, backend, run.limits())
        if count > solutions.size:
            run.progress.close()
            print(f"note: there are only {solutions.size:,} solutions; all of them follow", file=sys.stderr)
        number = min(count, solutions.size)
        write_rows(solutions.names, solutions.sample(number, seed), number, run, output)
