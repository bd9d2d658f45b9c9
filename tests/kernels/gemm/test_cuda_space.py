"""The space of the GEMM in CUDA C++: what cannot be is refused by name, tables hold the best, and when it is chosen."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from constrint.choose import Decision
from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.cuda import spec as cuda_spec
from constrint.kernels.gemm.cuda.cost import ASSUMED, cuda_cost, leading_rows
from constrint.kernels.gemm.cuda.shape import WgmmaTile, cluster_slots, turns_of_sums
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.select import rank
from constrint.solve import enumerate_space
from tests.support.gemm import CUDA, SKINNY, broken_rules, gemm, product

H200 = load_gpu("h200")
#: Both operands along K, one of them, none.
LAYOUTS: tuple[dict[str, int], ...] = ({"transpose_b": 1}, {}, {"transpose_a": 1, "transpose_b": 1}, {"transpose_a": 1})


def config_of(tile_m: int, tile_n: int, num_stages: int, **others: int) -> dict[str, int]:
    usual = {"tile_k": 64, "consumers": 2, "by_columns": 1, "in_turns": 0, "cluster_m": 1, "cluster_n": 1}
    usual |= {"turned": 0, "split_k": 1, "only_last": 0, "group_m": 8}
    return {"tile_m": tile_m, "tile_n": tile_n, "num_stages": num_stages} | usual | others


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (config_of(128, 256, 4), ""),
        (config_of(256, 152, 4, cluster_m=2), ""),
        (config_of(168, 128, 5, cluster_n=2, turned=1), ""),
        (config_of(192, 256, 3, consumers=1), "sums"),
        (config_of(96, 128, 7), "instruction_rows"),
        (config_of(192, 128, 5), "instruction_rows"),
        (config_of(64, 128, 8, consumers=1, by_columns=2), "consumers_dealt"),
        (config_of(128, 8, 8, by_columns=2), "instruction_columns"),
        (config_of(64, 264, 4, consumers=1), "most_columns"),
        (config_of(256, 200, 3), "sums"),
        (config_of(128, 128, 6, consumers=3), "instruction_rows"),
        (config_of(192, 128, 5, consumers=3, in_turns=1), "turns_of_two"),
        (config_of(128, 128, 6, in_turns=1, by_columns=2), "turns_whole"),
        (config_of(256, 152, 5), "smem"),
        (config_of(256, 152, 3), "ring_full"),
        (config_of(128, 256, 4, only_last=1), "split_last"),
        (config_of(128, 256, 4, split_k=32), "split_k_in_k"),
    ],
)
def test_what_cannot_be_is_refused_by_the_rule_that_says_so(config: dict[str, int], rule: str) -> None:
    problem = CUDA.problem(H200, gemm(5000, 5000, 1000, transpose_b=1))
    broken = broken_rules(problem, config)
    assert rule in broken if rule else not broken


def test_columns_across_k_are_dealt_by_slabs_and_take_whole_ones() -> None:
    beside = config_of(128, 160, 5, by_columns=2)
    across, along = (CUDA.problem(H200, gemm(4096, 4096, 4096, transpose_b=along)) for along in (0, 1))
    assert not broken_rules(along, beside)
    assert broken_rules(across, beside) >= {"slabs0"}
    # 152 columns across K take as much shared memory as 192.
    assert broken_rules(across, config_of(256, 152, 4)) == {"smem"}


def test_of_four_blocks_each_loads_a_part_of_every_slice() -> None:
    """Where one loads nothing for a neighbour, that one is not kept from running ahead, and the kernel may hang."""
    four = {"cluster_m": 2, "cluster_n": 2}
    along, across = (CUDA.problem(H200, gemm(4096, 4096, 4096, transpose_a=1 - k, transpose_b=k)) for k in (1, 0))
    assert not broken_rules(along, config_of(128, 128, 6, **four))
    assert broken_rules(along, config_of(128, 136, 6, **four)) == {"tile_n_dealt"}
    assert not broken_rules(along, config_of(128, 136, 6, cluster_m=2))
    assert not broken_rules(across, config_of(128, 128, 6, **four))
    hanging = config_of(40, 64, 13, consumers=1, turned=1, **four)
    assert broken_rules(across, hanging) == {"tile_m_dealt", "tile_n_dealt"}


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("a100", product(4096, 4096, 4096), "written for Hopper's wgmma"),
        ("b200", product(4096, 4096, 4096), "written for Hopper's wgmma"),
        ("mi300x", product(4096, 4096, 4096), "written for Hopper's wgmma"),
        ("h200", product(64, 64, 100, batch=2), "copies no operand"),
        ("h200", product(64, 64, 64, "tf32", three_pass=1, transpose_b=1), "fp32 in one pass"),
        ("h200", product(4096, 4096, 4097), "copies no operand"),
        ("h200", product(4096, 4097, 4096), "copies no operand"),
        ("h200", product(4096, 4096, 4096, "fp8"), "copies no operand"),
        ("h200", replace(product(64, 64, 64), b=MatrixLayout(is_expanded=True)), "repeated in memory"),
    ],
)
def test_products_that_it_does_not_compute_are_refused_with_a_reason(name: str, asked: Product, reason: str) -> None:
    assert reason in CUDA.refusal(load_gpu(name), asked)
    if asked == Product.of(asked.workload):
        with pytest.raises(UnsupportedError, match=reason):
            CUDA.check_dtype(load_gpu(name), asked.workload)


def test_clusters_of_four_leave_sms_over_and_gpcs_differ() -> None:
    assert [cluster_slots(H200, blocks) for blocks in (1, 2, 4)] == [132, 66, 30]


def test_the_tile_of_5000_cubed_is_a_solution_whose_last_wave_is_full() -> None:
    """5,000 columns are 32.9 tiles of 152, and 31.25 of 160, which take as many rounds, each of them longer."""
    best = rank(CUDA, H200, gemm(5000, 5000, 5000, transpose_b=1), top=1).candidates[0].config
    shape = WgmmaTile.of(best)
    tiles = -(-5000 // (best["tile_m"] * best["cluster_m"])) * -(-5000 // (best["tile_n"] * best["cluster_n"]))
    rounds = -(-tiles // cluster_slots(H200, shape.cluster))
    computed = rounds * 132 * best["tile_m"] * best["tile_n"]
    assert 5000 * 5000 / computed > 0.95
    # What Triton can express wastes a seventh there.
    assert 5000 * 5000 / (-(-20 * 40 // 132) * 132 * 256 * 128) < 0.83


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
def test_no_configuration_that_was_left_out_beats_the_leading_ones(options: dict[str, int]) -> None:
    """Leaving out what others beat for every size changes no best time."""
    asked = product(3000, 2000, 4000, **options)
    names = [name for name in CUDA.problem(H200, asked.workload).variables if name != "group_m"]
    columns, _ = enumerate_space(CUDA.problem(H200, asked.workload)).project(names)
    leading = leading_rows(H200, asked, columns)
    assert len(leading) < len(columns["tile_m"])
    for sizes in ((3000, 2000, 4000), (64, 8192, 1024), (5000, 5000, 64)):
        other = replace(asked, m=sizes[0], n=sizes[1], k=sizes[2])
        seconds = cuda_cost(H200, other, columns, np.ones(len(columns["tile_m"]))).seconds
        assert seconds[leading].min() == seconds.min()


def test_explain_says_why_a_tile_of_152_columns_and_not_of_160() -> None:
    """The figures of both: as many rounds, of which less is results."""
    workload = gemm(5000, 5000, 5000, transpose_b=1)
    narrow, wide = (
        CUDA.figures(H200, workload, config_of(256, width, 4, cluster_m=2, group_m=8)) for width in (152, 160)
    )
    assert narrow["rounds"] == wide["rounds"] == 5
    assert narrow["clusters_at_once"] == 66
    assert narrow["results_share"] > 0.97 > 0.93 > wide["results_share"]
    assert narrow["matrix_clk_per_slice"] < wide["matrix_clk_per_slice"]
    # Blocks above each other read B's slice once.
    assert narrow["slice_bytes"] == (256 + 152) * 128
    assert narrow["l2_slice_bytes"] == (256 + 152 / 2) * 128
    assert narrow["num_stages"] == wide["num_stages"] == 4


@pytest.fixture
def _assumed(monkeypatch: pytest.MonkeyPatch, _tables_of_its_own: None) -> None:
    """As if no time were measured."""
    monkeypatch.setattr(cuda_spec, "CONSTANTS", ASSUMED)


@pytest.fixture
def _calibrated(monkeypatch: pytest.MonkeyPatch, _choices_anew: None) -> None:
    """As if the constants were measured."""
    monkeypatch.setattr(type(CUDA), "uncalibrated", lambda self: "")


def choose(asked: Product) -> Decision:
    return decide_product(H200, replace(asked, no_library="our kernels are tested"))


@pytest.mark.usefixtures("whole_tables", "_calibrated")
# Every layout, and either end with another one.
@pytest.mark.parametrize(
    "options",
    [{}, {"transpose_a": 1, "transpose_b": 1}, {"transpose_b": 1, "bias": 1}, {"transpose_a": 1, "source": 1}],
    ids=str,
)
def test_tables_hold_valid_configurations_near_the_best_of_the_whole_space(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the models: what they were off by is another matter."""
    monkeypatch.setattr(candidates, "corrector_of", lambda *_: None)
    # No table of another kernel is made that takes as long.
    monkeypatch.setattr(type(SKINNY), "uncalibrated", lambda self: "not asked here")
    draw = random.Random(11)
    shares = []
    for _ in range(8):
        # Sides of several tiles, whose rows start at multiples of 16 bytes.
        m, n, k = (8 * int(2 ** draw.uniform(3, 10)) for _ in range(3))
        workload = gemm(m, n, k, **options)
        choice = choose(Product.of(workload))
        best = rank(CUDA, H200, workload, top=1).candidates[0].cost.seconds
        shares.append(best / choice.seconds)
        if choice.kernel == CUDA.full_name:
            assert not broken_rules(CUDA.problem(H200, workload), choice.config), workload
    assert float(np.exp(np.mean(np.log(shares)))) >= 0.98
    assert min(shares) >= 0.85


