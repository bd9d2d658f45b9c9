"""The gates of a candidate that is source, in their order; each runs only after the one before it was passed.

1. legal: its text is read. 2. compiles: for the named GPU, in the sandbox, without a GPU. 3. right: on input sets that
are drawn now, against a reference in fp64 in this process. 4. honest: what it did beside writing its outputs. 5. fast:
by this process's clock, on a GPU of the named model; elsewhere only the least possible time is told.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec

from constrint.errors import NoDeviceError, UsageError, printed_line
from constrint.hwmodels import GpuModel, detect, occupancy
from constrint.propose import wire
from constrint.propose.cuda import legal as cuda_legal
from constrint.propose.honesty import dishonest, floor_s
from constrint.propose.legal import canonical, illegal
from constrint.propose.operands import Expected
from constrint.propose.process import SandboxWorker, WorkerLost, WorkerRefused
from constrint.propose.sandbox import PLAIN, Sandbox, sandbox_for
from constrint.propose.score import Examined
from constrint.propose.task import Task, file_of_task, find_task
from constrint.propose.timing import Timed, check_timed_sizes, time_candidate
from constrint.propose.tolerance import compare
from constrint.propose.values import ENOUGH_CALLS, InputSet, input_sets, repeated_sets, strided
from constrint.propose.worker.tensors import array_of, layout_of, values_of
from constrint.tune.search.llm.records import MAX_REASON, Gate, GateResult, Resources, SourceProposal

#: Time limit of one request, in seconds: a compilation, a call, a run of timed calls.
PATIENCE_S = 60.0
#: A type that Triton's interpreter computes wrongly.
NOT_INTERPRETED = ("bf16",)
#: Most bytes of a call at the sizes of the timing that is interpreted.
MOST_INTERPRETED_BYTES = 1 << 18
#: Most draws of sizes until other values give other outputs; a constant function never does.
MOST_DRAWN = 32


@dataclass(frozen=True)
class GateSettings:
    """Settings of the gates.

    Args:
        allow_unsandboxed: Whether a machine without bubblewrap may run them.
        device: `cuda`, or `cpu` for Triton's interpreter; empty for what this machine has.
        origin: Who proposed: kept with the results.
        seed: Decides the inputs; None to draw it when the candidate is at hand, as it has to be outside of tests.
        patience_s: How long one request may take.
        is_timed: Whether the last gate may time; without it only the least possible time is told.
    """

    allow_unsandboxed: bool = False
    device: str = ""
    origin: str = ""
    seed: int | None = None
    patience_s: float = PATIENCE_S
    is_timed: bool = True


def examine(proposal: SourceProposal, gpu: GpuModel, settings: GateSettings | None = None) -> Examined:
    """Take a candidate through the gates, as far as it comes.

    Args:
        proposal: The candidate.
        gpu: The GPU that it is for.
        settings: How.

    Raises:
        UnknownNameError: When there is no such task.
        UsageError: When there is no sandbox and it was not said that this is allowed, or torch or triton is missing.
    """
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        raise UsageError(f"source is examined with {' and '.join(missing)}: pip install 'constrint[torch]'.")
    return Examination(proposal, gpu, settings or GateSettings()).run()


def _triton_problem(proposal: SourceProposal, task: Task) -> str:
    if proposal.launches or proposal.scratch:
        return "launches and scratch are stated for CUDA C++ alone; a candidate in Triton launches its kernels itself."
    return illegal(proposal.source, proposal.entry)


#: Reads a candidate, by its language.
_LEGAL: Mapping[str, Callable[[SourceProposal, Task], str]] = {"triton": _triton_problem, "cuda": cuda_legal.illegal}


class Failing(Exception):
    """Raised by a gate that a candidate does not pass; the text says why."""


@dataclass(frozen=True)
class Passed:
    """The result of a passed gate."""

    message: str = ""
    resources: Resources | None = None
    seconds: float | None = None
    is_modelled: bool = False


class Examination:
    """One candidate on its way through the gates.

    Each gate is a method that raises `Failing` or returns what it found.
    """

    def __init__(self, proposal: SourceProposal, gpu: GpuModel, settings: GateSettings) -> None:
        self._proposal, self._gpu, self._settings = proposal, gpu, settings
        self.task = find_task(proposal.task)
        self._sandbox: Sandbox = sandbox_for(settings.allow_unsandboxed)
        self._device = settings.device or _device_for(gpu)
        self._seed = secrets.randbits(48) if settings.seed is None else settings.seed
        self._results: list[GateResult] = []
        self._watched: list[wire.Watched] = []
        self._worker: SandboxWorker | None = None
        self._stack = ExitStack()
        self.timed: Timed | None = None

    @property
    def is_interpreted(self) -> bool:
        """Whether Triton's interpreter runs the candidate."""
        return self._device == "cpu"

    @property
    def _ends_compiled(self) -> bool:
        """Whether nothing here could run it."""
        return self.is_interpreted and self._proposal.language == "cuda"

    def run(self) -> Examined:
        """Every gate, up to the first that fails."""
        gates: tuple[tuple[Gate, Callable[[], Passed]], ...] = (
            ("legal", self.legal),
            ("compiles", self.compiles),
            ("right", self.right),
            ("honest", self.honest),
            ("fast", self.fast),
        )
        with self._stack:
            for gate, pass_through in gates[: 2 if self._ends_compiled else None]:
                if not self._record(gate, pass_through):
                    break
        timed = self.timed
        return Examined(
            tuple(self._results),
            None if timed is None else timed.baseline_s / timed.seconds,
            None if timed is None else timed.baseline_s,
            self.is_interpreted,
        )

    def close(self) -> None:
        """End what still runs, where the gates were called one by one."""
        self._stack.close()

    def _record(self, gate: Gate, pass_through: Callable[[], Passed]) -> bool:
        try:
            passed, is_passed = pass_through(), True
        except (Failing, WorkerRefused, WorkerLost) as error:
            passed, is_passed = Passed(str(error)), False
        self._results.append(
            GateResult(
                gate=gate,
                passed=is_passed,
                kernel=self._proposal.task,
                message=printed_line(passed.message, MAX_REASON),
                seconds=passed.seconds,
                is_modelled=passed.is_modelled,
                resources=passed.resources,
                candidate=hashlib.sha256(self._proposal.source.encode(errors="surrogatepass")).hexdigest()[:16],
                origin=self._settings.origin,
            )
        )
        return is_passed

    def legal(self) -> Passed:
        """The text is read; nothing executes."""
        problem = _LEGAL[self._proposal.language](self._proposal, self.task)
        if problem:
            raise Failing(problem)
        return Passed()

    def compiles(self) -> Passed:
        """Every kernel that it launches at the sizes of the timing compiles, for every type, and fits the GPU."""
        task, kernels = self.task, list[wire.Kernel]()
        # Where a GPU runs what it compiles, one process does both.
        with self._started(is_interpreted=False) if self.is_interpreted else nullcontext(self._running()) as worker:
            for dtype in task.dtypes:
                outputs, inputs = task.layouts(task.timed_sizes, dtype)
                request = wire.Compile(gpu=self._gpu.name, outputs=outputs, inputs=inputs)
                kernels += worker.ask(request, wire.CompiledKernels, self._settings.patience_s).kernels
        if not kernels:
            raise Failing("it launches no kernel of its own.")
        for kernel in kernels:
            _check_fits(kernel, self._gpu)
        largest = max(kernels, key=lambda kernel: kernel.registers)
        resources = Resources(
            registers=largest.registers,
            spill_bytes=max(kernel.spill_bytes for kernel in kernels),
            smem_bytes=max(kernel.smem_bytes for kernel in kernels),
        )
        sandbox = f"sandbox: {self._sandbox.kind}" + (f" ({self._sandbox.note})" if self._sandbox.note else "")
        rest = f"; CUDA C++ runs on a GPU alone, and no {self._gpu.name} is here" if self._ends_compiled else ""
        return Passed(f"{len(kernels)} kernels for {self._gpu.name}; {sandbox}{rest}", resources)

    def right(self) -> Passed:
        """Its outputs are within what rounding explains on every set of inputs."""
        self._watched.clear()
        sets = input_sets(self.task.extents, self._checked_dtypes(), self._seed)
        worst = max(self._call(inputs) for inputs in sets)
        if self._can_take_timed_sizes():
            problem = check_timed_sizes(self._proposal.task, self._running(), self._device, self._settings.patience_s)
            if problem:
                raise Failing(f"at the sizes of the timing: {problem}")
        where = "interpreted on the CPU, without bf16" if self.is_interpreted else f"on this {self._gpu.name}"
        return Passed(f"{len(self._watched)} input sets {where}; the largest error is {worst:.2g} of the bound")

    def _can_take_timed_sizes(self) -> bool:
        """Whether a call at the sizes of the timing ends soon: on a GPU, or interpreted where they are small."""
        sizes, dtype = self.task.timed_sizes, self.task.timed_dtype
        is_small = self.task.moved_bytes(sizes, dtype) <= MOST_INTERPRETED_BYTES
        return not self.is_interpreted or (is_small and dtype in self._checked_dtypes())

    def honest(self) -> Passed:
        """Its own kernels did the work, in every call anew, touched nothing else, and were right often enough."""
        self._check_watched()
        # The same sizes and memory with other values, then with those of the first call: what was kept would be seen.
        ragged, other = self._distinct_sets()
        for number, inputs in enumerate((ragged, other, ragged)):
            # The first of these sizes may be some that were drawn before, with other values.
            when = "when other values lie in the same memory" if number else "when it is called again"
            self._call_again(inputs, when, in_same_memory=number > 0)
        self._check_watched()
        missing = ENOUGH_CALLS - len(self._watched)
        for inputs in repeated_sets(self.task.extents, self._checked_dtypes(), self._seed, missing):
            self._call_again(inputs, f"in call {len(self._watched) + 1}")
        self._check_watched()
        return Passed(
            f"its own kernels do the work; nothing is kept between calls; {len(self._watched)} calls are right"
        )

    def _call_again(self, inputs: InputSet, when: str, *, in_same_memory: bool = False) -> None:
        try:
            self._call(inputs, in_same_memory=in_same_memory)
        except Failing as error:
            raise Failing(f"right at first, and not {when}: {error}") from None

    def _check_watched(self) -> None:
        problem = dishonest(self._watched)
        if problem:
            raise Failing(problem)

    def fast(self) -> Passed:
        """Its time by this process's clock, on inputs drawn anew; right there too, and not below the physical floor."""
        task, gpu = self.task, self._gpu
        if self.is_interpreted or not self._settings.is_timed:
            least = floor_s(task, task.timed_sizes, task.timed_dtype, gpu)
            why = f"no {gpu.name} here" if self.is_interpreted else "it was not asked for"
            note = f"not timed: {why}; this is the least time that its bandwidth and peak rates allow"
            return Passed(note, seconds=least, is_modelled=True)
        with self._plain() as baseline:
            workers = self._running(), baseline
            timed = time_candidate(self._proposal.task, gpu, workers, self._device, self._settings.patience_s)
        if timed.problem:
            raise Failing(timed.problem)
        self.timed = timed
        return Passed(timed.text, seconds=timed.seconds)

    def _distinct_sets(self) -> tuple[InputSet, InputSet]:
        """A ragged set, and one with other values of the same sizes to which the outputs of the first are wrong.

        They are drawn until that is so: a row of one element has the softmax 1 whatever the element is.
        """
        for drawn in range(1, 1 + MOST_DRAWN):
            ragged = list(input_sets(self.task.extents, self._checked_dtypes()[:1], self._seed + drawn))[1]
            other = replace(ragged, seed=ragged.seed + 1)
            expected = {name: one.value for name, one in self._expected(ragged).items()}
            outputs = self.task.outputs(self.task.draw(ragged.sizes, ragged.dtype, seed=ragged.seed))
            written = {name: expected[name].to(output.dtype) for name, output in outputs.items()}
            if compare(written, self._expected(other), self.task.num_terms(other.sizes), other.text)[1]:
                break
        return ragged, other

    def _expected(self, inputs: InputSet) -> dict[str, Expected]:
        """The outputs of a set in fp64."""
        values = self.task.draw(inputs.sizes, inputs.dtype, seed=inputs.seed, style=inputs.style)
        return self.task.reference({n: v.double() if v.is_floating_point() else v for n, v in values.items()})

    def _checked_dtypes(self) -> tuple[str, ...]:
        return tuple(t for t in self.task.dtypes if not (self.is_interpreted and t in NOT_INTERPRETED))

    def _call(self, inputs: InputSet, *, in_same_memory: bool = False) -> float:
        """One call in the worker, and how far its outputs are from the reference over the bound."""
        task = self.task
        values = task.draw(inputs.sizes, inputs.dtype, seed=inputs.seed, style=inputs.style)
        operands = {
            n: strided(v, inputs.seed + i, inputs.least_column_stride) if inputs.is_strided else v
            for i, (n, v) in enumerate(values.items())
        }
        outputs = tuple(layout_of(name, output) for name, output in task.outputs(values).items())
        request = wire.CallOnce(
            outputs=outputs,
            inputs=tuple(array_of(name, value) for name, value in operands.items()),
            in_same_memory=in_same_memory,
        )
        reply = self._running().ask(request, wire.Called, self._settings.patience_s)
        if [array.layout for array in reply.outputs] != list(outputs):
            raise WorkerLost("its answer is none: other outputs than were asked for.")
        self._watched.append(reply.watched)
        try:
            written = {array.layout.name: values_of(array) for array in reply.outputs}
        except ValueError as error:
            raise WorkerLost(f"its answer is none: {error}.") from None
        worst, problem = compare(written, self._expected(inputs), task.num_terms(inputs.sizes), inputs.text)
        if problem and reply.watched.returned:
            problem += f" It returned a {reply.watched.returned}: write the outputs, return nothing."
        if reply.watched.overrun:
            problem = f"it wrote beside {', '.join(reply.watched.overrun)} ({inputs.text})."
        if problem:
            raise Failing(problem)
        return worst

    def _running(self) -> SandboxWorker:
        """The worker that runs the candidate, on the GPU or interpreted; the same from gate to gate."""
        if self._worker is None:
            self._worker = self._stack.enter_context(self._started(is_interpreted=self.is_interpreted))
        return self._worker

    @property
    def _load(self) -> wire.Load | wire.LoadCuda:
        """The candidate as a worker is told it."""
        proposal = self._proposal
        if proposal.language == "triton":
            return wire.Load(source=canonical(proposal.source), entry=proposal.entry)
        return wire.LoadCuda(
            source=proposal.source,
            launches=proposal.launches,
            scratch=dict(proposal.scratch),
            arguments=self.task.arguments,
            gpu=self._gpu.name,
        )

    @contextmanager
    def _started(self, *, is_interpreted: bool) -> Iterator[SandboxWorker]:
        """A worker that has loaded the candidate."""
        file = file_of_task(self._proposal.task)
        tasks = () if file is None else (file,)
        uses_gpu = not self.is_interpreted
        with SandboxWorker(self._sandbox, is_interpreted=is_interpreted, uses_gpu=uses_gpu, tasks=tasks) as worker:
            worker.ask(self._load, wire.Acknowledged, self._settings.patience_s)
            yield worker

    @contextmanager
    def _plain(self) -> Iterator[SandboxWorker]:
        """A worker with plain PyTorch in the candidate's place; the task is the user's own, so it needs no sandbox."""
        with SandboxWorker(PLAIN, uses_gpu=True) as worker:
            worker.ask(wire.LoadPlain(task=self._proposal.task), wire.Acknowledged, self._settings.patience_s)
            yield worker


