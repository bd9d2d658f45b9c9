"""The models against published times: predicted over measured, by GPU, type and size; how well products are ordered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, exp, log
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.elsewhere.data import JUDGING, QUANTISES, Time, best_times, model_of, sources
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.hwmodels.assumed import clock_hz, l2_bandwidth
from constrint.kernels.gemm.units import ELEMENT_BYTES, OUTPUT_BYTES
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
from constrint.select.cost import dram_bytes_per_s, launch_in_row_s, launch_s
from constrint.select.rank import rank
from constrint.select.spec import Operation
from constrint.select.streams import DISPATCH_S

#: Classes of size: names, and the measured microseconds below which they end.
CLASSES = {"< 10 us": 10.0, "10-100 us": 100.0, "> 100 us": float("inf")}
SMALL, _, LARGE = CLASSES
#: A prediction is off where it is longer or shorter than the measured time by more than this.
OFF = 1.5
Row = TypeVar("Row")
#: Fewest products of a class whose order is stated.
FEWEST = 8
#: The share of the L2's rate at which published products stream operands that lie in it, and by which share of its size
#: these exceed it when nothing stays. Fitted to the L40S; elsewhere DRAM is at least as fast.
L2_SHARE, L2_SPARE = 0.3, 0.25
#: Parts of an L2 that each keep copies for the SMs beside them: what all SMs read is there once in each part, and stays
#: up to the size of one. The A100 has two, as the section on its L2 in NVIDIA's A100 white paper says, by an answer in
#: NVIDIA's forum (https://forums.developer.nvidia.com/t/meanings-of-l2-l2-copy/200725). That a copy in each part halves
#: what stays is concluded from that; products of 10 to 100 us published of the A100 agree.
L2_PARTITIONS = {"sm_80": 2}
#: Seconds of the launches that quantise A: by how much fp8 takes longer than bf16 for products that take bf16 up to
#: 3.5 us, the median of the fitted half on the L40S, the H100 and the B200; the other GPUs are left out.
QUANTISING_S = {"sm_89": 1.85e-6, "sm_90a": 2.2e-6, "sm_100a": 3.4e-6, "sm_103a": 3.4e-6}
#: The share of the DRAM's rate at which A is read and written meanwhile. Fitted to the H100 and the B200.
QUANTISING_SHARE = 0.5
#: Seconds for each element of a row of A, which one block reads twice, for its maximum and to convert it (as vLLM does
#: in `csrc/quantization/fp8/common.cu`): by so much what fp8 takes beyond bf16 grows with K where rows are few. On the
#: H100 and the H200, to which it is fitted, 1.05e-10 to 1.15e-10; on the B200, B300, GB200, GB300 up to 1.7e-10.
QUANTISING_ELEMENT_S = 1.2e-10
#: Published kernels that multiply their sums with scales of rows and columns, source and type: aiter's `gemm_a8w8` has
#: both (`aiter/ops/gemm_op_a8w8.py`). They are loaded when the sums are there: a load's latency more.
SCALED = {("aiter", "fp8"), ("aiter", "int8")}


class Judged(NamedTuple):
    """A product with its published and its predicted time.

    Args:
        time: The published time.
        gpu: Name of the GPU's model.
        predicted_us: The least time that the models of this package's kernels predict, timed as the published one was:
            among launches one after another, with the pass that quantises A and the scales of a kernel where the
            published time has them.
        roofline_us: The time that no kernel can beat.
        kernel, config: The configuration of that prediction.
    """

    time: Time
    gpu: str
    predicted_us: float
    roofline_us: float
    kernel: str
    config: dict[str, int]

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_us / self.time.us

    @property
    def size(self) -> str:
        """The class of size."""
        return size_of(self.time.us)


class Figures(NamedTuple):
    """Figures of a group of products.

    Args:
        n: Number of products.
        mean: Geometric mean of predicted over measured.
        median, low, high: Median, 10th and 90th percentile of it.
        off: Share of products that are off by more than `OFF`.
        order: Rank correlation of predicted and measured times; None for few products.
        share_order: The same of the shares of the roofline.
    """

    n: int
    mean: float
    median: float
    low: float
    high: float
    off: float
    order: float | None
    share_order: float | None


def size_of(us: float) -> str:
    """The class of a time."""
    return next(name for name, end in CLASSES.items() if us < end)


def own_kernels() -> Operation:
    """The operation without the vendor's library, whose times are interpolated."""
    gemm = load_kernel("gemm")
    return Operation("gemm", tuple(spec for spec in gemm.implementations if spec.full_name != "gemm.library"))


def judged(
    gpus: Sequence[str] = (), *, halves: Sequence[str] = (JUDGING,), all_of_them: bool = False
) -> Iterator[Judged]:
    """Every published time with the prediction; GPUs without a model are said once and left out.

    Args:
        gpus: Names as in the data; all where there are none.
        halves: The halves of all shapes to judge.
        all_of_them: Judge all published times, not the sample alone.
    """
    operation, unable = own_kernels(), set[str]()
    models: dict[str, GpuModel | None] = {}
    for time in best_times(all_of_them=all_of_them):
        if (gpus and time.gpu not in gpus) or time.half not in halves:
            continue
        gpu = models.setdefault(time.gpu, model_of(time.gpu))
        if gpu is None:
            _say_once(unable, f"{time.gpu}: no model of this GPU, left out")
            continue
        try:
            yield _judged(operation, gpu, time)
        except ConstrintError as error:
            _say_once(unable, f"{time.gpu} {time.dtype}: {error}")


