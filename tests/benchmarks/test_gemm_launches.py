"""Random launches of the CUDA GEMM: drawn alike in every process, checked to the last byte, watched while they run."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from unittest import mock

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from benchmarks.gemm.wgmma import launches
from benchmarks.gemm.wgmma.draws import Drawn, Kernel, drawn_kernels, drawn_launch
from benchmarks.gemm.wgmma.launches import FAILED, HUNG, RIGHT, Report, Run, side_by_side, sources_of
from benchmarks.gemm.wgmma.products import End, exact_product, launch_of
from benchmarks.gemm.wgmma.strided import Gaps, amid_poison, worst_share
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda.tensor_map import ROW_BYTES, TensorMap

NUMBER, SEED = 24, 5
GPU = load_gpu("h200")
#: Launches of the process below that hang, and that end it.
HANGS, ENDS = 3, 6


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    return drawn_kernels(GPU, NUMBER, SEED)


def drawn(kernels: list[Kernel], number: int) -> Iterator[Drawn]:
    for at in range(number):
        yield drawn_launch(kernels, list(range(NUMBER)), SEED, at, is_small=True)


def test_a_number_tells_a_launch(kernels: list[Kernel]) -> None:
    again = drawn_kernels(GPU, NUMBER, SEED)
    assert again == kernels
    assert list(drawn(again, 20)) == list(drawn(kernels, 20))
    assert len({one.words for one in drawn(kernels, 20)}) == 20


def test_launches_need_no_source_but_those_that_were_compiled_before(kernels: list[Kernel]) -> None:
    for one in drawn(kernels, 300):
        given = amid_poison(one.shape, *one.kernel[:2], one.end, one.gaps, device="meta")
        source = launch_of(GPU, one.config, given, one.end).source
        known = [(each.text, each.macros) for each in sources_of(GPU, one.kernel)]
        assert (source.text, source.macros) in known, one.words


def test_operands_lie_where_the_tma_unit_loads_them(kernels: list[Kernel]) -> None:
    for one in drawn(kernels, 300):
        given = amid_poison(one.shape, *one.kernel[:2], one.end, one.gaps, device="meta")
        for operand in (given.a, given.b):
            assert operand.storage_offset() * operand.element_size() % ROW_BYTES == 0
        maps = [each for each in launch_of(GPU, one.config, given, one.end).arguments if isinstance(each, TensorMap)]
        assert len(maps) in (2, 4), one.words


@pytest.mark.parametrize(("dtype", "layout"), [("bf16", "rc"), ("fp16", "cr"), ("tf32", "rc"), ("int8", "rc")])
def test_what_is_wrong_or_written_beside_the_results_is_seen(dtype: str, layout: str) -> None:
    draw = random.Random(3)
    for end in (End(), End(has_bias=True, has_source=True, beta=2.0, result="float32", source_by_columns=True)):
        shape = 70, 65, 40
        gaps = Gaps.drawn(draw, shape, dtype, layout, 4)
        given = amid_poison(shape, dtype, layout, end, gaps, device="cpu")
        exact, _ = exact_product(given, dtype, end)
        given.out.copy_(exact)
        assert worst_share(given, dtype, end) <= 1
        given.out.copy_(exact)
        given.out[69, 64] += 3 + abs(given.out[69, 64]) // 8
        assert worst_share(given, dtype, end) > 1
        assert worst_share(given, dtype, end) > 1  # nothing was written
        given.out.copy_(exact)
        given.whole[given.out.storage_offset() + 69 * given.out.stride(0) + 65] = 1
        assert worst_share(given, dtype, end) == float("inf")


def test_operands_have_poison_around_them() -> None:
    given = amid_poison((3, 5, 40), "fp16", "rc", End(), Gaps(a=(16, 8), b=(0, 24)), device="cpu")
    memory = torch.empty(0, dtype=torch.float16).set_(given.a.untyped_storage())
    assert given.a.stride() == (48, 1)
    assert given.a.storage_offset() == 16
    assert int((~memory.isnan()).sum()) == given.a.numel()


def unsteady(run: Run, usable: list[int], first: int, last: int, says: Connection) -> None:
    """What `work` does on a GPU, but one launch hangs and one ends the process."""
    known = drawn_kernels(load_gpu(run.gpu), run.kernels, run.seed)
    for number in range(first, last):
        says.send(drawn_launch(known, usable, run.seed, number, is_small=True))
        if number == ENDS:
            os._exit(1)
        if number == HANGS:
            time.sleep(3600)
        says.send(Report(number, RIGHT, 0.5))


def test_launches_that_hang_or_end_their_process_are_named_and_passed_over() -> None:
    run = Run("h200", NUMBER, SEED, is_small=True, until=time.time() + 3600)
    with mock.patch.object(launches, "HANGS_S", 2.0), mock.patch.object(launches, "ENDS_S", 0.5):
        found = list(side_by_side(run, list(range(NUMBER)), 0, 9, 2, unsteady))
    assert sorted(report.number for _, report in found) == list(range(9))
    assert all(one.number == report.number for one, report in found)
    outcomes = {report.number: report.outcome for _, report in found}
    assert outcomes == dict.fromkeys(range(9), RIGHT) | {HANGS: HUNG, ENDS: FAILED}
