"""The space of the GEMM that gathers operands: what it is for, what limits it, and what its times rest on."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from constrint.choose import decide
from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.candidates import decide_product, request_of
from constrint.kernels.gemm.cuda.shape import BEFORE_BYTES
from constrint.kernels.gemm.cuda.unaligned import spec as unaligned_spec
from constrint.kernels.gemm.cuda.unaligned.constants import ASSUMED
from constrint.kernels.gemm.cuda.unaligned.gathered import Gathered, block_counts
from constrint.kernels.gemm.cuda.unaligned.spec import SPECS
from constrint.kernels.gemm.implementations import gemm_spec, kernel_names
from constrint.kernels.gemm.product import Operand, Product
from constrint.select import rank
from constrint.select.fingerprint import fingerprint_of
from constrint.solve import enumerate_space
from tests.support.gemm import CUDA, broken_rules, gemm, product, use_of

H200 = load_gpu("h200")
SPEC = SPECS[0]
#: Rows along M that are copied, for where they start or because they are short.
SHORT = Operand(width_bytes=2, step_bytes=2, is_k_major=False, is_copied=True)


def config_of(tile_m: int, tile_n: int, num_stages: int, raw_stages: int, **others: int) -> dict[str, int]:
    usual = {"tile_k": 64, "consumers": 2, "by_columns": 1, "in_turns": 0, "cluster_m": 1, "cluster_n": 1}
    usual |= {"turned": 0, "split_k": 1, "only_last": 0, "group_m": 8}
    return {"tile_m": tile_m, "tile_n": tile_n, "num_stages": num_stages, "raw_stages": raw_stages} | usual | others


@pytest.mark.parametrize(
    "asked",
    [
        product(4096, 4096, 4097),
        product(4096, 4097, 4096),
        product(4095, 4097, 4096, transpose_a=1),
        product(4096, 4096, 4098, "int8", transpose_b=1),
        product(4096, 4096, 4097, "fp8", transpose_b=1),
        product(4096, 4096, 4097, "tf32", transpose_b=1),
        product(4096, 4097, 4096, bias=1, source=1),
        replace(product(64, 64, 64), a=SHORT),
    ],
)
def test_it_takes_what_the_other_kernel_in_cuda_refuses(asked: Product) -> None:
    assert SPEC.refusal(H200, asked) == ""
    assert "copies no operand" in CUDA.refusal(H200, asked)


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("h200", product(4096, 4096, 4096), "the TMA unit loads both"),
        ("a100", product(4096, 4096, 4097), "written for Hopper's wgmma"),
        ("h200", product(64, 64, 65, batch=2), "one product at a time"),
        ("h200", product(64, 64, 65, "tf32", three_pass=1, transpose_b=1), "fp32 in one pass"),
        # wgmma takes 8 and 32 bits along K alone: a copy turns them.
        ("h200", product(4096, 4097, 4096, "fp8"), "whose elements follow each other"),
        ("h200", replace(product(64, 64, 64), a=replace(SHORT, is_scattered=True)), "whose elements follow each other"),
    ],
)
def test_what_it_does_not_compute_is_refused_with_a_reason(name: str, asked: Product, reason: str) -> None:
    assert reason in SPEC.refusal(load_gpu(name), asked)


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (config_of(128, 256, 2, 2), ""),
        (config_of(128, 256, 3, 2), "smem"),
        (config_of(128, 256, 2, 3), "smem"),
        (config_of(128, 128, 2, 2), "ring_full"),
        (config_of(128, 128, 3, 3), ""),
        (config_of(128, 256, 2, 2, consumers=1), "sums"),
        (config_of(96, 128, 4, 2), "instruction_rows"),
    ],
)
def test_what_cannot_be_is_refused_by_the_rule_that_says_so(config: dict[str, int], rule: str) -> None:
    broken = broken_rules(SPEC.problem(H200, gemm(5000, 4999, 5001)), config)
    assert rule in broken if rule else not broken


def test_lines_that_are_gathered_take_shared_memory_and_others_do_not() -> None:
    """A slice of 128 by 256 has 48 KiB; lines as they lie in memory take 144 bytes for 128."""
    config = config_of(128, 256, 2, 2)
    taken = {}
    for name, (m, n, k) in {"both": (4096, 4097, 4097), "a": (4096, 4096, 4097), "b": (4096, 4097, 4096)}.items():
        workload = gemm(m, n, k)
        taken[name] = use_of(SPEC, H200, workload, SPEC.problem(H200, workload)).smem_bytes.value(config)
    least = BEFORE_BYTES + 2 * 48 * 1024 + 2 * 8 * 1024
    assert taken == {
        "both": least + 2 * (128 + 256) * 144,
        "a": least + 2 * 128 * 144 + 2 * 8 * 1024,
        "b": least + 2 * 256 * 144 + 2 * 8 * 1024,
    }


def test_blocks_of_32_lines_are_whole_ones_and_slabs_of_64_columns_too() -> None:
    tile, both = {"tile_m": 64, "tile_n": 152}, Gathered(True, True)
    assert block_counts(tile, "bf16", both, True, True) == 2 + 5
    # Across K lines are rows of K: 64 of them for each of three slabs.
    assert block_counts(tile, "bf16", both, True, False) == 2 + 6
    assert block_counts(tile, "bf16", Gathered(False, True), True, False) == 6


def test_there_are_no_clusters_and_every_configuration_is_one_of_the_space() -> None:
    problem = SPEC.problem(H200, gemm(2047, 2047, 2047))
    columns, _ = enumerate_space(problem).project(["cluster_m", "cluster_n", "raw_stages", "num_stages"])
    assert set(columns["cluster_m"]) == set(columns["cluster_n"]) == {1}
    assert set(columns["raw_stages"]) == {2, 3, 4}
    assert columns["num_stages"].min() >= 2


def test_gathering_is_priced_and_shown() -> None:
    """One operand that is gathered takes less than two, and none less than that."""
    config = config_of(128, 128, 3, 2)
    one, two = (SPEC.figures(H200, gemm(4096, n, 4097), config) for n in (4096, 4097))
    assert (one["line_blocks"], two["line_blocks"]) == (4, 8)
    assert one["gather_clk_per_slice"] < two["gather_clk_per_slice"]
    assert one["smem_clk_per_slice"] < two["smem_clk_per_slice"]
    columns = {name: np.array([value]) for name, value in config.items()}
    aligned = CUDA.price(H200, product(4096, 4096, 4096), columns, np.ones(1)).seconds[0]
    asked = (product(4096, 4096, 4097), product(4096, 4097, 4097))
    seconds = [SPEC.price(H200, each, columns, np.ones(1)).seconds[0] for each in asked]
    assert aligned < seconds[0] < seconds[1]
    assert rank(SPEC, H200, gemm(4096, 4096, 4097), top=1).candidates[0].cost.seconds <= seconds[0]


def test_without_measured_constants_it_says_so_and_no_first_choice_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not SPEC.uncalibrated()
    monkeypatch.setattr(unaligned_spec, "CONSTANTS", ASSUMED)
    assert "rest on assumptions" in SPEC.uncalibrated()
    assert any("gemm.unaligned" in line for line in SPEC.assumptions(H200, gemm(64, 64, 65)))


def test_it_is_chosen_where_memory_is_waited_for_and_where_it_is_asked_for() -> None:
    asked = replace(product(64, 8193, 8193), no_library="our kernels are asked for")
    assert decide_product(H200, asked).kernel == SPEC.full_name
    busy = replace(product(2047, 2047, 2047), no_library="our kernels are asked for")
    assert decide_product(H200, busy).kernel != SPEC.full_name
    assert "unaligned" in kernel_names()
    named = decide(request_of(H200, asked, kernel="unaligned"))
    assert named.kernel == SPEC.full_name
    assert not broken_rules(SPEC.problem(H200, asked.workload), named.config)
    with pytest.raises(UnsupportedError, match="the TMA unit loads both operands as they are"):
        decide(request_of(H200, product(64, 8192, 8192), kernel="unaligned"))


BOTH = (True, True)


@pytest.mark.parametrize(
    ("layout", "lies"),
    [("rr", BOTH), ("rc", BOTH), ("cr", BOTH), ("cc", BOTH), ("cr", (True, False)), ("rr", (False, True))],
)
def test_rows_of_the_first_choice_s_table_fit_however_operands_lie(layout: str, lies: tuple[bool, bool]) -> None:
    """Lines that are under way take shared memory, of one operand or of both."""
    draw = random.Random(layout + str(lies))
    for shape in ((3379, 577, 335), (64, 4100, 900), *(tuple(draw.randrange(9, 4000) for _ in range(3)),) * 2):
        asked = product(
            shape[0], shape[1], shape[2], transpose_a=int(layout[0] == "c"), transpose_b=int(layout[1] == "c")
        )
        a, b = (
            replace(each, width_bytes=2 if odd else 16, step_bytes=2 if odd else 128, is_copied=odd)
            for each, odd in zip((asked.a, asked.b), lies, strict=True)
        )
        asked = replace(asked, a=a, b=b)
        problem = SPEC.product_problem(H200, asked)
        table = candidates.tables_of(H200).table(gemm_spec(SPEC.full_name), asked)
        rows, seconds = table.price(asked)
        assert len(rows)
        for row in (rows[np.argmin(seconds)], *draw.sample(list(rows), min(20, len(rows)))):
            assert not broken_rules(problem, table.whole_config(asked, int(row)))


def test_it_changes_with_the_consumers_that_it_shares() -> None:
    """Winners of either are stale when their source changes; its own sources are none of the other kernel's."""
    names = {f"{path.parents[1].name}/{path.name}" for path in SPEC.device_files}
    assert {"cuda/kernel.cu", "cuda/store.cuh", "unaligned/kernel.cu", "unaligned/lines.cuh"} <= names
    assert fingerprint_of(SPEC).source != fingerprint_of(CUDA).source
