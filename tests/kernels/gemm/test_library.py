"""torch's own product as an implementation: what is predicted, what is refused, and when it is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from constrint.choose import forget
from constrint.choose.decision import Evidence
from constrint.errors import UnsupportedError
from constrint.export import export
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.candidates import best_configs, decide_product
from constrint.kernels.gemm.library import candidates as library_candidates
from constrint.kernels.gemm.library import cost
from constrint.kernels.gemm.library.candidates import LEAST_SHARE
from constrint.kernels.gemm.library.cost import (
    COLUMNS,
    FEWEST,
    PUBLISHED_COLUMNS,
    Kind,
    copy_rate,
    ended_s,
    left_out_error,
    left_out_ratios,
    library_s,
    place_of,
    place_of_row,
    points_of,
)
from constrint.kernels.gemm.library.spec import LIBRARY, inability, library_refusal
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.spec import GemmSpec, gemm_spec
from constrint.kernels.registry import load_kernel, load_spec
from constrint.select import Workload
from constrint.select.rank import rank
from tests.support.decisions import refuse_step, without_winners
from tests.support.gemm import gemm, product
from tests.support.library_table import SIDES, forget_tables, read_anew, smooth_s, use_tables_of, write_table

H200, A100 = load_gpu("h200"), load_gpu("a100")
PLAIN_BF16 = Kind("bf16", "plain", True, False, "")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that tables are read of."""
    use_tables_of(tmp_path, monkeypatch)
    yield tmp_path
    monkeypatch.undo()
    forget_tables()


def test_a_measured_product_takes_what_it_took_and_others_lie_between(tables: Path) -> None:
    write_table(tables, H200, 0.5)
    assert library_s(H200, product(256, 1024, 4096)) == pytest.approx(2 * smooth_s(H200, product(256, 1024, 4096)))
    for sizes in ((512, 512, 512), (64, 4096, 640), (2000, 3000, 1000), (4096, 72, 4000)):
        asked = product(*sizes)
        assert library_s(H200, asked) == pytest.approx(2 * smooth_s(H200, asked), rel=1e-3), sizes


def test_no_efficiency_beyond_that_of_the_neighbours_is_predicted(tables: Path) -> None:
    """Efficiency that rises steeply along K is not carried on."""
    write_table(tables, H200, 0.5)
    path = cost.path_of(H200.name)
    lines = path.read_text().splitlines()
    steep = [line if ",1024,0," not in line and ",4096,0," not in line else _slower(line, 0.6) for line in lines]
    path.write_text("\n".join(steep) + "\n")
    read_anew()
    for k in (80, 256, 640, 1024, 2000, 4096):
        seconds = library_s(H200, product(512, 512, k))
        assert seconds is not None
        share = smooth_s(H200, product(512, 512, k)) / seconds
        assert 0.5 - 1e-6 <= share <= 0.5 / 0.6 + 1e-6, k


def _slower(line: str, factor: float) -> str:
    cells = line.split(",")
    place = COLUMNS.index("cold_us")
    cells[place] = str(float(cells[place]) * factor)
    return ",".join(cells)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(product(32, 256, 256), id="fewer rows"),
        pytest.param(product(256, 8192, 256), id="more columns"),
        pytest.param(product(256, 256, 8192), id="deeper"),
        pytest.param(product(256, 256, 256, "fp16"), id="another type"),
        pytest.param(product(256, 256, 256, transpose_b=1), id="another order of axes"),
        pytest.param(product(256, 256, 256, wide_output=1), id="a wider result"),
        pytest.param(product(256, 256, 256, batch=4), id="a batch"),
        pytest.param(product(256, 255, 256), id="odd rows"),
        pytest.param(product(1, 256, 256), id="a single row"),
    ],
)
def test_nothing_is_said_of_what_was_not_measured(tables: Path, asked: Product) -> None:
    write_table(tables, H200, 0.9)
    assert library_s(H200, product(256, 256, 256)) is not None
    assert library_s(H200, asked) is None
    assert "nothing near this product was measured on H200-SXM" in load_gemm_library().refusal(H200, asked)
    assert decide_product(H200, asked).kernel != LIBRARY


