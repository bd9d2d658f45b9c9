"""The products of one matrix: by torch first, then by what a trial finds fastest, and by a copy once it pays.

The first product of a matrix is torch's own, so that a matrix that is used once costs nothing. The second one reads
the matrix and begins a trial of the kernels that read CSR beside torch's product, which nothing slower than runs. A
kernel that copies the matrix is built when products so far would have saved the time of building it, by prediction,
and then has to win a trial, too: whatever the number of products is, they take at most twice the least time, and some
more for trials. Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constrint.choose import Request, decide
from constrint.errors import ConstrintError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.first_call import has_nvrtc, machine_of
from constrint.kernels.launch.plan.trial import CallTrial, rounds_of, trials_are_on
from constrint.kernels.spmv.copies import CopiedProducts
from constrint.kernels.spmv.cost import SparseShape, build_s, copied_bytes, hash_s
from constrint.kernels.spmv.formats import MOST_PATTERN_ROW, MOST_PATTERNS
from constrint.kernels.spmv.launch import library_product
from constrint.kernels.spmv.planned import Run, compile_side_by_side, label, planned
from constrint.kernels.spmv.spec import MOST_LOCAL, MOST_WIDTH
from constrint.kernels.spmv.structure import Known
from constrint.select.candidate import Config

AUTO, LIBRARY = "auto", "library"
#: Kernels that read CSR as it is, and those that copy it.
OWN, COPYING = ("merge", "vector", "near", "patterns"), ("panels", "ell")
KERNELS = (AUTO, *OWN, *COPYING, LIBRARY)
IN_CUDA = ("merge", "patterns", "panels")
#: Configurations where there is no hardware model to choose by.
ANYWHERE: dict[str, Config] = {
    "vector": {"threads_per_row": 8, "rows_per_block": 64, "num_warps": 4},
    "near": {"threads_per_row": 8, "rows_per_block": 64, "num_warps": 4},
    "ell": {"slice_height": 128, "window": 4096, "unroll": 4, "num_warps": 4},
}
#: A candidate is tried where its predicted time is at most this multiple of the least one.
TRIED_REACH = 2.5
#: Mean length of rows up to which a thread adds whole rows, and up to which two at a time; its block otherwise.
MOST_SERIAL, MOST_SHORT = 12.0, 4.0
WHOLE_ROWS: Config = {"rows_per_block": 64, "num_warps": 2}
#: Entries of a row of mean length for each of its threads, few and many threads; threads and further rows of a block.
LANE_ENTRIES, GROUPED = (3.4, 1.3), 512
#: Longest row, as a multiple of the mean, up to which columns of 16 bits are tried.
NEAR_LONGEST = 16
#: A copy is made where it may save time: by its predicted time less this share, by which predictions err. Another is
#: tried beside it where it takes at most this multiple of its time.
DOUBT, COPY_REACH = 0.1, 1.25
#: Bytes that making a copy takes beside it, as a multiple of the copy's, and the share of free memory for both.
BUILD_MEMORY, MEMORY_SHARE = 6, 0.5
#: Outcomes of trials in memory, at most.
CAPACITY = 4096


class PricedKernel(NamedTuple):
    """A kernel that may run products.

    Args:
        kernel, config: The implementation and its configuration.
        seconds: Predicted or measured time.
        bias: Measured over predicted time, at most 1; repeated products find a part of the matrix in the L2, which
            predictions do not count on.
    """

    kernel: str
    config: Config
    seconds: float
    bias: float = 1.0


#: The fastest candidate by device, workload and kind of call.
_SETTLED: dict[Hashable, PricedKernel] = {}


class Products:
    """Runs one kind of products of a matrix.

    Args:
        known: The matrix.
        matrix: Returns the matrix as torch's tensor; None once it is gone.
        width: Columns of x; 0 for a vector.
        has_source: Whether something is added.
        kernel, config: What the caller names.
        reuse: Products that the caller expects beside those so far.
        frozen: Whether the caller promises that nothing writes values; False: copied values are compared in every
            product; None: where writes may go uncounted.
    """

    def __init__(
        self, known: Known, matrix: Any, width: int, has_source: bool, kernel: str, config: Config | None, reuse: int,
        frozen: bool | None,
    ) -> None:  # fmt: skip
        self.known, self.matrix = known, matrix
        self.width, self.has_source, self.reuse, self.frozen = width, has_source, reuse, frozen
        self.best = self.running = PricedKernel(LIBRARY, {}, float("inf"))
        self.library: Run = partial(_library, matrix)
        self.current: Run = self._first
        self.left = 0
        if kernel == LIBRARY:
            self.current = self.library
        elif kernel != AUTO:
            self.current = self._named(kernel, config)

    def __call__(self, x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
        """alpha * A @ x + beta * source."""
        return self.current(x, source, alpha, beta)

    def describe(self) -> str:
        """The kernel that runs, with its configuration; what a trial or a count of products may change."""
        return label(self.running.kernel, self.running.config)

    def close(self) -> None:
        """Let go of the arrays of the kernel that runs; the next product begins anew."""
        self.current = self._first

    def _first(self, x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
        """Run torch's product; from the second one on, or where many are expected, choose a kernel."""
        if (self.known.calls <= 1 and not self.reuse) or self.width > MOST_WIDTH or _is_captured():
            return self.library(x, source, alpha, beta)
        self._choose(x, source)
        return self.current(x, source, alpha, beta)

    def _named(self, kernel: str, config: Config | None) -> Run:
        """A function that runs the kernel that the caller names.

        Raises:
            UnsupportedError: When it does not compute the product.
            UsageError: When its configuration is not valid.
        """
        reason = _why_not(kernel, self.known, self.width)
        if reason:
            raise UnsupportedError(f"spmv.{kernel} does not compute this product: {reason}.")
        chosen = self.running = self._candidate(kernel, config)
        if kernel in COPYING:
            return CopiedProducts(self.known, kernel, chosen.config, self.frozen)
        return planned(self.known, kernel, chosen.config)

    def _candidate(
        self, kernel: str, config: Config | None = None, fixed: Mapping[str, int] | None = None
    ) -> PricedKernel:
        """The best configuration of a kernel by prediction, with its time; some parameters may be fixed.

        Raises:
            ConstrintError: When there is none, or the named one is not valid.
        """
        gpu = machine_of(self.known.values.device)[0]
        if gpu is None:
            return PricedKernel(kernel, config or ANYWHERE[kernel], 0.0)
        workload = self.known.read().workload(self.known.dtype, max(1, self.width))
        decision = decide(Request("spmv", workload, gpu, kernel=kernel, config=config, fixed=fixed or {}))
        return PricedKernel(kernel, decision.config, decision.seconds)

    def _choose(self, x: Tensor, source: Tensor | None) -> None:
        """Settle on what an earlier trial found, or begin one on these operands."""
        settled = _SETTLED.get(self._key()) if trials_are_on() else None
        if settled is not None:
            self._settle(settled)
            return
        offers = [self._offer(kernel, fixed) for kernel in OWN for fixed in self._tried(kernel)]
        candidates = sorted((each for each in offers if each is not None), key=lambda each: each.seconds)
        candidates = [each for each in candidates if each.seconds <= TRIED_REACH * candidates[0].seconds]
        if not candidates:
            self.current = self.library
            return
        library = self._offer(LIBRARY)
        if not trials_are_on() or torch.are_deterministic_algorithms_enabled():
            candidates += [library] if library is not None else []
            self._settle(min(candidates, key=lambda each: each.seconds))
            return
        compile_side_by_side(self.known, [(each.kernel, each.config) for each in candidates], x, source)
        candidates.append(library or PricedKernel(LIBRARY, {}, candidates[0].seconds))
        self.current = self._trial(candidates, len(candidates) - 1)

    def _tried(self, kernel: str) -> list[Mapping[str, int]]:
        """Values of parameters that a trial decides, since the models do not tell them apart."""
        structure = self.known.read()
        mean = structure.entries / structure.shape[0]
        if kernel == "merge":
            return [{"by_rows": 1, "num_stages": 1}, {"by_rows": 0, "num_stages": 1}, {"by_rows": 1, "num_stages": 2}]
        if self.width:
            return [{}]
        if kernel == "patterns":
            return [{"num_stages": stages, **fixed} for stages, fixed in ((2, {}), (1, {}), (2, {"resident": 4}))]
        if kernel == "near" and structure.facts.longest > NEAR_LONGEST * mean:
            return []
        # One thread for each short row; else few threads with an entry or two at a time, or many at once.
        narrow, wide = (min(32, max(2, 1 << round(math.log2(max(2.0, mean / by))))) for by in LANE_ENTRIES)
        tried: list[Mapping[str, int]] = []
        if mean <= MOST_SERIAL:
            blocks = {"rows_per_block": 256, "num_warps": 4} if mean <= MOST_SHORT else WHOLE_ROWS
            tried.append({"threads_per_row": 1, **blocks})
        for lanes in dict.fromkeys((narrow, wide)):
            tried.append({"threads_per_row": lanes, "rows_per_block": GROUPED // lanes, "num_warps": 4})
        return tried[:1] if kernel == "near" and mean <= MOST_SERIAL else tried

    def _offer(self, kernel: str, fixed: Mapping[str, int] | None = None) -> PricedKernel | None:
        """The candidate of a kernel; None where it does not compute the product, or nothing of it fits."""
        if _why_not(kernel, self.known, self.width):
            return None
        with suppress(ConstrintError):
            return self._candidate(kernel, fixed=fixed)
        return None

    def _trial(self, candidates: Sequence[PricedKernel], standard: int) -> Any:
        """A trial of candidates in turn, of which one is what would run anyway."""
        runs = [self._run_of(each) for each in candidates]

        def settle(_: Any, seconds: Sequence[float], best: int) -> None:
            bias = min(1.0, seconds[best] / candidates[best].seconds) if candidates[best].seconds > 0 else 1.0
            self._settle(candidates[best]._replace(seconds=seconds[best], bias=bias), runs[best])

        return CallTrial(runs, rounds_of([each.seconds for each in candidates]), settle, standards=[standard])

    def _run_of(self, candidate: PricedKernel) -> Run:
        if candidate.kernel == LIBRARY:
            return self.library
        return planned(self.known, candidate.kernel, candidate.config)

    def _settle(self, best: PricedKernel, run: Run | None = None) -> None:
        """Run the best candidate from now on; count products until a copy pays."""
        if len(_SETTLED) >= CAPACITY:
            _SETTLED.clear()
        self.best = best
        if trials_are_on():
            _SETTLED[self._key()] = best
        self.current, self.running = run or self._run_of(best), best
        copies = self._copies()
        if copies:
            plain = self.current
            self.current = lambda *call: self._counted(plain, copies, *call)

    def _copies(self) -> list[PricedKernel]:
        """Copying kernels that may save time, the best first; states after how many products.

        What is saved is counted with a doubt in a copy's favour. Making a copy that turns out slower takes no more than
        that doubt's share of the time of the products before.
        """
        shape, device = SparseShape.of(self._workload()), self.known.values.device
        gpu = machine_of(device)[0]
        if gpu is None or not trials_are_on() or not self.known.takes_copies:
            return []
        offers = [each for each in map(self._offer, COPYING) if each is not None]
        is_compared = not (self.known.writes.are_counted() if self.frozen is None else self.frozen)
        compared = hash_s(gpu, shape) if is_compared else 0.0
        hoped = (1 - DOUBT) * self.best.bias
        priced = [each._replace(seconds=each.seconds * hoped + compared) for each in offers]
        priced = [each for each in priced if each.seconds < self.best.seconds]
        if not priced:
            return []
        priced.sort(key=lambda each: each.seconds)
        priced = [each for each in priced if each.seconds <= COPY_REACH * priced[0].seconds]
        built = sum(build_s(gpu, shape, each.kernel) for each in priced)
        self.left = max(1, int(built / (self.best.seconds - priced[0].seconds)) - self.reuse)
        return priced

    def _counted(
        self, plain: Run, copies: Sequence[PricedKernel], x: Tensor, source: Tensor | None, alpha: float, beta: float
    ) -> Tensor:
        """Run a product without a copy; when enough have run, make copies and try them."""
        self.left -= 1
        if self.left > 0 or _is_captured():
            return plain(x, source, alpha, beta)
        self.current = plain
        shape, free = SparseShape.of(self._workload()), torch.cuda.mem_get_info(x.device)[0]
        runs: list[Run] = [plain]
        priced = [self.best]
        for copy in copies:
            needed = BUILD_MEMORY * copied_bytes(shape, copy.kernel)
            if needed <= MEMORY_SHARE * free:
                with suppress(torch.cuda.OutOfMemoryError, ConstrintError):
                    runs.append(
                        CopiedProducts(self.known, copy.kernel, copy.config, self.frozen, partial(self._give_up, plain))
                    )
                    priced.append(copy)
            free -= copied_bytes(shape, copy.kernel)
        if len(runs) > 1:
            self.current = self._trial_of_copies(runs, priced)
        return self.current(x, source, alpha, beta)

    def _give_up(self, plain: Run) -> Run:
        """Run without a copy from now on: copies that were made in vain are not made again."""
        self.known.copies.clear()
        self.current, self.running = plain, self.best
        return plain

    def _trial_of_copies(self, runs: Sequence[Run], priced: Sequence[PricedKernel]) -> Any:
        """A trial of copies beside what runs without one; arrays of those that lose are freed."""

        def settle(_: Any, seconds: Sequence[float], best: int) -> None:
            self.known.drop_copies_but(priced[best].kernel if best else "")
            self.current, self.running = runs[best], priced[best]._replace(seconds=seconds[best])

        return CallTrial(runs, rounds_of([each.seconds for each in priced]), settle, standards=[0])

    def _workload(self) -> Any:
        return self.known.read().workload(self.known.dtype, max(1, self.width))

    def _key(self) -> Hashable:
        workload = self._workload()
        sizes = (*workload.sizes.values(), *workload.options.values(), workload.dtype)
        return str(self.known.values.device), sizes, self.has_source


def _library(matrix: Any, x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
    return library_product(matrix(), x, source, alpha, beta)


def _is_captured() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _why_not(kernel: str, known: Known, width: int) -> str:
    """Why a kernel does not compute products of a matrix; empty where it does."""
    if kernel == LIBRARY:
        return ""
    if known.values.device.type != "cuda":
        return "it runs on a GPU"
    if width > MOST_WIDTH:
        return f"it is for up to {MOST_WIDTH} columns of x"
    if width and kernel != "vector":
        return "it is for one column of x"
    structure = known.read()
    if kernel == "near" and structure.facts.span > MOST_LOCAL:
        return f"columns of a row span {structure.facts.span:,}, and 16 bits count {MOST_LOCAL:,}"
    if kernel == "patterns" and not structure.facts.patterns:
        return f"its rows have more than {MOST_PATTERNS} patterns, or more than {MOST_PATTERN_ROW} entries"
    if structure.entries + structure.shape[0] >= 1 << 31 or structure.shape[1] >= 1 << 31:
        return "it counts in 32 bits"
    gpu: GpuModel | None = machine_of(known.values.device)[0]
    if gpu is None and kernel not in ANYWHERE:
        return "there is no hardware model of the device"
    if kernel in IN_CUDA and not has_nvrtc():
        return "it is compiled by NVRTC, which is not installed here: pip install 'constrint[cuda]'"
    return ""


def check_kernel(kernel: str, config: Config | None) -> None:
    """Raise for an unknown kernel, and for a configuration without a kernel.

    Raises:
        UnknownNameError, UsageError: See above.
    """
    if kernel not in KERNELS:
        raise UnknownNameError("kernel", str(kernel), KERNELS)
    if config is not None and kernel in (AUTO, LIBRARY):
        raise UsageError(f"spmv: a configuration needs the kernel that it is for, not {kernel!r}.")
