"""A solve by the CUDA kernel: the configuration, launches of many iterations, and their state. Needs torch."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from constrint.choose import Decision, Request, decide
from constrint.errors import UnsupportedError, UsageError
from constrint.kernels.cg.launch import DTYPE_NAMES, Span, cg_launch, memory_of
from constrint.kernels.cg.loop import RUNNING, Recurrence
from constrint.kernels.cg.shape import STATE_SIZE, num_blocks
from constrint.kernels.cg.star import StarMatrix
from constrint.kernels.cg.systems import LinearSystem
from constrint.kernels.launch.cuda.nvrtc import nvrtc_version
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.look import look
from constrint.kernels.launch.policy import launch_what_fits
from constrint.select.candidate import Config
from constrint.select.workload import Workload

#: Iterations of a launch, between which the host may stop the solve.
ITERATIONS_OF_LAUNCH = 1000
#: Decisions that ran, by request, device and star, and the most of them.
_FITTING: dict[tuple[object, ...], Decision] = {}
MOST_FITTING = 4096


def why_not_fused(system: LinearSystem, preconditioner: object) -> str:
    """Why the CUDA kernel does not solve a system; empty if it does."""
    b = system.b
    if b.device.type != "cuda" or torch.version.hip:
        return "it runs on NVIDIA's GPUs"
    if system.matrix is None:
        return "it reads stars and matrices in CSR"
    if not (preconditioner is None or isinstance(preconditioner, str)):
        return "it calls no preconditioner of others"
    if not 1 <= b.numel() < 2**31:
        return "it is for 1 to 2^31 - 1 rows"
    if gpu_of(b.device) is None:
        return "there is no hardware model of the device"
    return "" if _has_nvrtc() else "it is compiled by NVRTC, which is not installed: pip install 'constrint[cuda]'"


@lru_cache(maxsize=1)
def _has_nvrtc() -> bool:
    try:
        nvrtc_version()
    except UsageError:
        return False
    return True


def workload_of_call(system: LinearSystem, *, is_jacobi: bool) -> Workload:
    """The workload for which a configuration is chosen."""
    rows, matrix = system.b.numel(), system.matrix
    dtype = DTYPE_NAMES[system.b.dtype]
    if isinstance(matrix, StarMatrix):
        _, ny, nx = matrix.extents
        options = {"nx": nx} | ({"ny": ny} if len(matrix.shape) == 3 else {})
        reach = max((max(map(abs, offset)) for offset in matrix.offsets), default=1)
        options |= {"reach": min(reach, 4)} if reach > 1 else {}
        return Workload("cg", {"rows": rows, "nnz": rows}, dtype, options)
    assert matrix is not None
    starts, _, values = matrix
    options = ({"jacobi": 1} if is_jacobi else {}) | ({"long": 1} if starts.dtype == torch.int64 else {})
    # Elements are rounded up by at most a sixteenth, so that matrices alike share a decision.
    nnz = max(1, values.numel())
    step = 1 << max(0, nnz.bit_length() - 5)
    return Workload("cg", {"rows": rows, "nnz": min(-(-nnz // step) * step, rows * rows)}, dtype, options)


def _shape_of(star: StarMatrix) -> tuple[object, ...]:
    return star.extents, tuple(star.lines)


class FusedSolve:
    """A solve on one device: its memory, and the configuration once a launch has run.

    Args:
        system: The system.
        x: (n,): the guess, which becomes the solution.
        inverse: The inverse diagonal of a matrix in CSR, or None.
        scale: Inverse diagonal of a star with a preconditioner; else 1.
        config: The configuration that the caller names, or None.
    """

    def __init__(
        self, system: LinearSystem, x: Tensor, inverse: Tensor | None, scale: float, config: Config | None, most: int
    ) -> None:
        gpu = gpu_of(system.b.device)
        if gpu is None or system.matrix is None:
            raise UnsupportedError("cg.cuda: there is no hardware model of the device.")
        self._gpu, self._system, self._config, self._scale = gpu, system, config, scale
        workload = workload_of_call(system, is_jacobi=inverse is not None)
        self._decision: Decision = decide(Request("cg", workload, gpu, kernel="cuda", config=config))
        blocks = num_blocks(system.b.numel(), gpu.device.sm_count, 32, 64)
        history = min(most, ITERATIONS_OF_LAUNCH) + 1
        self._memory = memory_of(system.b, x, system.matrix, history, blocks, inverse)

    def run(
        self, rtol: float, atol: float, first: int, most: int, *, has_guess: bool
    ) -> tuple[Recurrence, float, float]:
        """Iterate from x until the recurrence ends; the progress, ||b - A x|| and the threshold."""
        squares: list[float] = []
        begun = first
        while True:
            last = min(most, begun + ITERATIONS_OF_LAUNCH)
            span = Span(rtol, atol, begun, last, most, has_guess, is_resumed=begun > first, scale=self._scale)
            self._launch(span)
            memory = self._memory
            numbers = torch.cat((memory.state, memory.history)).tolist()
            state, seen = numbers[:STATE_SIZE], numbers[STATE_SIZE:]
            ended = int(state[5])
            squares += seen[(1 if span.is_resumed else 0) : ended - begun + 1]
            if int(state[6]) != RUNNING:
                progress = Recurrence(ended - first, int(state[6]), squares, state[7])
                return progress, _root(state[3]), state[4]
            begun = ended

    def _launch(self, span: Span) -> None:
        def start(chosen: Decision, /, *, may_spill: bool) -> None:
            launch = cg_launch(self._gpu, self._memory, chosen.config, span)
            look([launch], may_spill=may_spill)
            self._enqueue(launch)

        if self._config is not None:
            start(self._decision, may_spill=True)
            return
        # The compiler and the driver are asked once for a system's size and shape.
        star = self._memory.system.star
        key = (self._decision.request.key, self._system.b.device.index, None if star is None else _shape_of(star))
        fitting = _FITTING.get(key)
        if fitting is not None:
            self._enqueue(cg_launch(self._gpu, self._memory, fitting.config, span))
            return
        self._decision = launch_what_fits(self._decision, start, optional=("star",) * bool(self.is_star))
        if len(_FITTING) >= MOST_FITTING:
            _FITTING.clear()
        _FITTING[key] = self._decision

    def _enqueue(self, launch: CudaLaunch) -> None:
        self._memory.slots.zero_()
        launch.run()

    @property
    def is_star(self) -> bool:
        """Whether the matrix is a star."""
        return isinstance(self._system.matrix, StarMatrix)


def _root(square: float) -> float:
    return square**0.5 if square >= 0 else square