def test_nothing_is_said_far_from_all_products_or_of_few(tables: Path) -> None:
    write_table(tables, H200, 0.9, sides=(16, 16384))
    assert library_s(H200, product(512, 512, 512)) is None, "five doublings from any"
    write_table(tables, H200, 0.9, sides=(256,))
    assert FEWEST > 1
    assert library_s(H200, product(256, 256, 256)) is None


def test_failed_measurements_are_no_measurements(tables: Path) -> None:
    write_table(tables, H200, 0.9)
    path = cost.path_of(H200.name)
    path.write_text(path.read_text().replace(",ok", ",RuntimeError: no"))
    read_anew()
    assert library_s(H200, product(256, 256, 256)) is None


def test_nothing_is_said_near_what_the_library_did_not_take(tables: Path) -> None:
    write_table(tables, H200, 0.9)
    path = cost.path_of(H200.name)
    lines = path.read_text().splitlines()
    which = next(line for line in lines if line.startswith("bf16,rr,plain,1,256,256,256,"))
    lines[lines.index(which)] = which.replace(",ok", ",CompileError: no")
    path.write_text("\n".join(lines) + "\n")
    read_anew()
    assert library_s(H200, product(256, 256, 256)) is None
    assert library_s(H200, product(248, 264, 256)) is None
    assert library_s(H200, product(256, 256, 1000)) is not None


def test_a_row_of_the_table_lies_where_its_product_lies() -> None:
    sizes = {"m": "100", "n": "60", "k": "500", "batch": "3", "gap": "0"}
    for layout in ("rr", "rc", "cr", "cc"):
        row = {"dtype": "fp16", "layout": layout, "end": "plain", **sizes}
        turned = {"transpose_a": int(layout[0] == "c"), "transpose_b": int(layout[1] == "c")}
        assert place_of_row(row) == place_of(product(100, 60, 500, "fp16", batch=3, **turned))
    wide_rows = {"dtype": "bf16", "layout": "rr", "end": "plain", **sizes, "m": "64", "n": "64", "k": "64"}
    assert place_of_row(wide_rows).kind.is_aligned
    assert not place_of_row(wide_rows | {"gap": "1"}).kind.is_aligned


def test_the_stated_error_is_that_of_products_left_out(tables: Path) -> None:
    write_table(tables, H200, 0.8, sides=(64, 128, 256, 512))
    smooth = left_out_error(H200, PLAIN_BF16)
    assert smooth is not None
    assert smooth.nine_in_ten < 0.02
    assert smooth.num_silent < smooth.num_judged
    path = cost.path_of(H200.name)
    rough = [_slower(line, 1.5) if number % 2 and line.endswith("ok") else line
             for number, line in enumerate(path.read_text().splitlines())]  # fmt: skip
    path.write_text("\n".join(rough) + "\n")
    read_anew()
    noisy = left_out_error(H200, PLAIN_BF16)
    assert noisy is not None
    assert noisy.median > 0.1, "every second product takes half as long again as its neighbours say"
    line = load_gemm_library().evidence(H200, gemm(256, 256, 256))
    assert f"off by {noisy.median:.0%} in the median" in line


def test_the_shipped_measurements_are_read_and_near_each_other() -> None:
    of_kind = points_of(H200, PLAIN_BF16)
    assert of_kind is not None
    ratios = [ratio for _, ratio in left_out_ratios(H200, of_kind, 200) if ratio is not None]
    assert len(ratios) >= 60
    error = left_out_error(H200, PLAIN_BF16)
    assert error is not None
    assert error.median < 0.08
    assert points_of(load_gpu("a30"), PLAIN_BF16) is None