def _check_fits(kernel: wire.Kernel, gpu: GpuModel) -> None:
    if min(kernel.threads_per_block, kernel.registers + 1, kernel.smem_bytes + 1) < 1:
        raise WorkerLost(f"its answer is none: {kernel.name} takes less than nothing.")
    sm = gpu.sm
    for what, taken, most in (
        ("threads of a block", kernel.threads_per_block, sm.max_threads_per_block),
        ("registers of a thread", kernel.registers, sm.max_registers_per_thread),
        ("bytes of shared memory", kernel.smem_bytes, sm.max_smem_bytes_per_block),
    ):
        if taken > most:
            raise Failing(f"no block of {kernel.name} fits {gpu.name}: it takes {taken} {what}, and there are {most}.")
    resident = occupancy(
        gpu,
        threads_per_block=kernel.threads_per_block,
        registers_per_thread=max(kernel.registers, 1),
        smem_bytes_per_block=kernel.smem_bytes,
    )
    if int(resident.blocks_per_sm) < 1:
        raise Failing(
            f"no block of {kernel.name} fits {gpu.name}: {kernel.threads_per_block} threads of {kernel.registers} "
            f"registers and {kernel.smem_bytes} bytes of shared memory."
        )


def _device_for(gpu: GpuModel) -> str:
    """`cuda` where this machine has such a GPU."""
    try:
        models = [device.model for device in detect()]
    except NoDeviceError:
        return "cpu"
    return "cuda" if gpu.name in models[:1] else "cpu"