def _judged(operation: Operation, gpu: GpuModel, time: Time) -> Judged:
    options = {"transpose_b": 1} if time.transpose_b else {}
    workload = Workload("gemm", {"m": time.m, "n": time.n, "k": time.k}, time.dtype, options)
    timed = as_timed(gpu, time)
    ranking = rank(operation, timed, workload, top=1)
    roofline_s = ranking.roofline_s if timed is gpu else rank(operation, gpu, workload, top=1).roofline_s
    best = ranking.candidates[0]
    predicted_s = best.cost.seconds + launch_in_row_s(gpu) - launch_s(gpu)
    if time.what == QUANTISES:
        predicted_s += quantising_s(gpu, time)
    if (time.source, time.dtype) in SCALED:
        predicted_s += gpu.figure("dram_latency_s")
    times_us = 1e6 * predicted_s, 1e6 * roofline_s
    return Judged(time, gpu.name, *times_us, best.kernel, dict(best.config))


def as_timed(gpu: GpuModel, time: Time) -> GpuModel:
    """The model whose DRAM is partly its L2, where the publisher's operands stay in it and it is faster."""
    size, l2, dram = gpu.memory.l2.size_bytes, l2_bandwidth(gpu, clock_hz(gpu).value), gpu.memory.dram
    if size is None or l2 is None:
        return gpu
    part = size // L2_PARTITIONS.get(gpu.arch.target, 1)
    cold, warm = dram_bytes_per_s(gpu), l2.value * L2_SHARE
    hits = min(1.0, (1.0 + L2_SPARE - timed_bytes(time, size) / part) / L2_SPARE)
    if hits <= 0 or warm <= cold:
        return gpu
    faster = 1.0 / (hits * cold / warm + 1.0 - hits)
    dram = msgspec.structs.replace(dram, bandwidth_bytes_per_s=faster * dram.bandwidth_bytes_per_s)
    return msgspec.structs.replace(gpu, memory=msgspec.structs.replace(gpu.memory, dram=dram))


def timed_bytes(time: Time, l2_bytes: int) -> float:
    """Bytes that the publisher's launches touch before they touch the same again; infinite where he drives caches out.

    NVIDIA's times are of layers in turn, each with weights of its own, on one A: as many as exceed the L2, `layers` at
    most.
    """
    layers: int | None = sources()[time.source].get("layers")
    if layers is None:
        return float("inf")
    element = ELEMENT_BYTES[time.dtype]
    weights = time.k * time.n * element
    copies = min(layers, max(1, ceil(l2_bytes / weights)))
    a_bytes = time.m * time.k * (element + 2.0 * (time.what == QUANTISES))
    return float(copies * weights + a_bytes + time.m * time.n * OUTPUT_BYTES[time.dtype])


def quantising_s(gpu: GpuModel, time: Time) -> float:
    """Seconds of what makes A 8 bits wide: launches, a block per row, 16 bits read and 8 written for each element."""
    launches_s = QUANTISING_S.get(gpu.arch.target, launch_in_row_s(gpu))
    blocks_s = time.m * DISPATCH_S / gpu.device.sm_count + time.k * QUANTISING_ELEMENT_S
    return launches_s + blocks_s + 3.0 * time.m * time.k / (QUANTISING_SHARE * dram_bytes_per_s(gpu))


def _say_once(said: set[str], text: str) -> None:
    if text not in said:
        said.add(text)
        print(text, file=sys.stderr)


def figures(rows: Sequence[Judged]) -> Figures | None:
    """The figures of a group; None for an empty one."""
    if not rows:
        return None
    ratios = np.array([row.ratio for row in rows])
    low, median, high = (float(np.quantile(ratios, share)) for share in (0.1, 0.5, 0.9))
    off = float((np.abs(np.log(ratios)) > log(OFF)).mean())
    measured, predicted = (np.array([get(row) for row in rows]) for get in (_measured_us, _predicted_us))
    roofline = np.array([row.roofline_us for row in rows])
    orders: list[float | None] = [None, None]
    if len(rows) >= FEWEST:
        orders = [rank_correlation(measured, predicted), rank_correlation(roofline / measured, roofline / predicted)]
    return Figures(len(rows), exp(float(np.log(ratios).mean())), median, low, high, off, *orders)


def _measured_us(row: Judged) -> float:
    return row.time.us


def _predicted_us(row: Judged) -> float:
    return row.predicted_us


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's; equal values have the mean of their places."""
    return float(np.corrcoef(_places(a), _places(b))[0, 1])


def _places(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[at])


def groups(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by a key, in the order in which the keys come."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def by_gpu_and_type(rows: Iterable[Judged]) -> dict[tuple[str, str], list[Judged]]:
    """Rows by GPU and type, in alphabetical order."""
    return dict(sorted(groups(rows, lambda row: (row.gpu, row.time.dtype)).items()))


def table_lines(rows: Sequence[Judged]) -> Iterator[str]:
    """The table in Markdown: a row per GPU and type, a column per class of size."""
    yield f"| GPU, type (n) | {' | '.join(CLASSES)} | off by > {OFF} | order of times | order of shares |"
    yield "|---|" + "---|" * (len(CLASSES) + 3)
    for (gpu, dtype), of_both in by_gpu_and_type(rows).items():
        by_size = groups(of_both, lambda row: row.size)
        means = [_mean(figures(by_size.get(name, []))) for name in CLASSES]
        steady = figures([row for row in of_both if row.size != SMALL])
        large = figures(by_size.get(LARGE, []))
        off = "-" if steady is None else f"{steady.off:.0%}"
        orders = _two(steady and steady.order), _two(large and large.share_order)
        yield f"| {gpu} {dtype} ({len(of_both)}) | {' | '.join(means)} | {off} | {' | '.join(orders)} |"


def _mean(of_class: Figures | None) -> str:
    return "-" if of_class is None else f"{of_class.mean:.2f} ({of_class.n})"


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