UNABLE: list[tuple[Product, str]] = [
    (product(256, 256, 256, bias=1, wide_output=1), "plain 16-bit products alone"),
    (product(256, 256, 256, "fp8", transpose_b=1, bias=1), "one plain product"),
    (product(256, 256, 256, "fp8"), "B by columns"),
    (product(256, 264, 256, "fp8", transpose_b=1), "multiples of 16"),
    (product(16, 256, 256, "int8"), "more than 16 rows"),
    (product(64, 256, 100, "int8"), "multiples of 8"),
    (replace(product(256, 256, 256), a=MatrixLayout(is_expanded=True)), "repeated"),
]


@pytest.mark.parametrize(("asked", "reason"), UNABLE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_no_operator_of_torch_computes_is_refused(asked: Product, reason: str) -> None:
    assert reason in inability(asked)
    assert reason in load_gemm_library().refusal(H200, asked)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (product(256, 256, 256, bias=1, source=1), "not both"),
        (product(256, 256, 256, bias=1, batch=2), "add no row"),
    ],
    ids=["both", "a batch"],
)
def test_whole_epilogues_are_those_of_cublas(asked: Product, reason: str) -> None:
    assert reason in inability(asked)
    assert inability(asked, takes_ends=True) == ""
    assert library_refusal(H200, asked) == library_refusal(None, asked) == ""
    assert reason in library_refusal(load_gpu("mi300x"), asked)
    for activation, is_taken in (("relu", True), ("gelu_tanh", False), ("gelu", False), ("silu", False)):
        assert (library_refusal(H200, replace(asked, activation=activation)) == "") is is_taken


def test_an_epilogue_costs_no_more_than_its_bytes(tables: Path) -> None:
    """The table has plain products alone; cuBLAS adds a row in the same launch, and reads a matrix in it."""
    write_table(tables, H200, 0.9)
    plain, bias, both = (
        ended_s(H200, product(256, 256, 256, **options)) for options in ({}, {"bias": 1}, {"bias": 1, "source": 1})
    )
    assert plain is not None
    assert bias == plain
    assert both == pytest.approx(plain + 2 * 256 * 256 / copy_rate(H200))


def test_what_torch_computes_is_not_refused() -> None:
    for options in ({}, {"bias": 1}, {"source": 1}, {"batch": 3}, {"batch": 3, "source": 1}, {"wide_output": 1}):
        assert inability(product(100, 77, 33, "bf16", **options)) == ""
    assert inability(product(17, 256, 256, "int8")) == ""
    assert inability(product(3, 256, 256, "fp8", transpose_b=1)) == ""
    assert inability(product(3, 256, 256, "tf32", bias=1)) == ""


