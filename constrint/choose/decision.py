"""The request, and the decision: the program that runs it, the evidence for its time, and the candidates passed over.

A program is a list of launches. A `Decision` is a value: it renders as text, goes to JSON and back, and the
launcher takes it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from constrint.hwmodels import GpuModel
from constrint.select.candidate import Config
from constrint.select.workload import Workload


class Evidence(Enum):
    """Origin of a time, the strongest first."""

    MEASURED = "measured here"
    ELSEWHERE = "measured elsewhere"
    COMPILED = "compiled"
    MODELLED = "modelled"


class ErrorBand(NamedTuple):
    """Error of times, as shares of the measured time.

    Args:
        median: Half of the times are off by less; None where it is not recorded.
        nine_in_ten: Nine in ten are off by less.
        source: File or program that states it.
    """

    median: float | None
    nine_in_ten: float
    source: str

    def __str__(self) -> str:
        """Render as `within 6 % (median), 21 % (nine in ten)`."""
        shares = [(self.median, "median"), (self.nine_in_ten, "nine in ten")]
        return "within " + ", ".join(f"{100 * share:.2g} % ({word})" for share, word in shares if share is not None)


@dataclass(frozen=True)
class Step:
    """One launch, or one call of a library.

    Args:
        role: "product", "copy", "pointwise", "reduce", "forward" or "backward".
        kernel: Full name of the implementation, `gemm.pointer`.
        config: A value for each parameter of the kernel; empty where it has none.
        workload: The workload of this step; a layer's backward direction has one of its own.
        fixed: Values of parameters that the request, or the other direction, fixes.
        seconds: Time of this step; None where nothing predicts it.
        evidence: Origin of `seconds`.
    """

    role: str
    kernel: str
    config: Config = field(default_factory=dict)
    workload: Workload | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None
    evidence: Evidence = Evidence.MODELLED

    def to_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        workload = None if self.workload is None else asdict(self.workload)
        numbers = {"config": dict(self.config), "fixed": dict(self.fixed), "seconds": self.seconds}
        texts = {"role": self.role, "kernel": self.kernel, "evidence": self.evidence.value}
        return texts | {"workload": workload} | numbers

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Step:
        """The step that `to_plain` described.

        Raises:
            KeyError, TypeError, ValueError: For anything else.
        """
        workload = None if plain["workload"] is None else Workload(**plain["workload"])
        config, fixed = ({str(name): int(value) for name, value in plain[key].items()} for key in ("config", "fixed"))
        seconds = None if plain["seconds"] is None else float(plain["seconds"])
        evidence = Evidence(plain["evidence"])
        return Step(str(plain["role"]), str(plain["kernel"]), config, workload, fixed, seconds, evidence)

    def __str__(self) -> str:
        """Render as `product gemm.pointer tile_m=128 ...`."""
        return " ".join([self.role, self.kernel, *(f"{name}={value}" for name, value in self.config.items())])


@dataclass(frozen=True)
class Program:
    """A candidate for a request: launches with a time, or an implementation with the reason why it cannot run.

    Args:
        name: The program's name: that of its implementation (`gemm.cuda`, `cudnn`), several joined by " + ".
        steps: Its launches in order; empty where it cannot run.
        refusal: Reason why it cannot run; empty if it can.
        note: The resource that binds its time, the source of the time, or work of the program beside the launches.
        why: Reason why it is preferred to candidates of less or equal time; empty where time decides.
        table: File whose measurements answered; empty where the model did.
        band: Error of its time; None where none is recorded.
        needs: Kind of call that it runs in, `modules` say, being passed over in others; empty: it runs in any call.
    """

    name: str
    steps: tuple[Step, ...] = ()
    refusal: str = ""
    note: str = ""
    why: str = ""
    table: str = ""
    band: ErrorBand | None = None
    needs: str = ""

    @property
    def seconds(self) -> float | None:
        """Sum over the steps; None where one of them has no time, or there is none."""
        times = [step.seconds for step in self.steps]
        predicted = [time for time in times if time is not None]
        return sum(predicted) if predicted and len(predicted) == len(times) else None

    @property
    def evidence(self) -> Evidence:
        """The weakest evidence of the steps."""
        order = list(Evidence)
        return max((step.evidence for step in self.steps), key=order.index, default=Evidence.MODELLED)

    def step(self, role: str) -> Step:
        """The step of a role.

        Raises:
            KeyError: When no step has the role.
        """
        for step in self.steps:
            if step.role == role:
                return step
        raise KeyError(role)

    def to_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        texts = {name: getattr(self, name) for name in _TEXTS}
        band = None if self.band is None else self.band._asdict()
        return texts | {"band": band, "steps": [step.to_plain() for step in self.steps]}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Program:
        """The program that `to_plain` described.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: For anything else.
        """
        band = None if plain["band"] is None else ErrorBand(**plain["band"])
        texts = {name: str(plain[name]) for name in _TEXTS}
        return Program(steps=tuple(map(Step.from_plain, plain["steps"])), band=band, **texts)


#: Fields of a program that are text.
_TEXTS = ("name", "refusal", "note", "why", "table", "needs")


@dataclass(frozen=True)
class Decision:
    """The program that runs a request.

    `kernel`, `config`, `workload` and `fixed` are those of the main step, `seconds` and `is_measured` the program's.

    Args:
        request: The request.
        program: The program that runs.
        passed_over: The other candidates: by time those that can run, then those that cannot.
        recorded: Label of the plan that a call on this machine has recorded; empty where there is none.
    """

    request: Request
    program: Program
    passed_over: tuple[Program, ...] = ()
    recorded: str = ""

    @property
    def gpu(self) -> GpuModel | None:
        """The hardware model."""
        return self.request.gpu

    @property
    def step(self) -> Step:
        """The main step, after which the program is named: a product, or the forward direction."""
        return next((s for s in self.program.steps if s.role in ("product", "forward")), self.program.steps[0])

    @property
    def kernel(self) -> str:
        """Full name of the main step's implementation."""
        return self.step.kernel

    @property
    def config(self) -> Config:
        """The parameters of the main step."""
        return self.step.config

    @property
    def seconds(self) -> float:
        """Time of the program; 0 where nothing predicts it."""
        return self.program.seconds or 0.0

    @property
    def workload(self) -> Workload | None:
        """The workload of the main step; None where a configuration that fits anywhere stands in for a decision."""
        return self.step.workload

    @property
    def fixed(self) -> Mapping[str, int]:
        """Values of parameters that the request fixed."""
        return self.step.fixed

    @property
    def is_measured(self) -> bool:
        """Whether the program is a measured winner, which runs even if it spills."""
        return self.program.evidence is Evidence.MEASURED

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """All candidates, the one that runs first."""
        return self.program, *self.passed_over

    def program_of(self, name: str) -> Program:
        """The candidate of a name.

        Raises:
            KeyError: When no candidate has the name.
        """
        for program in self.programs:
            if program.name == name:
                return program
        raise KeyError(name)

    def of(self, role: str) -> Decision:
        """The decision of one step alone, for its implementation and workload; `refuse` takes this one.

        Raises:
            KeyError: When no step has the role.
        """
        step = self.program.step(role)
        if step.workload is None:
            return replace(self, program=replace(self.program, steps=(step,)), passed_over=())
        rest: dict[str, Any] = {"fixed": step.fixed, "because": self.request.because}
        request = Request(step.kernel, step.workload, self.gpu, self.request.device, **rest)
        return Decision(request, replace(self.program, name=step.kernel, steps=(step,)))

    def __str__(self) -> str:
        """Render as an explanation of several lines; `constrint why` prints it."""
        from constrint.choose.rendering import render  # loaded when the text is needed

        return render(self)

    def to_plain(self) -> dict[str, Any]:
        """Everything but the request, as plain values for JSON."""
        passed_over = [program.to_plain() for program in self.passed_over]
        return {"program": self.program.to_plain(), "passed_over": passed_over}

    @staticmethod
    def from_plain(plain: Mapping[str, Any], request: Request) -> Decision:
        """The decision that `to_plain` described.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: For anything else.
        """
        passed_over = tuple(map(Program.from_plain, plain["passed_over"]))
        return Decision(request, Program.from_plain(plain["program"]), passed_over)


