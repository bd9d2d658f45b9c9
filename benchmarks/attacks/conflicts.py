"""Problems of 30 to 300 rules without a solution: is what is called a minimal conflict one, and is it found soon?

    python -m benchmarks.attacks.conflicts --count 60 --seed 1

Eight families by turns, each a few rules that contradict each other among many that do not. A find is a conflict whose
rules can hold together, or one that is called minimal with a member that it does not need, by a search of CP-SAT over
all values. What a limit left is counted, and so is what takes longer than a second of a processor.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.attacks import ended, resumed_of, said
from constrint.errors import ConstrintError
from constrint.model import Problem, parse
from constrint.solve import Conflict, Limits, Status, minimal_conflict, solve
from constrint.solve.explain.reduction import widened
from tests.support.conflicts import kept

#: Seconds of a processor within which a conflict should be known to be minimal.
SOON_S: Final = 1.0
#: Seconds for one question of the check.
CHECK_S: Final = 5.0
SIZES: Final = (30, 60, 100, 200, 300)


def sums(pick: random.Random, rules: int) -> str:
    """A circle of sums of three neighbours that contradict each other, whatever the domains are."""
    lines = [f"v{i} + v{(i + 1) % rules} < 2 * v{(i + 2) % rules}" for i in range(rules)]
    return _text({f"v{i}": "0..999" for i in range(rules)}, pick.sample(lines, rules))


def linear(pick: random.Random, rules: int) -> str:
    """Inequalities of three of some variables; more than can hold."""
    names = [f"v{i}" for i in range(max(6, rules // pick.randint(3, 8)))]
    lines = []
    for _ in range(rules):
        a, b, c = pick.sample(names, 3)
        factors = [pick.choice((1, 1, 2, 3, -1, -2)) for _ in range(3)]
        value = sum(factor * 10 for factor in factors) + pick.randint(-4, 6)
        op = pick.choice(("<=", ">="))
        lines.append(f"{factors[0]} * {a} + {factors[1]} * {b} + {factors[2]} * {c} {op} {value}")
    return _text(dict.fromkeys(names, "0..20"), lines)


def colours(pick: random.Random, rules: int) -> str:
    """Neighbours of other colours, with five nodes that all are neighbours, and four colours."""
    number = max(8, rules // 3)
    lines = {f"v{i} != v{j}" for i in range(5) for j in range(i)}
    while len(lines) < rules:
        high, low = sorted(pick.sample(range(number), 2), reverse=True)
        lines.add(f"v{high} != v{low}")
    return _text({f"v{i}": "1..4" for i in range(number)}, pick.sample(sorted(lines), len(lines)))


def tiles(pick: random.Random, rules: int) -> str:
    """Tiles of kernels: products within a memory, and above a number of threads that does not fit it."""
    number = max(4, rules // 5)
    lines = []
    for i in range(number):
        most = pick.choice((4096, 8192, 16384))
        lines += [f"m{i} * k{i} + n{i} * k{i} <= {most}", f"m{i} * n{i} % 32 == 0", f"m{i} >= k{i}"]
        lines += [f"m{i} <= 4 * n{i}", f"m{i} * n{i} <= 65536"]
    lines += ["k0 >= 64", "m0 * n0 >= 8192", f"m0 * k0 + n0 * k0 + m0 * n0 <= {pick.choice((12000, 16000))}"]
    names = [f"{kind}{i}" for i in range(number) for kind in "mnk"]
    return _text(dict.fromkeys(names, "{16, 32, 64, 128, 256}"), pick.sample(lines, len(lines)))


def parities(pick: random.Random, rules: int) -> str:
    """Sums of three that are even or odd, as a drawn assignment says, but for one."""
    names = [f"v{i}" for i in range(max(5, rules // 2))]
    hidden = {name: pick.randrange(2) for name in names}
    lines = []
    for _ in range(rules):
        three = pick.sample(names, 3)
        lines.append(f"({' + '.join(three)}) % 2 == {sum(hidden[n] for n in three) % 2}")
    a, b, c, d, e = pick.sample(names, 5)
    lines += [f"({a} + {b} + {c}) % 2 == 0", f"({c} + {d} + {e}) % 2 == 0", f"({a} + {b} + {d} + {e}) % 2 == 1"]
    return _text(dict.fromkeys(names, "0..1"), lines)


def shifts(pick: random.Random, rules: int) -> str:
    """Jobs of one machine, one after the other, that do not all end in time."""
    number = max(5, int((2 * rules) ** 0.5) // 2)
    lengths = [pick.randint(2, 9) for _ in range(number)]
    lines = [f"s{i} + {lengths[i]} <= s{j} or s{j} + {lengths[j]} <= s{i}" for i in range(number) for j in range(i)]
    late = sum(lengths[:5]) - 1
    lines += [f"s{i} + {lengths[i]} <= {late}" for i in range(5)]
    lines += [f"t{i} + {pick.randint(1, 9)} <= t{i + 1}" for i in range(max(0, rules - len(lines)))]
    names = {f"s{i}": "0..200" for i in range(number)} | {f"t{i}": "0..5000" for i in range(rules + 1)}
    return _text(names, lines)


def holes(pick: random.Random, rules: int) -> str:
    """More values that differ than there are numbers, as rules on pairs, among sums that hold."""
    number = pick.randint(5, 7)
    lines = [f"p{i} != p{j}" for i in range(number) for j in range(i)]
    lines += [f"p{pick.randrange(number)} + w{i} >= {pick.randint(0, 2)}" for i in range(max(0, rules - len(lines)))]
    names = {f"p{i}": f"1..{number - 1}" for i in range(number)} | {f"w{i}": "0..9" for i in range(rules)}
    return _text(names, lines)


def steps(pick: random.Random, rules: int) -> str:
    """A walk of products and remainders whose end is not where a rule wants it."""
    lines = [f"v{i + 1} == (v{i} * {pick.randint(2, 5)} + {pick.randint(0, 6)}) % 17" for i in range(rules)]
    lines += [f"v{pick.randrange(rules // 2)} == 3", f"v{rules} == 17 - v{rules // 2} % 2 + 1"]
    return _text({f"v{i}": "0..16" for i in range(rules + 1)}, lines)


FAMILIES: Final[tuple[Callable[[random.Random, int], str], ...]] = (
    sums, linear, colours, tiles, parities, shifts, holes, steps,
)  # fmt: skip


def _text(domains: dict[str, str], lines: list[str]) -> str:
    used = set(re.findall(r"[a-z]+[0-9]+", " ".join(lines)))
    domains = {name: domain for name, domain in domains.items() if name in used}
    return "\n".join([*(f"var {name} in {domain}" for name, domain in domains.items()), *lines])


def cases(seed: int) -> Iterator[tuple[str, Problem]]:
    """Problems of all families and sizes in turn, with their names."""
    number = 0
    while True:
        family, rules = FAMILIES[number % len(FAMILIES)], SIZES[number // len(FAMILIES) % len(SIZES)]
        yield f"{seed}-{number} {family.__name__} {rules}", parse(family(random.Random(f"{seed}-{number}"), rules))
        number += 1


def fault_of(problem: Problem, conflict: Conflict) -> str:
    """What is wrong with a conflict; empty where nothing is known to be."""

    def together(members: list[object]) -> Status:
        rest = kept(problem, [m for m in conflict.members if m in members], lambda _, domain: widened(domain))
        return solve(rest, Limits(max_seconds=CHECK_S)).status

    members: list[object] = list(conflict.members)
    if together(members) is Status.FEASIBLE:
        return "its rules can hold together"
    for member in members if conflict.minimal else ():
        if together([other for other in members if other is not member]) is Status.INFEASIBLE:
            return f"it is called minimal and does not need {member}"
    return ""


def attack(count: int, seed: int, first: int = 0, say: Callable[[str], None] = said) -> tuple[Counter[str], list[str]]:
    """How many conflicts are minimal and found soon, and the finds."""
    counts: Counter[str] = Counter()
    finds = []
    drawn = cases(seed)
    for number in range(first + count):
        name, problem = next(drawn)
        if number < first:
            continue
        before = time.process_time()
        try:
            conflict = minimal_conflict(problem)
        except ConstrintError as error:
            counts["without an answer"] += 1
            say(f"{name}: {error}")
            continue
        seconds = time.process_time() - before
        counts["minimal" if conflict.minimal else "not minimal"] += 1
        counts["soon" if seconds <= SOON_S else "late"] += 1
        fault = fault_of(problem, conflict)
        finds += [f"{name}: {fault}"] if fault else []
        is_minimal = "minimal" if conflict.minimal else "not minimal"
        say(f"{name}: {len(conflict.members)} members, {is_minimal}, {seconds:.2f} s {fault}")
    return counts, finds


def main() -> int:
    """Runs from the command line."""
    asked = resumed_of(__doc__, 40)
    counts, finds = attack(asked.count, asked.seed, asked.first)
    told = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
    return ended(finds, f"conflicts: {asked.count} problems of seed {asked.seed}, {len(finds)} finds: {told}")


if __name__ == "__main__":
    sys.exit(main())
