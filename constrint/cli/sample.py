"""`constrint sample`: solutions drawn uniformly at random, also from spaces that no one can list."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from constrint.cli.kernel_options import Backend, Choice, Json, KernelCommand
from constrint.cli.request import check_backend, question_of
from constrint.cli.rows import Solutions
from constrint.errors import UsageError

#: Indices are drawn at once.
MAX_SAMPLE = 10_000_000


@KernelCommand
def sample(
    choice: Choice,
    count: Annotated[int, typer.Option("--count", help="How many to draw.")] = 10,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw the same ones again.")] = None,
    backend: Backend = "native",
    json: Json = False,
) -> None:
    """Draw distinct solutions uniformly at random; with --json one per line."""
    if not 1 <= count <= MAX_SAMPLE:
        raise UsageError(f"--count must be between 1 and {MAX_SAMPLE:,}, got {count}.")
    if seed is not None and seed < 0:
        raise UsageError(f"--seed must not be negative, got {seed}.")
    check_backend(backend)
    solutions = Solutions(question_of(choice), backend)
    if count > solutions.size:
        print(f"note: there are only {solutions.size:,} solutions; all of them follow", file=sys.stderr)
    solutions.write(solutions.sample(min(count, solutions.size), seed), as_json=json)
