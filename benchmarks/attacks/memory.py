"""Counts within `max_bytes`: the memory of a process grows by no more than a fifth or 20 MB beyond it.

    python -m benchmarks.attacks.memory --count 30 --seed 1

Six problems that once took more, then `--count` drawn ones, each with six limits, each in a process of its own. What is
counted with less memory is counted with more, too, and to the same number.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.attacks import asked_of, ended
from constrint.errors import LimitReachedError
from constrint.model import Problem, parse, table
from constrint.solve import Limits, count

MEGABYTE: Final = 1_000_000
ALLOWED: Final = (10, 20, 40, 60, 100, 200)
#: Where this comes first nothing is known about memory.
SECONDS: Final = 6.0


def drawn_split(name: str, size: int, parts: int) -> str:
    """The ways to write a number as a product of several."""
    names = [f"{name}{part}" for part in range(parts)]
    values = ", ".join(str(by) for by in range(1, size + 1) if size % by == 0)
    return "\n".join([*(f"var {n} in {{{values}}}" for n in names), f"{' * '.join(names)} == {size}", ""])


def convolution(threads: int = 1024, shared: int = 6144) -> str:
    """A convolution's loops as AutoTVM splits them."""
    return (
        drawn_split("f", 64, 4)
        + drawn_split("y", 56, 4)
        + drawn_split("x", 56, 4)
        + drawn_split("rc", 64, 2)
        + f"f2*y2*x2 <= {threads}\nf2*y2*x2 >= 32\nf1*y1*x1 <= 8\n"
        + f"f1*f2*f3*rc1 + y1*y2*y3*x1*x2*x3*rc1 <= {shared}"
    )


def latin(size: int) -> str:
    """Squares whose rows and columns have every number once: far too many to list."""
    cells = [[f"c{row}{column}" for column in range(size)] for row in range(size)]
    lines = [f"all_different({', '.join(line)})" for line in (*cells, *zip(*cells, strict=True))]
    return "\n".join([*(f"var {name} in 1..{size}" for row in cells for name in row), *lines])


def tables(number: int, rows: int, pick: random.Random) -> Problem:
    """Tables of drawn rows, each of which shares a variable with the next one."""
    problem = Problem()
    names = [problem.int_var(f"v{i}", lower=0, upper=99) for i in range(2 * number + 1)]
    for at in range(number):
        drawn = {tuple(pick.randrange(100) for _ in range(3)) for _ in range(rows)}
        problem.add(table(names[2 * at : 2 * at + 3], sorted(drawn)))
    return problem


def weighted(items: int, pick: random.Random) -> str:
    """0/1 variables with a weighted sum that is one number."""
    weights = [pick.randint(1, 101) for _ in range(items)]
    total = " + ".join(f"{weight} * v{i}" for i, weight in enumerate(weights))
    return "\n".join([*(f"var v{i} in 0..1" for i in range(items)), f"{total} == {sum(weights) // pick.randint(3, 9)}"])


def products(variables: int, most: int, pick: random.Random) -> str:
    """Products of neighbours that are not some sum: little is ruled out."""
    rules = [f"v{i} * v{i + 1} != v{pick.randrange(variables)} + {pick.randint(1, 9)}" for i in range(variables - 1)]
    return "\n".join([*(f"var v{i} in 0..{most}" for i in range(variables)), *rules])


def drawn(pick: random.Random) -> str | Problem:
    """One problem of a drawn kind and size."""
    kinds: tuple[Callable[[], str | Problem], ...] = (
        lambda: convolution(pick.choice((256, 512, 1024)), pick.choice((2048, 6144, 12288))),
        lambda: latin(pick.randint(5, 8)),
        lambda: tables(pick.randint(2, 7), pick.choice((3000, 20000, 40000)), pick),
        lambda: weighted(pick.randint(40, 160), pick),
        lambda: products(pick.randint(3, 30), pick.choice((9, 99, 400)), pick),
    )
    return pick.choice(kinds)()


def cases(number: int, seed: int) -> Iterator[tuple[str, str | Problem]]:
    """The six problems, then drawn ones."""
    pick = random.Random(seed)
    yield "convolution", convolution()
    yield "latin 7x7", latin(7)
    yield "six tables", tables(6, 30_000, random.Random(3))
    yield "160 weights", weighted(160, random.Random(2))
    yield "two products", products(5, 200, random.Random(1))
    yield "many variables", products(40, 4000, random.Random(1))
    for at in range(number):
        yield f"{at} of seed {seed}", drawn(pick)


def in_child(work: Callable[[], Any]) -> Any:
    """What a forked process answers."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def memory(field: str) -> int:
    """A figure of this process's memory in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def counted(asked: str | Problem, most: int) -> tuple[int, int | str]:
    """By how many bytes counting let this process grow, and the number or what stopped it."""
    problem = parse(asked) if isinstance(asked, str) else asked
    before = memory("VmRSS")
    found: int | str
    try:
        found = count(problem, Limits(max_bytes=most, max_rows=1 << 40, max_cells=1 << 40, max_seconds=SECONDS))
    except LimitReachedError as error:
        found = str(error)
    return memory("VmHWM") - before, found


def attacked(name: str, asked: str | Problem) -> Iterator[str]:
    """Finds in one problem."""
    answer: int | None = None
    for megabytes in ALLOWED:
        most = megabytes * MEGABYTE
        reply = in_child(lambda most=most: counted(asked, most))  # type: ignore[misc]
        if reply is None:
            yield f"{name} within {megabytes} MB: the process died"
            continue
        grown, found = reply
        if grown > max(1.2 * most, most + 20 * MEGABYTE):
            yield f"{name} within {megabytes} MB: grew by {grown / MEGABYTE:.0f} MB ({found})"
        if isinstance(found, int):
            if answer not in (None, found):
                yield f"{name} within {megabytes} MB: {found}, with less memory {answer}"
            answer = found
        elif answer is not None and "max_seconds" not in found:
            yield f"{name} within {megabytes} MB: {found}; with less memory it was counted"


def main() -> int:
    """Runs from the command line."""
    asked = asked_of(__doc__, 30)
    finds: list[str] = []
    for name, problem in cases(asked.count, asked.seed):
        finds += attacked(name, problem)
        print(f"{name}: {len(finds)} finds so far", file=sys.stderr, flush=True)
    return ended(finds, f"memory: {6 + asked.count} problems from seed {asked.seed}, {len(finds)} finds")


if __name__ == "__main__":
    sys.exit(main())
