"""Launches of the GEMM that gathers operands: what it is told of each; plans give it the addresses of calls."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import MISSING
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if MISSING or missing_packages("torch", "triton"):
    pytest.skip(MISSING or "needs the extra [torch]", allow_module_level=True)

import numpy as np
import torch

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.cuda.shape import BEFORE_BYTES
from constrint.kernels.gemm.cuda.unaligned.gathered import Gathered
from constrint.kernels.gemm.cuda.unaligned.launch import unaligned_launches
from constrint.kernels.gemm.launch import Call, Epilogue, Machine
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.tma.pack import copies_needed
from constrint.kernels.launch.cuda import CudaLaunch, TensorMap
from constrint.kernels.launch.plan.recipe import plan_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.solve import enumerate_space
from tests.support.gemm import CUDA, UNALIGNED, broken_rules, gemm, smem_of, use_of
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, SPILL_FREE, LoadedLaunch, launch_bench_of

H200 = load_gpu("h200")
CONFIG = {
    "tile_m": 128, "tile_n": 152, "tile_k": 64, "num_stages": 2, "raw_stages": 2, "consumers": 2, "by_columns": 1,
    "in_turns": 0, "cluster_m": 1, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 8,
}  # fmt: skip
TURNED = CONFIG | {"tile_m": 152, "tile_n": 128, "turned": 1}


def call_of(a: torch.Tensor, b: torch.Tensor) -> Call:
    out = torch.zeros(1, a.shape[1], b.shape[2], dtype=a.dtype)
    return Call(a, b, out, Machine.of(H200), Epilogue(), "tf32")


def odd_rows(rows: int, columns: int, pitch: int, start: int, dtype: Any = torch.bfloat16) -> torch.Tensor:
    whole = torch.zeros(start + rows * pitch, dtype=dtype)
    return whole[start:].view(1, rows, pitch)[:, :, :columns]


def launch_of(call: Call, config: dict[str, int]) -> CudaLaunch:
    (launch,) = unaligned_launches(call, config)
    return launch


def test_an_operand_is_given_as_it_lies_or_as_a_map() -> None:
    a, b = odd_rows(300, 640, 641, 3), torch.zeros(1, 640, 304, dtype=torch.bfloat16)
    launch = launch_of(call_of(a, b), CONFIG)
    first, pitch, whole, rows = launch.arguments[:4]
    assert first.data_ptr() == a.data_ptr()
    assert (int(pitch), int(whole), int(rows)) == (641 * 2, (299 * 641 + 640) * 2, 300)
    assert isinstance(launch.arguments[4], TensorMap)
    macros = launch.source.macros
    assert (macros["ROWS_GATHERED"], macros["COLUMNS_GATHERED"], macros["ROWS_K_MAJOR"]) == (1, 0, 1)
    # Rows of wgmma are C's columns where it is turned.
    turned = launch_of(call_of(a, b), TURNED)
    assert isinstance(turned.arguments[0], TensorMap)
    assert turned.arguments[1].data_ptr() == a.data_ptr()
    assert (turned.source.macros["ROWS_GATHERED"], turned.source.macros["COLUMNS_GATHERED"]) == (0, 1)


def test_rows_across_k_are_rows_of_k() -> None:
    b = odd_rows(640, 303, 303, 0)
    launch = launch_of(call_of(torch.zeros(1, 304, 640, dtype=torch.bfloat16), b), CONFIG)
    assert isinstance(launch.arguments[0], TensorMap)
    first, pitch, whole, rows = launch.arguments[1:5]
    assert first.data_ptr() == b.data_ptr()
    assert (int(pitch), int(whole), int(rows)) == (606, 640 * 606, 640)


def test_bytes_of_odd_rows_may_be_odd() -> None:
    a, b = odd_rows(64, 65, 65, 1, torch.int8), torch.zeros(1, 64, 65, dtype=torch.int8).transpose(1, 2)
    call = replace(call_of(a, b), out=torch.zeros(1, 64, 64, dtype=torch.int32))
    launch = launch_of(call, CONFIG | {"tile_k": 128, "tile_n": 64})
    assert (int(launch.arguments[1]), int(launch.arguments[5])) == (65, 65)


def test_what_it_cannot_gather_is_refused() -> None:
    rows = torch.zeros(640, 300, dtype=torch.bfloat16)
    with pytest.raises(UsageError, match=r"use gemm\.cuda"):
        launch_of(call_of(torch.zeros(1, 64, 64, dtype=torch.bfloat16), torch.zeros(1, 64, 64).bfloat16()), CONFIG)
    with pytest.raises(UsageError, match="along K, or across it"):
        launch_of(call_of(rows[None, :, ::2], torch.zeros(1, 150, 64, dtype=torch.bfloat16)), CONFIG)
    with pytest.raises(UsageError, match="rows that follow each other"):
        launch_of(call_of(rows[:1].expand(64, 300)[None], torch.zeros(1, 300, 64, dtype=torch.bfloat16)), CONFIG)


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


def loaded(launch: CudaLaunch) -> LoadedLaunch:
    """The same launch, whose kernel was compiled and loaded already."""
    kept = ("gpu", "source", "grid", "block", "arguments", "smem_bytes", "constants", "cluster", "is_cooperative")
    made = LoadedLaunch(**{name: getattr(launch, name) for name in kept})
    made.__dict__["binary"] = SPILL_FREE
    return made


def test_a_plan_gives_it_addresses_that_are_multiples_of_nothing(bench: LaunchBench) -> None:
    a, b, scratch = odd_rows(300, 640, 641, 3), torch.zeros(1, 640, 304, dtype=torch.bfloat16), NotedScratch()
    call = call_of(a, b).with_scratch(scratch)
    launch = loaded(launch_of(call, CONFIG))
    numbers = [value for value in launch.arguments if isinstance(value, np.generic)]
    # A's address and numbers, three maps, four addresses, and the numbers of every launch.
    sizes = [8, *(number.itemsize for number in numbers[:3]), *[128] * 3, *[8] * 4]
    bench.fake.sizes([*sizes, *(number.itemsize for number in numbers[3:])], LOADED)
    made = recipe_of([launch], [call.a, call.b], [call.out], scratch)
    assert made.direct == []
    at_a, at_b, at_out = (1 << place for place in range(40, 43))
    assert bench.core.launch(plan_of(made.recipe, 2), STREAM, at_a + 6, at_b, at_out) is True
    (seen,) = (each for each in bench.fake.calls() if each["call"] == "cuLaunchKernelEx")
    words = [bytes.fromhex(value) for value in seen["arguments"]]
    assert int.from_bytes(words[0], "little") == at_a + 6
    assert words[1:4] == [number.tobytes() for number in numbers[:3]]
    assert [int.from_bytes(word[:8], "little") for word in words[4:7]] == [at_b, at_out, at_out]


@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
def test_of_a_workload_the_same_operands_are_gathered_as_of_its_tensors(dtype: str) -> None:
    """Rows that start anywhere, and short ones across K; the shared memory of a launch is what is predicted.

    Some configurations are first choices, for which a table is made in seconds; the others are drawn.
    """
    draw = random.Random(dtype)
    sides = (3, 8, 16, 24, 25, 32, 40, 48, 64, 100, 1000)
    seen = set()
    for number in range(80):
        m, n, k = draw.choices(sides, k=3)
        workload = gemm(m, n, k, dtype, transpose_a=draw.randrange(2), transpose_b=draw.randrange(2))
        told, given = Product.of(workload), UNALIGNED.inputs(H200, workload, device="meta")
        copies = copies_needed(given["a"], given["b"])
        assert Gathered.of(told) == ("a" in copies, "b" in copies), workload
        assert (not CUDA.refusal(H200, told)) == (not copies), workload
        if UNALIGNED.refusal(H200, told):
            continue
        seen.add(Gathered.of(told))
        problem = UNALIGNED.problem(H200, workload)
        if number % 16 == 0:
            config = candidates.choose_of(H200, told, candidates.gemm_spec(UNALIGNED.full_name)).config
        else:
            (config,) = enumerate_space(problem).sample(1, seed=number)
        assert not broken_rules(problem, config), workload
        outputs = UNALIGNED.outputs(H200, workload, given)
        (launch,) = UNALIGNED.launches(H200, workload, config, given, outputs)
        assert isinstance(launch, CudaLaunch)
        assert launch.smem_bytes + BEFORE_BYTES == smem_of(use_of(UNALIGNED, H200, workload, problem), config), workload
    assert len(seen) == 3 or dtype != "bf16"
