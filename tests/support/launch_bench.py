"""What tests of launches start from: a copy of the core with a fake driver, and tables that know the fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.fake_driver import FUNCTION, Exchange, FakeDriver, FakeParameter, FakeTensor, common_core, new_core

STREAM = 0xABC0
# Where the fake allocator's tensors and the fake counters are.
FIRST_RESULT = 0x900000
COUNTERS = 0x700000
# What the allocator is given.
SHAPE = ((8, 16), (16, 1), "a dtype")


class LaunchBench:
    """A copy of the core, and a fake driver that it has opened.

    Args:
        libraries: Those of `fake_driver.libraries_of`.
        folder: Where copies of them are put.
        kind: Which driver.
    """

    def __init__(self, libraries: dict[str, str], folder: Path, kind: str = "cuda") -> None:
        self.libraries, self.folder = libraries, folder
        self.core = common_core()
        self.fake = FakeDriver(libraries[kind], folder)
        self.handle = self.core.driver(kind, self.fake.path)

    def plan(
        self, arguments: Sequence[Any], slots: int, demands: Sequence[Any] = (), sizes: Sequence[int] | None = None
    ) -> Any:
        """A plan of one kernel; the driver learns the sizes of its arguments."""
        self.fake.sizes([size_of(argument) for argument in arguments] if sizes is None else sizes)
        return self.core.plan(self.handle, slots, [kernel(arguments)], list(demands))

    def launched(self, arguments: Sequence[Any], *values: Any) -> list[bytes]:
        """The bytes of the arguments of a kernel that was launched with these values in its slots."""
        assert self.core.launch(self.plan(arguments, len(values)), STREAM, *values) is True
        (launch,) = [call for call in self.fake.calls() if call["call"].startswith(("cuLaunch", "hipModuleLaunch"))]
        for argument, place in zip(arguments, launch["places"], strict=True):
            size = size_of(argument)
            assert place % (64 if argument[0] == "map" else min(8, 1 << (size - 1).bit_length())) == 0
        return [bytes.fromhex(argument) for argument in launch["arguments"]]


def kernel(
    arguments: Sequence[Any] = (),
    function: int = FUNCTION,
    grid: Any = (3, 2, 1),
    threads: int = 128,
    shared_bytes: int = 0,
    cluster: int = 1,
    cooperative: int = 0,
    dependent: int = 0,
) -> tuple[Any, ...]:
    """A step that launches a kernel."""
    return "kernel", function, grid, threads, shared_bytes, cluster, cooperative, dependent, list(arguments)


def tensor_map(
    slot: int = 0,
    shift: int = 0,
    block: Sequence[int] = (64, 32),
    shape: Sequence[int] = (1000, 512),
    strides: Sequence[int] = (512, 1),
    element: tuple[int, int] = (6, 2),
    swizzle: int = 3,
    is_nan: int = 0,
) -> tuple[Any, ...]:
    """An argument that is a tensor map."""
    return "map", slot, shift, *element, swizzle, is_nan, list(block), list(shape), list(strides)


def size_of(argument: Sequence[Any]) -> int:
    kind = argument[0]
    if kind == "bytes":
        return len(argument[1])
    return int(argument[1]) if kind == "integer" else {"fp32": 4, "fp64": 8, "map": 128}[kind]


class TableBench:
    """A copy of the core that knows the fake tensors, with a fake driver.

    Args:
        libraries: Those of `fake_driver.libraries_of`.
        folder: Where copies of them are put.
    """

    def __init__(self, libraries: dict[str, str], folder: Path) -> None:
        self.libraries, self.folder = libraries, folder
        self.core = new_core()
        self.exchange = Exchange(libraries["exchange"], folder)
        self.capsule = self.exchange.classes_of()
        assert self.core.use_tensors(self.capsule, FakeTensor, FakeParameter) is True
        self.fake = FakeDriver(libraries["cuda"], folder)
        self.handle = self.core.driver("cuda", self.fake.path)
        self.made: list[FakeTensor] = []
        self.asked: list[Any] = []

    def allocate(self, *asked: Any) -> Any:
        """Gives tensors at rising addresses."""
        self.asked.append(asked)
        self.made.append(FakeTensor(FIRST_RESULT + 0x1000 * len(self.made)))
        return self.made[-1]

    def count(self, *asked: Any) -> int:
        """Gives the address of counters."""
        self.asked.append(asked)
        return COUNTERS

    def table(
        self,
        capacity: int = 8,
        allocate: Callable[..., Any] | None = None,
        counters: Callable[..., Any] | None = None,
        listeners: tuple[Callable[[], Any], ...] = (),
        precision: Callable[[], Any] | None = None,
        has_grad: Callable[[], Any] = lambda: True,
    ) -> Any:
        """A table."""
        return self.core.table(
            capacity, allocate or self.allocate, counters or self.count, listeners, precision, has_grad
        )

    def plan(self, slots: int, number: int = 0) -> Any:
        """A plan whose kernel takes its slots as addresses."""
        self.fake.sizes([8] * slots, FUNCTION + number)
        arguments = [("integer", 8, slot, 0) for slot in range(slots)]
        step = ("kernel", FUNCTION + number, (1, 1, 1), 32, 0, 1, 0, 0, arguments)
        return self.core.plan(self.handle, slots, [step], [])

    def insert(
        self,
        table: Any,
        *tensors: Any,
        extra: Any = None,
        outputs: int = 1,
        results: int = 1,
        counters: int = 0,
        number: int = 0,
    ) -> Any:
        """Let a table learn a call."""
        plan = self.plan(len(tensors) + outputs + bool(counters), number)
        return self.core.table_insert(table, extra, tensors, plan, (SHAPE,) * outputs, results, counters)

    def launches(self) -> list[tuple[int, list[int]]]:
        """The number and the addresses of every launch so far."""
        return [
            (
                call["function"] - FUNCTION,
                [int.from_bytes(bytes.fromhex(word), "little") for word in call["arguments"]],
            )
            for call in self.fake.called("cuLaunchKernelEx")
        ]


class Named:
    """Equal by name; all have one hash."""

    def __init__(self, name: str, on_compare: Callable[[], Any] = lambda: None) -> None:
        self.name, self.on_compare = name, on_compare

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Named):
            return False
        self.on_compare()
        other.on_compare()
        return other.name == self.name