@pytest.mark.usefixtures("_calibrated")
def test_other_kernels_take_what_it_refuses() -> None:
    assert choose(product(5000, 5000, 5000)).kernel == CUDA.full_name
    assert choose(product(5000, 5001, 5000)).kernel != CUDA.full_name


@pytest.mark.parametrize(
    ("consumers", "sums", "parts", "is_plain", "turns"),
    [
        (1, 168, 16, True, 21 * 8),  # 240 registers, 24 beside sums: 8 sums at a time, of two parts
        (1, 32, 5, True, 1 * 3),  # 160 beside sums: up to 64 at a time
        (2, 64, 4, True, 2 * 2),  # 232 registers, 120 beside sums: 56 at a time
        (2, 64, 4, False, 2 * 2),  # 104: 48 at a time
        (2, 64, 2, True, 2),  # of two parts one stays in registers
        (3, 96, 2, True, 12),  # 160 registers, 16 beside sums
        (1, 16, 32, True, 7),  # 176 beside sums, half of which hold those of 5 parts
        (2, 4, 24, True, 2),  # 180: no more than 16 parts at a time
    ],
)
def test_sums_of_parts_are_read_in_as_many_turns_as_registers_are_left_for(
    consumers: int, sums: int, parts: int, is_plain: bool, turns: int
) -> None:
    given = (np.array([number]) for number in (consumers, sums, parts))
    assert turns_of_sums(H200, *given, is_plain=is_plain).tolist() == [turns]


def test_what_was_measured_to_be_slow_is_predicted_to_be() -> None:
    """On an H200 1,407 us and 43 us; 28 % and more where tiles of half a sector end beside each other."""
    asked = product(1536, 1536, 6144, transpose_b=1)
    split = config_of(128, 168, 5, consumers=1, cluster_n=2, split_k=16)
    assert seconds(asked, split) > 6 * seconds(asked, config_of(128, 144, 6))
    asked = product(14712, 3744, 40, transpose_b=1)
    assert seconds(asked, config_of(128, 152, 6)) > 1.1 * seconds(asked, config_of(128, 144, 6))
    # Three times as many results in rows that are no whole vectors: a warp stores 24 columns, or turned 64 by 8.
    odd = product(145, 59, 199, transpose_a=1)
    assert seconds(odd, config_of(8, 64, 13, consumers=1, turned=1)) < seconds(odd, config_of(64, 32, 13, consumers=1))


def seconds(asked: Product, config: dict[str, int]) -> float:
    columns = {name: np.array([value]) for name, value in config.items()}
    return float(cuda_cost(H200, asked, columns, np.ones(1)).seconds[0])
