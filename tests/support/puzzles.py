"""Problems whose answer plain Python knows: sudokus, knapsacks, pigeonholes, sums of 0/1 variables."""

from __future__ import annotations

import itertools
import random

from constrint.model import Problem, Var


def bits(number: int) -> tuple[Problem, list[Var]]:
    problem = Problem()
    return problem, [problem.int_var(f"v{i}", lower=0, upper=1) for i in range(number)]


SUDOKUS = {
    "easy": "530070000600195000098000060800060003400803001700020006060000280000419005000080079",
    "hard": "800000000003600000070090200050007000000045700000100030001000068008500010090000400",
    "17 clues": "000000010400000000020000000000050407008000300001090000300400200050100000000806000",
}


def sudoku(clues: str) -> Problem:
    problem = Problem()
    cells = {
        (r, c): problem.int_var(f"c{r}{c}", values=[int(clues[9 * r + c])] if clues[9 * r + c] != "0" else range(1, 10))
        for r, c in itertools.product(range(9), repeat=2)
    }
    for (a, x), (b, y) in itertools.combinations(cells.items(), 2):
        if a[0] == b[0] or a[1] == b[1] or (a[0] // 3, a[1] // 3) == (b[0] // 3, b[1] // 3):
            problem.add(x != y)
    return problem


def knapsack(size: int, seed: int, most: int = 1000) -> tuple[Problem, int]:
    """Items to take or leave within half of their weight, and the best value by dynamic programming."""
    rng = random.Random(seed)
    weights = [rng.randint(1, most) for _ in range(size)]
    values = [rng.randint(1, most) for _ in range(size)]
    room = sum(weights) // 2
    problem = Problem(f"knapsack {size}/{seed}")
    taken = [problem.int_var(f"x{i}", lower=0, upper=1) for i in range(size)]
    problem.add(sum(w * x for w, x in zip(weights, taken, strict=True)) <= room)
    problem.maximise(sum(v * x for v, x in zip(values, taken, strict=True)))
    best = [0] * (room + 1)
    for w, v in zip(weights, values, strict=True):
        for space in range(room, w - 1, -1):
            best[space] = max(best[space], best[space - w] + v)
    return problem, best[room]


def pigeonholes(pigeons: int) -> Problem:
    """One hole fewer than pigeons, no two in one hole: there is no solution."""
    problem = Problem(f"{pigeons} pigeons")
    holes = [problem.int_var(f"p{i}", lower=1, upper=pigeons - 1) for i in range(pigeons)]
    for a, b in itertools.combinations(holes, 2):
        problem.add(a != b)
    return problem
