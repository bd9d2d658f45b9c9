"""What a report is asked about: a kernel's implementations on one GPU, with the spaces that they are ranked over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from constrint.hwmodels import GpuModel
from constrint.select import Operation, Workload
from constrint.select.as_compiled import Compile
from constrint.select.rank import KernelProblem

if TYPE_CHECKING:
    from constrint.report.facts.records import MeasuredFacts


@dataclass(frozen=True)
class GpuQuestion:
    """A workload on one GPU.

    Args:
        gpu: The hardware model.
        title: What was asked, in a line.
        workload: The sizes and the dtype; None where nothing can take them.
        operation: What was asked for, with its implementations.
        requests: The implementations that can take the workload, with their spaces and the user's own rules.
        refusals: Why the others cannot, by full name.
        notes: What a user wants to hear of these, a sentence each.
        own: The constraints that the user added, by `id`.
        arguments: What was asked as arguments of a command, to be repeated.
        refusal: Why nothing can be said of this GPU at all; empty where something can.
        ways_out: Says what would help where nothing fits, by the kernel's full name.
    """

    gpu: GpuModel
    title: str
    workload: Workload | None
    operation: Operation
    requests: tuple[KernelProblem, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    own: Collection[int] = ()
    arguments: tuple[str, ...] = ()
    refusal: str = ""
    ways_out: Callable[[str], Sequence[str]] = lambda kernel: ()


@dataclass(frozen=True)
class Means:
    """What the facts are gathered with.

    Args:
        top: How many configurations are shown.
        num_compiled: How many of the best are compiled.
        over: The two parameters of the heat map; the most telling ones where none are named.
        compile_all: Compiles configurations; None where nothing is to be compiled.
        measured: What was measured of a workload on a GPU.
        say: Told what is being done, for a line of progress.
    """

    top: int = 20
    num_compiled: int = 0
    over: tuple[str, str] | None = None
    compile_all: Compile | None = None
    measured: Callable[[GpuQuestion], Sequence[MeasuredFacts]] = lambda question: ()
    say: Callable[[str], None] = lambda text: None
