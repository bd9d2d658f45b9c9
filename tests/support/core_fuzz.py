"""Calls the solver's functions of the core with odd arguments, in a process of its own that must live on.

Arguments start as valid ones, encoded from random problems, of which some parts are replaced: this gets further than
arguments that are all odd.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from constrint.model.encode import OPERATIONS, encode_all, encode_expression
from tests.support.random_problems import draw_listed, expression, members_of, problem_of, python_of

#: A call may evaluate so many combinations.
MAX_CELLS = 20_000


def load_core(path: str) -> ModuleType:
    """The extension at a path."""
    spec = importlib.util.spec_from_file_location("_core", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fuzz:
    """A core, what it made so far, and everything that its functions can be given."""

    def __init__(self, core: ModuleType, seed: int) -> None:
        self.core, self.random = core, random.Random(seed)
        self.models: list[Any] = []
        self.spaces: list[tuple[Any, int]] = []
        self.walks: list[Any] = []
        cyclic: list[Any] = []
        cyclic.append(cyclic)
        self.odd: list[Callable[[], Any]] = [
            lambda: self.random.choice([0, 1, -1, 2, 3, 7, 99, 255, 256, 257, 4095, 4096, 4097, 65536]),
            lambda: self.random.choice([1, -1]) * ((1 << self.random.randrange(30, 66)) + self.random.randint(-1, 1)),
            lambda: 1 << 5000,
            lambda: self.random.choice([0.5, True, None, ..., 1j, "x", "\udcff", b"12345678", bytearray(8)]),
            lambda: self.random.choice([(), [], {}, set(), frozenset("ab"), cyclic, [0] * 300, [[1]] * 300, [[]]]),
            lambda: self.random.choice([*self.models, *self.walks, *(space for space, _ in self.spaces), object()]),
            lambda: self.meddle,
        ]

    def meddle(self, cells: int = 0) -> None:
        """A poll that uses what is being used."""
        if self.models and self.random.random() < 0.5:
            self.core.require(self.random.choice(self.models), [1, 0, 1, 1, 0, 1, OPERATIONS.index("<="), 2, 0])
        elif self.walks:
            self.core.walk_next(self.random.choice(self.walks), 0, 10, None)

    def code(self, words: list[int]) -> list[Any]:
        """An encoding with some numbers exchanged, doubled, left out or put in."""
        words = list(words)
        for _ in range(self.random.choice([0, 0, 1, 1, 2, 6])):
            at = self.random.randrange(len(words) + 1)
            change = self.random.randrange(5)
            if change == 0 and at < len(words):
                words[at] = self.random.choice([0, 1, 2, 3, -1, len(OPERATIONS) - 1, len(OPERATIONS), 5, 1 << 61])
            elif change == 1 and at < len(words):
                words[at] += self.random.choice([-1, 1])
            elif change == 2:
                words[at:at] = words[: self.random.randrange(len(words) + 1)]
            elif change == 3:
                del words[at : at + self.random.choice([1, 3, 6])]
            else:
                words[at:at] = [
                    self.random.randrange(len(OPERATIONS)),
                    self.random.randint(-1, 3),
                    self.random.choice([0, 1, -1, 3]),
                ]
        return words

    def strange(self) -> Any:
        """Something odd."""
        return self.random.choice(self.odd)()

    def replaced(self, value: Any, chance: float) -> Any:
        """The value, some of its parts exchanged, doubled or left out."""
        if self.random.random() < chance:
            return self.strange()
        if type(value) in (list, tuple) and len(value) < 400:
            parts = [self.replaced(part, chance) for part in value]
            if parts and self.random.random() < chance:
                parts.pop(self.random.randrange(len(parts)))
            if parts and self.random.random() < chance:
                parts += [self.random.choice(parts)] * self.random.choice([1, 2, 300])
            return type(value)(parts)
        return value

    def arguments(self) -> dict[str, Callable[[], tuple[Any, ...]]]:
        """Arguments of every function, valid but for mutated encodings."""
        pick = self.random
        drawn = draw_listed(pick.randrange(1 << 30))
        problem = problem_of(drawn)
        places = {name: place for place, name in enumerate(problem.names)}
        rules = self.code(encode_all(problem.constraints, places))
        asked = drawn.objective[1] if drawn.objective else ("+", ("var", "a"), ("var", "a"))
        expr = self.code(encode_expression(expression(asked), places))
        domains = [list(members_of(d)) for d in drawn.domains.values()]
        rows = pick.choice([1, 2, 100, 3000])
        columns = [
            b"".join(pick.choice(d).to_bytes(8, "little", signed=True) for _ in range(rows))
            if max(map(abs, d)) < 2**62
            else b""
            for d in domains
        ]
        space = pick.choice(self.spaces) if self.spaces else (None, 0)
        model = pick.choice(self.models) if self.models else None
        poll = pick.choice([None, self.meddle])
        texts = [python_of(rule) or "a > 0" for rule in drawn.rules]
        if texts and pick.random() < 0.5:
            at = pick.randrange(len(texts[0]) + 1)
            texts[0] = (
                texts[0][:at]
                + pick.choice(["(", ")", " not in ", "%", "**", "9" * 30, "x", "\0", " and "])
                + texts[0][at:]
            )
        return {
            "build": lambda: (domains, [rules]),
            "require": lambda: (model, rules),
            "read": lambda: (dict(zip(drawn.domains, domains, strict=True)), texts, {"step", "var"}),
            "enumerate": lambda: (model, MAX_CELLS, pick.choice([5, 3000]), pick.choice([0, 0, 10_000]), poll),
            "evaluate": lambda: (expr, columns, rows),
            "columns": lambda: (space[0], space[1] + pick.choice([0, 0, 0, 1, -1, 1 << 40])),
            "factors": lambda: (space[0],),
            "best": lambda: (model, space[0], expr, pick.random() < 0.5),
            "walk": lambda: (
                model,
                MAX_CELLS,
                poll,
                pick.choice([[], [], [(0, domains[0][0])], [(pick.randint(-1, 9), 3)]]),
            ),
            "walk_next": lambda: (
                pick.choice(self.walks) if self.walks else None,
                pick.choice([0, 0, 1, -1, 99]),
                MAX_CELLS,
                poll,
            ),
            "walk_to_end": lambda: (
                pick.choice(self.walks) if self.walks else None,
                pick.choice([0, 0, 1, -1, 99]),
                MAX_CELLS,
                poll,
            ),
            "walk_state": lambda: (pick.choice(self.walks) if self.walks else None, pick.choice([0, 0, 1, -1, 99])),
        }

    def keep(self, name: str, made: Any) -> None:
        """Use what was made in later calls."""
        kept: list[Any]
        if name in ("build", "read") and made is not None:
            kept, made = self.models, made[0] if name == "read" else made
        elif name == "enumerate" and made is not None and made[0] == "space":
            total = 1
            for count in made[2]:
                total *= count
            kept, made = self.spaces, (made[1], total if total < 50_000 else 0)
        elif name == "walk" and made is not None and made[0] == "walk":
            kept, made = self.walks, made[1]
        else:
            return
        if len(kept) < 6:
            kept.append(made)
        else:
            kept[self.random.randrange(6)] = made

    def run(self, number: int) -> Counter[str]:
        """Makes so many calls; how often each function returned, and how often it raised."""
        counts: Counter[str] = Counter()
        while sum(counts.values()) < number:
            functions = self.arguments()
            for _ in range(6):
                name = self.random.choice(list(functions))
                chance = self.random.choice([0.0, 0.0, 0.05, 0.2])
                given = [self.replaced(argument, chance) for argument in functions[name]()]
                if self.random.random() < chance:
                    given = given[: self.random.randrange(len(given) + 1)] + [self.strange()] * self.random.randrange(3)
                try:
                    made = getattr(self.core, name)(*given)
                except SystemError:  # an exception that was lost, or left behind
                    raise
                except Exception:
                    counts[f"{name} raised"] += 1
                    continue
                counts[name if made is not None else f"{name} declined"] += 1
                self.keep(name, made)
        return counts


def main() -> None:
    """Runs from the command line: the extension, the number of calls, a seed."""
    path, calls, seed = sys.argv[1:]
    counts = Fuzz(load_core(str(Path(path).resolve())), int(seed)).run(int(calls))
    for name, number in sorted(counts.items()):
        print(f"{name}: {number}")
    print(f"{sum(counts.values())} calls")


if __name__ == "__main__":
    main()