def test_the_library_is_chosen_where_it_is_predicted_to_be_faster(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_winners(monkeypatch)
    asked = product(1024, 1024, 1024)
    ours = decide_product(H200, asked)
    assert ours.kernel != LIBRARY, "without a table"
    write_table(tables, H200, 1.0)
    forget_tables()
    theirs = decide_product(H200, asked)
    assert (theirs.kernel, dict(theirs.config)) == (LIBRARY, {})
    assert theirs.seconds == library_s(H200, asked)
    assert theirs.seconds < ours.seconds
    assert best_configs(H200, asked, 3)[0].kernel == LIBRARY
    assert decide_product(H200, replace(asked, no_library="the caller says so")).program == ours.program


def test_our_kernels_are_not_chosen_where_they_save_next_to_nothing(tables: Path) -> None:
    """Predictions do not tell what takes nearly as long apart, and who has the library is used to that."""
    asked = product(4096, 4096, 4096)
    ours = decide_product(H200, asked)
    limit = ours.seconds / (1 - LEAST_SHARE)
    for factor, is_chosen in ((1.001, False), (0.999, True)):
        write_table(tables, H200, smooth_s(H200, asked) / (factor * limit))
        forget_tables()
        assert (decide_product(H200, asked).kernel == LIBRARY) is is_chosen
        kernels = [each.kernel for each in best_configs(H200, asked, 400)]
        assert LIBRARY in kernels, "it is among the best in either case"


def test_what_the_device_does_faster_than_the_host_calls_the_library_is_left_to_our_kernels(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the device alone takes as long by either, and the host less by ours."""
    without_winners(monkeypatch)
    for sides, share, library_host_s, is_left in (
        (1024, 1.0, 0.0, True),
        (1024, 0.999, 3e-5, False),
        (1024, 1.001, 3e-5, True),
        (4096, 0.999, 3e-5, True),
    ):
        asked = product(sides, sides, sides)
        ours = decide_product(H200, replace(asked, no_library="the caller says so"))
        write_table(tables, H200, share * smooth_s(H200, asked) / ours.seconds)
        forget_tables()
        monkeypatch.setattr(library_candidates, "DIRECT_HOST_S", library_host_s)
        forget()
        assert (decide_product(H200, asked).kernel == LIBRARY) is is_left


def test_it_is_never_chosen_for_a_gpu_without_a_table(tables: Path) -> None:
    write_table(tables, H200, 1.0)
    for gpu in (A100, load_gpu("mi300x")):
        assert decide_product(gpu, product(1024, 1024, 1024)).kernel != LIBRARY
        with pytest.raises(UnsupportedError, match=f"was not measured on {gpu.name}"):
            rank(load_spec(LIBRARY), gpu, gemm(1024, 1024, 1024))


@pytest.mark.parametrize("name", ["a100", "b200", "l40s", "mi300x", "mi355x"])
def test_published_times_answer_for_16_bits_and_every_order_of_axes(name: str) -> None:
    gpu = load_gpu(name)
    sizes = {"m": 1000, "n": 8192, "k": 8192}
    asked = [
        Product.of(Workload("gemm", sizes, dtype, {"transpose_b": b})) for dtype in ("bf16", "fp16") for b in (0, 1)
    ]
    times = {library_s(gpu, each) for each in asked}
    assert len(times) == 1
    assert None not in times
    assert library_s(gpu, replace(asked[0], has_bias=True)) is None
    of_bytes = "fp8" if name != "a100" else "int8"
    assert library_s(gpu, Product.of(Workload("gemm", sizes, of_bytes, {"transpose_b": 1}))) is None
    program = library_candidates.library_program(gpu, asked[0])
    assert program is not None
    assert (program.evidence, program.band is not None) == (Evidence.ELSEWHERE, True)
    error = left_out_error(gpu, place_of(asked[0]).kind)
    assert error is not None
    assert error.median < 0.08
    assert error.nine_in_ten < 0.3


def write_published(folder: Path, gpu: GpuModel, share: float) -> None:
    """Write a table of published times that are the smooth floor over a share."""
    lines = ["# cuBLAS, published by someone, MIT", ",".join(PUBLISHED_COLUMNS)]
    for m, n, k in combinations(SIDES, SIDES, SIDES):
        asked = Product.of(Workload("gemm", {"m": m, "n": n, "k": k}, "bf16", {"transpose_b": 1}))
        lines.append(f"bf16,{m},{n},{k},{1e6 * smooth_s(gpu, asked) / share:.6f}")
    (folder / "elsewhere").mkdir(exist_ok=True)
    (folder / "elsewhere" / f"{gpu.name.lower()}.csv").write_text("\n".join(lines) + "\n")
    read_anew()


def test_the_projects_own_table_wins_over_published_times(tables: Path) -> None:
    write_published(tables, H200, 1.0)
    asked = product(1024, 1024, 1024)
    assert library_s(H200, asked) == pytest.approx(smooth_s(H200, asked))
    assert cost.origin_of(H200.name) == "cuBLAS, published by someone, MIT"
    write_table(tables, H200, 0.5)
    read_anew()
    assert library_s(H200, asked) == pytest.approx(2 * smooth_s(H200, asked))
    assert cost.origin_of(H200.name) == ""


def test_a_measured_winner_runs_whatever_others_published_of_the_library(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_published(tables, A100, 1.0)
    asked = product(1024, 1024, 1024)
    assert decide_product(A100, asked).kernel == LIBRARY
    ours = candidates._leaders(A100, asked)[0].program(asked, 0)
    measured = replace(ours, steps=tuple(replace(step, seconds=1.0, evidence=Evidence.MEASURED) for step in ours.steps))
    monkeypatch.setattr(candidates, "_measured", lambda *_: measured)
    forget()
    decision = decide_product(A100, asked)
    assert decision.program is measured
    assert LIBRARY in {program.name for program in decision.passed_over}


def test_published_times_are_beaten_by_a_clear_lead_alone(tables: Path) -> None:
    """Nobody measured our kernels where others measured the library: a lead of less than a fifth is none."""
    asked = product(4096, 4096, 4096)
    ours = candidates._leaders(A100, asked)[0].seconds.min()
    for lead, kernel in ((0.9, LIBRARY), (1.1, LIBRARY), (1.4, "gemm.pointer")):
        write_published(tables, A100, smooth_s(A100, asked) / (lead * ours))
        library_candidates.error_of.cache_clear()
        forget()
        assert decide_product(A100, asked).kernel == kernel, lead


def test_no_plan_calls_the_library_of_amd_for_sums(tables: Path) -> None:
    gpu = load_gpu("mi300x")
    write_published(tables, gpu, 1.0)
    asked = replace(product(1024, 1024, 1024), activation="gelu", no_library_end="it ends in an activation")
    assert library_candidates.composition(gpu, asked) is None
    with pytest.raises(UnsupportedError, match="another library"):
        library_candidates.unmeasured_composition(gpu, asked)


def test_a_model_of_the_same_name_with_other_figures_is_another_gpu(tables: Path) -> None:
    write_table(tables, H200, 1.0)
    change: Any = msgspec.structs.replace
    edited = change(H200, device=change(H200.device, sm_count=13))
    assert library_s(H200, product(1024, 1024, 1024)) is not None
    assert library_s(edited, product(1024, 1024, 1024)) is None
    assert decide_product(edited, product(1024, 1024, 1024)).kernel != LIBRARY


def test_exports_of_tiles_leave_it_out(tables: Path) -> None:
    write_table(tables, H200, 1.0)
    ranking = rank(load_kernel("gemm"), H200, gemm(1024, 1024, 1024), top=3)
    assert ranking.candidates[0].kernel == LIBRARY
    lines = [line for line in export(ranking, "cutlass-like").splitlines() if line.startswith("--operation")]
    assert len(lines) == 2
    assert export(ranking, "triton").count("triton.Config(") == 2


def test_what_the_library_refused_is_computed_by_a_kernel_of_ours(tables: Path) -> None:
    write_table(tables, H200, 1.0)
    asked = product(1024, 1024, 1024)
    chosen = decide_product(H200, asked)
    following = refuse_step(chosen, "the compiler's patience", 0, 0)
    assert following.kernel != LIBRARY
    assert decide_product(H200, asked) == following
    assert decide_product(H200, product(1024, 1024, 2048)).kernel == LIBRARY


def test_where_no_tile_is_valid_the_library_is_left(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tables, H200, 0.5)
    monkeypatch.setattr(candidates, "priced", lambda *_: [])
    assert decide_product(H200, product(1024, 1024, 1024)).kernel == LIBRARY


def test_a_ranking_shows_it_as_one_row_among_the_kernels(tables: Path) -> None:
    write_table(tables, H200, 1.0)
    ranking = rank(load_kernel("gemm"), H200, gemm(1024, 1024, 1024), top=5)
    rows = [candidate for candidate in ranking.candidates if candidate.kernel == LIBRARY]
    assert len(rows) == 1
    assert (dict(rows[0].config), rows[0].resources) == ({}, None)
    assert len({candidate.kernel for candidate in ranking.candidates}) > 1
    assert "gemm.library are interpolated" in ranking.evidence["gemm.library"]


def load_gemm_library() -> GemmSpec:
    return gemm_spec(LIBRARY)


def test_the_table_reaches_as_far_as_its_sides(tables: Path) -> None:
    write_table(tables, H200, 0.9)
    for side in SIDES:
        assert library_s(H200, Product.of(Workload("gemm", {"m": side, "n": side, "k": side}, "bf16"))) is not None
