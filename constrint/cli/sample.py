"""`constrint sample`: solutions drawn uniformly at random, also from spaces that no one can list."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from constrint.cli.request import Backend, Choice, Json, takes_choice
from constrint.errors import UsageError

#: Indices are drawn at once.
MAX_SAMPLE = 10_000_000


@takes_choice
def sample(
    choice: Choice,
    count: Annotated[int, typer.Option("--count", help="How many to draw.")] = 10,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw the same ones again.")] = None,
    backend: Backend = "native",
    json: Json = False,
) -> None:
    """Draw distinct solutions uniformly at random; with --json one per line."""
    from constrint.cli.rows import print_json_lines, print_rows, rows_at

    if not 1 <= count <= MAX_SAMPLE:
        raise UsageError(f"--count must be between 1 and {MAX_SAMPLE:,}, got {count}.")
    if seed is not None and seed < 0:
        raise UsageError(f"--seed must not be negative, got {seed}.")
    asked = choice.one()
    space = asked.space(backend)
    if count > space.size:
        print(f"note: there are only {space.size:,} solutions; all of them follow", file=sys.stderr)
    batches = rows_at(space, space.sample_indices(min(count, space.size), seed))
    if json:
        print_json_lines(batches)
    else:
        print_rows(asked.problem, batches)
