"""Calls every function of launches with odd arguments, in a process of its own that must live on.

Arguments start as valid ones, of which some parts are replaced: this gets further than arguments that are all odd.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.fake_driver import (
    CUDA,
    FUNCTION,
    Exchange,
    FakeDriver,
    FakeParameter,
    FakeTensor,
    OtherTensor,
    new_core,
)

PRODUCT = ("product", (0, 1), (7, 5, 11), (2, 14, 0), (7, 6, 9), (1, 0, 2))
#: Calls after which tables are cleared, so that most are small.
CALLS_BETWEEN_CLEARS = 500


class Hostile:
    """Raises wherever it is asked."""

    def _raise(self, *_: Any) -> Any:
        raise KeyError("hostile")

    __bool__ = __index__ = __len__ = __iter__ = __getattr__ = __call__ = __float__ = __int__ = _raise
    __eq__ = __hash__ = _raise


class Hashable(Hostile):
    """Raises only when it is compared."""

    def __hash__(self) -> int:
        return 3


class BrokenTensor(FakeTensor):
    """A tensor of a class of its own."""

    @property
    def requires_grad(self) -> bool:
        """Whether it wants a gradient."""
        raise KeyError("hostile")

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        pass


class Meddler:
    """Changes a table when it is compared, called or gone."""

    def __init__(self, fuzz: Fuzz) -> None:
        self.fuzz = fuzz

    def __hash__(self) -> int:
        return 3

    def __eq__(self, other: object) -> bool:
        self.fuzz.meddle()
        return self.fuzz.random.random() < 0.5

    def __call__(self, *_: Any) -> Any:
        self.fuzz.meddle()
        return self.fuzz.random.choice([False, True, 64, FakeTensor(), None])

    def __del__(self) -> None:
        self.fuzz.meddle()


class Fuzz:
    """A core, and everything that its functions can be given."""

    def __init__(self, cuda: str, exchange: str, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.core = new_core()
        self.exchange = Exchange(exchange, folder)
        self.capsule = self.exchange.classes_of()
        self.fake = FakeDriver(cuda, folder)
        self.fake.note(False)
        self.handle = self.core.driver("cuda", self.fake.path)
        self.depth = 0
        self.core.use_blas(*self.fake.blas(), self.blas_handle)
        cyclic: list[Any] = []
        cyclic.append(cyclic)
        self.tensors: list[Any] = [FakeTensor(shape=(size,)) for size in (1, 2, 3)]
        self.tensors += [FakeParameter(), OtherTensor(), FakeTensor(bits=32), FakeTensor(device=(CUDA, 1)), None]
        broken = FakeTensor()
        broken.described = b"short"
        self.tables: list[Any] = [self.table() for _ in range(3)]
        self.plans: list[Any] = [self.make_plan(slots) for slots in (1, 2, 3, 4)]
        self.odd: list[Callable[[], Any]] = [
            lambda: self.random.choice([0, 1, -1, 2, 7, 8, 9, 16, 64, 255, 256, 257, 1024, 4096]),
            lambda: self.random.choice([1, -1]) * (1 << self.random.randrange(30, 70)) + self.random.randint(-1, 1),
            lambda: 1 << 5000,
            lambda: self.random.choice([0.0, -1.5, float("nan"), float("inf"), 1e308, True, False, None, ..., 1j]),
            lambda: self.random.choice(["", "map", "kernel", "\udcff", "a\0b", "x" * 300, b"", b"abc", b"\0" * 9]),
            lambda: self.random.choice([(), [], {}, set(), cyclic, (cyclic, cyclic), [0] * 300, ("map",) * 10]),
            lambda: self.random.choice([Hostile(), Hashable(), Meddler(self), BrokenTensor(), broken, object(), int]),
            lambda: self.random.choice([self.handle, self.capsule, *self.tables, *self.plans]),
            lambda: self.random.choice(self.tensors),
            lambda: self.random.choice([bytearray(b"ab"), memoryview(b"abcd"), range(3), "integer", "bytes", "fp32"]),
        ]

    def table(self) -> Any:
        """A table that holds little."""
        return self.core.table(4, lambda *_: FakeTensor(), lambda *_: 64, (lambda: False,), lambda: "ieee", bool)

    def make_plan(self, slots: int) -> Any:
        """A plan that takes addresses."""
        arguments = [("integer", 8, slot, 0) for slot in range(slots)]
        steps: list[Any] = [("kernel", FUNCTION, (1, 1, 1), 32, 0, 1, 0, 0, arguments)]
        if slots > 2:
            steps.append(PRODUCT)
        return self.core.plan(self.handle, slots, steps, [])

    def blas_handle(self) -> Any:
        """The handle of a library for products, or what is none; tables may be others afterwards."""
        if self.random.random() < 0.2:
            self.meddle()
        return self.random.choice([0xB1A5, 0xB1A5, 0xB1A5, 0, -1, None])

    def meddle(self) -> None:
        """Change some table."""
        if self.depth > 2:
            return
        self.depth += 1
        try:
            table = self.random.choice(self.tables)
            if self.random.random() < 0.5:
                self.core.table_clear(table)
            else:
                self.core.table_insert(table, self.random.choice([None, 1, 3]), (FakeTensor(),), None, (), 0, 0)
        finally:
            self.depth -= 1

    def strange(self) -> Any:
        """Something odd."""
        return self.random.choice(self.odd)()

    def replaced(self, value: Any, chance: float) -> Any:
        """The value, some of its parts exchanged, doubled or left out."""
        if self.random.random() < chance:
            return self.strange()
        if isinstance(value, list | tuple):
            parts = [self.replaced(part, chance) for part in value]
            if parts and self.random.random() < chance:
                parts.pop(self.random.randrange(len(parts)))
            if parts and self.random.random() < chance:
                parts += [self.random.choice(parts)] * self.random.choice([1, 2, 300])
            return type(value)(parts) if type(value) in (list, tuple) else value
        return value

    def argument(self) -> Any:
        """An argument of a kernel."""
        return self.random.choice(
            [
                ("bytes", b"abcd"),
                ("integer", 8, 0, 16),
                ("integer", 4, 1, 0),
                ("fp32", 2),
                ("fp64", 2),
                ("map", 0, 16, 6, 2, 3, 0, [64, 32], [1000, 512], [512, 1]),
            ]
        )

    def arguments(self) -> dict[str, Callable[[], tuple[Any, ...]]]:
        """Valid arguments of every function."""
        pick = self.random.choice
        extra = [None, 1, "a", ("b", 2), Meddler(self)]
        return {
            "driver": lambda: (pick(["cuda", "hip"]), self.fake.path),
            "current": lambda: (self.handle,),
            "load_kernel": lambda: (self.handle, b"an image", "name"),
            "allow_kernel": lambda: (self.handle, FUNCTION, pick([0, 100_000]), pick([1, 16])),
            "resident_blocks": lambda: (self.handle, FUNCTION, 64, pick([0, 100_000]), pick([1, 16]), 132),
            "parameter_bytes": lambda: (self.handle, FUNCTION),
            "plan": lambda: (
                self.handle,
                3,
                [
                    ("fill", 0, 8, 4, pick([0, 0xFFFFFFFF])),
                    ("kernel", FUNCTION, (1, 2, 3), 64, 0, 1, 0, 1, [self.argument() for _ in range(4)]),
                    *([PRODUCT] if pick([True, False, False]) else []),
                ],
                [("multiple", 0, 16), ("equal", 1, 4), ("int32", 1, 0)],
            ),
            "launch": lambda: (pick(self.plans), 5, *(pick([16, 4, 1.5, *self.tensors]) for _ in range(3))),
            "use_tensors": lambda: (self.capsule, FakeTensor, FakeParameter),
            "table": lambda: (4, lambda *_: FakeTensor(), Meddler(self), (bool, lambda: None), Meddler(self), bool),
            "table_call": lambda: (pick(self.tables), pick([True, False]), pick(extra), *self.some_tensors()),
            "table_insert": lambda: (pick(self.tables), pick(extra), *self.entry()),
            "table_clear": lambda: (pick(self.tables),),
            "table_state": lambda: (pick(self.tables),),
        }

    def entry(self) -> tuple[Any, ...]:
        """What a table learns of a call."""
        tensors, outputs, counters = self.some_tensors(), self.random.choice([0, 1, 1]), self.random.choice([0, 0, 4])
        plan = self.plans[len(tensors) + outputs + bool(counters) - 1]
        return tensors, self.random.choice([None, plan, plan]), (((8,), (1,), "dtype"),) * outputs, outputs, counters

    def some_tensors(self) -> tuple[Any, ...]:
        """Tensors of a call, most of which the tables have seen."""
        return tuple(self.random.choice(self.tensors[:3]) for _ in range(self.random.choice([1, 1, 2])))

    def keep(self, name: str, made: Any) -> None:
        """Use what was made in later calls."""
        if name in ("plan", "table") and made is not None:
            kept = self.plans if name == "plan" else self.tables
            if len(kept) < 5:
                kept.append(made)
            else:
                kept[self.random.randrange(4, len(kept))] = made

    def run(self, number: int) -> Counter[str]:
        """Make so many calls; how often each function returned, and how often it raised."""
        functions = self.arguments()
        names = [*functions, *["table_call", "table_insert", "plan", "launch"] * 4]
        counts: Counter[str] = Counter()
        while sum(counts.values()) < number:
            name = self.random.choice(names)
            chance = self.random.choice([0.0, 0.02, 0.1, 0.3])
            given: Any = functions[name]()
            if chance:
                given = [self.replaced(argument, chance) for argument in given]
                if self.random.random() < chance:
                    given = given[: self.random.randrange(len(given) + 1)] + [self.strange()] * self.random.randrange(3)
            try:
                self.keep(name, getattr(self.core, name)(*given))
                counts[name] += 1
            except SystemError:  # an exception that was lost, or left behind
                raise
            except Exception:
                counts[f"{name} raised"] += 1
            if sum(counts.values()) % CALLS_BETWEEN_CLEARS == 0:
                for table in self.tables:
                    self.core.table_clear(table)
                self.core.use_tensors(self.capsule, FakeTensor, FakeParameter)
        return counts


def main() -> None:
    """Run from the command line: the libraries, a folder, the number of calls, a seed."""
    cuda, exchange, folder, calls, seed = sys.argv[1:]
    counts = Fuzz(cuda, exchange, Path(folder), int(seed)).run(int(calls))
    for name, number in sorted(counts.items()):
        print(f"{name}: {number}")
    print(f"{sum(counts.values())} calls")


if __name__ == "__main__":
    main()