def in_order(programs: Sequence[Program]) -> list[Program]:
    """Candidates by time; those without a time after them, those that cannot run last."""
    return sorted(programs, key=lambda p: (bool(p.refusal), p.seconds is None, p.seconds or 0.0))


#: Directions of a recurrent layer; every other operation has the first alone.
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Request:
    """Everything that a decision depends on; the argument of `decide`. Requests are compared and looked up by `key`.

    Args:
        operation: Name in the registry, `gemm` or `lstm`.
        workload: Sizes, dtype and options, in terms of the forward direction.
        gpu: Hardware model; None for a device of this machine without one.
        device: Device of this machine that runs the program, as torch names it; None for a named GPU, where nothing
            runs. A decision for a device is never stored on disk.
        directions: ("forward",), or ("forward", "backward") for a layer that trains: one request for both.
        fixed: Values that parameters must have.
        because: Reason for `fixed`, for conflicts.
        kernel: Name of the only implementation that may run, `pointer`; empty: all compete.
        config: The only configuration that may run; needs `kernel`.
        detail: Hashable value that the operation adds: for products the `Product` (strides, alignments, epilogue), for
            layers whether inputs are projected. Its `repr` is part of the key on disk, so it must not name an address.
    """

    operation: str
    workload: Workload
    gpu: GpuModel | None
    device: Hashable = None
    directions: tuple[str, ...] = (FORWARD,)
    fixed: Mapping[str, int] = field(default_factory=dict)
    because: str = "the request fixes it"
    kernel: str = ""
    config: Config | None = None
    detail: Hashable = None

    @staticmethod
    def of(gpu: GpuModel | None, workload: Workload, **options: Any) -> Request:
        """The request for a workload of its operation; further arguments are those of `Request`."""
        return Request(workload.operation, workload, gpu, **options)

    @cached_property
    def subject(self) -> tuple[Hashable, ...]:
        """Key under which refusals of a device are remembered: everything but the device and the model's figures."""
        gpu = None if self.gpu is None else self.gpu.name
        config = None if self.config is None else _items(self.config)
        rest = _workload_key(self.workload), self.directions, _items(self.fixed), self.detail
        return self.operation, self.kernel, config, gpu, *rest

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        """Key of the decision in memory."""
        return id(self.gpu), str(self.device), self.subject

    def without_device(self) -> Request:
        """The same request for the named GPU, whose decision is stored on disk."""
        return replace(self, device=None)


def _workload_key(workload: Workload) -> tuple[Hashable, ...]:
    return workload.operation, workload.dtype, tuple(workload.sizes.items()), _items(workload.options)


def _items(numbers: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(numbers.items()))
