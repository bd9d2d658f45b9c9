"""The descriptor kernel: its rules, what compiled kernels take, matrix instructions in flight, products on a GPU."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import numpy as np
import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.descriptor.spec import descriptor_smem_bytes
from constrint.kernels.gemm.product import TWO_PART_COLUMNS, has_tma, rest_columns
from constrint.kernels.gemm.rules import least_registers, registers_per_thread, spilling
from constrint.kernels.gemm.units import OUTPUT_BYTES, needs_k_major, promotion_interval
from constrint.model import Var, const
from constrint.model.constraint import CERTAIN
from constrint.select import BlockUse
from constrint.select.limits import most_registers, spill_chance
from tests.support.calibration import check_count
from tests.support.gemm import DESCRIPTOR, POINTER, broken_rules, gemm, product, unlikely_rules, use_of
from tests.support.kept_assembly import compile_and_keep, sass_of
from tests.support.needs import needs_hopper, needs_triton

DATA = Path(__file__).resolve().parents[2] / "data"
TABLES = {"3.9.0": DATA / "triton_gemm_descriptor.csv", "3.6.0": DATA / "triton36_gemm_descriptor.csv"}
GPUS = {"sm_90": "h200", "sm_100": "b200", "sm_120": "rtx-5090"}
KEYS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent", "epilogue_subtile")
VARIABLES = {name: Var(name) for name in KEYS}


def rows_of(version: str) -> list[dict[str, str]]:
    with TABLES[version].open() as file:
        assert file.readline().startswith(f"# compiled, not measured: triton {version}")
        return list(csv.DictReader(file))


def config_of(row: dict[str, str]) -> dict[str, int]:
    return {name: int(row[name]) for name in KEYS}


def predicted_smem(row: dict[str, str]) -> int:
    gpu, plain = load_gpu(GPUS[row["target"]]), product(4096, 4096, 4096, row["dtype"])
    return descriptor_smem_bytes(gpu, plain, VARIABLES).value(config_of(row))


@pytest.mark.parametrize("version", TABLES)
def test_every_drawn_config_compiles(version: str) -> None:
    assert [row for row in rows_of(version) if row["error"]] == []
    assert len(rows_of(version)) >= {"3.9.0": 280, "3.6.0": 90}[version]
    assert sum(rest_columns(int(row["tile_n"])) > 0 for row in rows_of(version)) >= 8


@pytest.mark.parametrize("version", TABLES)
def test_shared_memory_is_never_underpredicted_and_exact_where_it_is_claimed(version: str) -> None:
    inexact = []
    for row in rows_of(version):
        predicted, compiled = predicted_smem(row), int(row["smem_bytes"])
        assert predicted >= compiled, row
        # Triton 3.9 lets a 32-bit output share the pipeline's memory, or on sm_100 its halves share theirs; 3.6 to 3.8
        # do not, and the rule is theirs.
        may_share = row["persistent"] == "0" or row["target"] == "sm_100"
        shared_since = OUTPUT_BYTES[row["dtype"]] == 4 and may_share and version != "3.6.0"
        if predicted != compiled and not shared_since:
            inexact.append((row, predicted))
    assert all(predicted - int(row["smem_bytes"]) <= slack(row) for row, predicted in inexact), inexact
    assert len(inexact) <= 0.03 * len(rows_of(version))


def slack(row: dict[str, str]) -> int:
    """Bytes that may be predicted too many: buffers of less than a kilobyte are not always padded.

    On Blackwell halves of 64 rows of 32 bits were seen to be re-ordered through as much memory again (64x32x128 with
    three stages), and through half as much (with two); what is predicted is the former.
    """
    config = config_of(row)
    is_wide = row["target"] == "sm_100" and OUTPUT_BYTES[row["dtype"]] == 4
    is_low = config["tile_m"] == 64 and config["epilogue_subtile"] == 2 and config["persistent"] == 1
    return max(1024, config["tile_m"] * config["tile_n"] if is_wide and is_low else 0)


def judged(row: dict[str, str]) -> tuple[float, int, int]:
    """The chance to spill, the estimate, and what a thread may have."""
    gpu, config = load_gpu(GPUS[row["target"]]), config_of(row)
    estimate = registers_per_thread(gpu, row["dtype"], VARIABLES, has_descriptors=True)
    curve = spilling(gpu, row["dtype"], VARIABLES, has_descriptors=True)
    use = BlockUse(VARIABLES["num_warps"], estimate, const(0), spilling=curve)
    chance = spill_chance(gpu, use, {name: np.array([value]) for name, value in config.items()})
    return float(chance[0]), estimate.value(config), most_registers(gpu, use.warps).value(config)


def test_registers_are_near_and_as_many_spill_as_are_expected_to() -> None:
    errors: dict[str, list[float]] = {target: [] for target in GPUS}
    chances, spills = [], []
    for version in TABLES:
        for row in rows_of(version):
            chance, estimate, limit = judged(row)
            registers, spill_bytes = int(row["registers"]), int(row["spill_bytes"])
            chances.append(chance)
            spills.append(spill_bytes > 0)
            if version == "3.9.0" and not spill_bytes and registers < limit - 3:
                errors[row["target"]].append(abs(estimate / registers - 1))
            # What is certain to be needed is taken, or has spilled.
            least = least_registers(load_gpu(GPUS[row["target"]]), row["dtype"], VARIABLES).value(config_of(row))
            assert registers >= least or spill_bytes, row
    assert all(statistics.median(found) <= 0.10 for found in errors.values())
    assert len(chances) >= 370
    check_count(chances, spills)


def test_only_gpus_with_a_tma_unit_have_the_kernel() -> None:
    for name in ("h200", "b200", "rtx-5090"):
        assert has_tma(load_gpu(name))
        DESCRIPTOR.check_workload(load_gpu(name), gemm(4096, 4096, 4096, "fp16"))
    for name in ("a100", "rtx-4090", "mi300x", "t4"):
        assert not has_tma(load_gpu(name))


def test_rules_on_operands_and_sums() -> None:
    assert [dtype for dtype in POINTER.dtypes if needs_k_major(dtype)] == ["fp8", "tf32", "int8"]
    hopper, blackwell = load_gpu("h200"), load_gpu("b200")
    assert promotion_interval(hopper, "fp8", 256) == 128
    assert promotion_interval(hopper, "fp8", 64) == 64
    assert promotion_interval(hopper, "int8", 64) is None
    assert promotion_interval(blackwell, "fp8", 256) is None


def test_a_tile_in_two_parts_is_the_widest_power_of_two_and_the_rest() -> None:
    for width in (8, 16, 32, 64, 128, 256, *TWO_PART_COLUMNS):
        widest = 1 << (width.bit_length() - 1)
        assert rest_columns(width) == width - widest
        assert rest_columns(Var("tile_n")).value({"tile_n": width}) == width - widest


@pytest.mark.parametrize("name", ["h200", "b200"])
def test_tiles_in_two_parts_are_only_where_the_kernel_takes_them(name: str) -> None:
    problem = DESCRIPTOR.problem(load_gpu(name), gemm(4096, 4096, 4096))
    config = {"tile_m": 128, "tile_n": 192, "tile_k": 64, "num_warps": 8, "num_stages": 3, "split_k": 1}
    config |= {"persistent": 0, "epilogue_subtile": 1, "group_m": 8}

    def broken(**change: int) -> set[str]:
        return broken_rules(problem, config | change)

    assert config.keys() == problem.variables.keys()
    assert broken() == set()
    assert broken(tile_n=96, num_warps=4) == set()
    assert "parts_not_persistent" in broken(persistent=1)
    assert "parts_direct" in broken(tile_m=32)
    assert "parts_direct" in broken(num_warps=2)
    assert broken(split_k=4) == set()
    # It spills on Hopper, and was seen to run clean on Blackwell: an estimate, which leaves nothing out.
    assert unlikely_rules(problem, config | {"tile_n": 384, "split_k": 4}) >= {"parts_split"}
    assert "parts_split" not in unlikely_rules(problem, config | {"split_k": 4})
    assert broken(tile_n=128) == set()


def test_what_no_kernel_takes_is_excluded_for_certain() -> None:
    """A persistent grid of tiles in two parts does not compile."""
    problem = DESCRIPTOR.problem(load_gpu("h200"), gemm(4096, 4096, 4096))
    kinds = {rule.name: rule.kind for rule in problem.constraints}
    assert {kinds[name] for name in ("parts_direct", "parts_not_persistent", "subtile_columns")} == {CERTAIN}


def test_sums_beyond_tensor_memory_are_excluded_on_blackwell_alone() -> None:
    """Triton made a kernel without a matrix instruction of 256 x 384 sums: 768 columns where there are 512."""
    config = {"tile_m": 256, "tile_n": 384, "tile_k": 32, "num_warps": 8, "num_stages": 3, "split_k": 1}
    config |= {"persistent": 0, "epilogue_subtile": 1, "group_m": 8}
    for name, broken in (("b200", {"tensor_memory"}), ("h200", {"registers", "register_file"})):
        assert broken_rules(DESCRIPTOR.problem(load_gpu(name), gemm(4096, 4096, 4096)), config) == broken
    fitting = DESCRIPTOR.problem(load_gpu("b200"), gemm(4096, 4096, 4096))
    assert broken_rules(fitting, config | {"tile_n": 256}) == set()
    assert broken_rules(fitting, config | {"tile_m": 128}) == set()


#: What Triton 3.9 took, by target and type: tile, warps, stages, halves, bytes.
WIDE = [
    ("b200", "tf32", (256, 256, 16, 8, 5, 2), 163_904),
    ("b200", "tf32", (128, 384, 16, 8, 2, 1), 131_072),
    ("b200", "int8", (256, 192, 32, 8, 3, 1), 131_072),
    ("h200", "tf32", (128, 256, 16, 8, 5, 2), 122_920),
    ("h200", "tf32", (128, 192, 16, 8, 3, 1), 65_536),
    ("h200", "int8", (256, 96, 32, 8, 2, 1), 65_536),
]


@pytest.mark.parametrize(("name", "dtype", "values", "smem_bytes"), WIDE)
def test_a_wide_output_needs_no_more_memory_than_the_latest_triton_takes(
    name: str, dtype: str, values: tuple[int, ...], smem_bytes: int
) -> None:
    """What is stated is for the older one as well, and may be more than there is: an estimate excludes nothing."""
    gpu, workload = load_gpu(name), gemm(4096, 4096, 4096, dtype)
    config = dict(
        zip(("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "epilogue_subtile"), values, strict=True)
    )
    config |= {"split_k": 1, "persistent": 0, "group_m": 1}
    problem = DESCRIPTOR.problem(gpu, workload)
    use = use_of(DESCRIPTOR, gpu, workload, problem)
    assert use.smem_needed.value(config) == smem_bytes
    stated, limit = use.smem_stated.value(config), gpu.sm.max_smem_bytes_per_block
    assert stated > smem_bytes
    assert broken_rules(problem, config) == set()
    assert ("smem_stated" in unlikely_rules(problem, config)) is (stated > limit)


def test_an_output_tile_is_stored_in_halves_only_where_that_saves_memory() -> None:
    config = {"tile_m": 128, "tile_n": 128, "tile_k": 32, "num_warps": 8, "num_stages": 3, "split_k": 1}
    config |= {"persistent": 1, "epilogue_subtile": 2, "group_m": 8}
    narrow, wide = (DESCRIPTOR.problem(load_gpu("h200"), gemm(4096, 4096, 4096, d)) for d in ("bf16", "tf32"))
    assert broken_rules(narrow, config) == set()
    assert "subtile_persistent" in broken_rules(narrow, config | {"persistent": 0})
    assert "subtile_warps" in broken_rules(narrow, config | {"tile_m": 64})
    assert "subtile_columns" in broken_rules(narrow, config | {"tile_n": 16})
    assert broken_rules(wide, config | {"persistent": 0}) == set()
    assert "subtile_whole_k" in broken_rules(wide, config | {"persistent": 0, "split_k": 2})
    assert "subtile_one_part" in broken_rules(wide, config | {"persistent": 0, "tile_n": 96})


def test_the_pointer_kernel_has_whole_tiles_of_a_power_of_two() -> None:
    for name in ("h200", "b200", "rtx-5090", "a100", "mi300x"):
        variables = POINTER.problem(load_gpu(name), gemm(4096, 4096, 4096)).variables
        assert "epilogue_subtile" not in variables
        assert all(rest_columns(width) == 0 for width in variables["tile_n"])


def test_without_a_unit_that_reads_shared_memory_tiles_are_powers_of_two() -> None:
    variables = DESCRIPTOR.problem(load_gpu("rtx-5090"), gemm(4096, 4096, 4096)).variables
    assert all(rest_columns(width) == 0 for width in variables["tile_n"])


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "grid"),
    # Every layout with two grids, every grid with two layouts.
    [
        *(("rr", {}), ("cc", {}), ("rc", {"persistent": 1, "epilogue_subtile": 2})),
        *(("cr", {"persistent": 1, "epilogue_subtile": 2}), ("rc", {"tile_n": 192}), ("cc", {"tile_n": 192})),
        *(("rr", {"tile_n": 384, "num_stages": 3}), ("cr", {"tile_n": 384, "num_stages": 3})),
    ],
    ids=str,
)
def test_matrix_instructions_stay_in_flight_together(
    layout: str, grid: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When ptxas serialises wgmma, each one is committed and waited for: seen once, 1.2 times slower on an H200."""
    config = {"tile_m": 128, "tile_n": 256, "tile_k": 64, "num_warps": 8, "num_stages": 4, "split_k": 1}
    config |= {"persistent": 0, "group_m": 8, "epilogue_subtile": 1} | grid
    workload = gemm(4096, 4096, 4096, transpose_a=int(layout[0] == "c"), transpose_b=int(layout[1] == "c"))
    compiled, outputs = compile_and_keep(monkeypatch, DESCRIPTOR, load_gpu("h200"), workload, config)
    rest = rest_columns(config["tile_n"])
    assert compiled.instruction == f"wgmma.mma_async m64n{config['tile_n'] - rest}k16"
    assert compiled.spill_bytes == 0
    matrix = [line for line in sass_of(outputs["cubin"]) if "HGMMA" in line]
    parts = 2 if rest else 1
    assert len(matrix) == 4 * parts
    assert sum("gsb0" in line for line in matrix) == parts


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float32", "int8"])
@pytest.mark.parametrize("layout", ["rr", "rc", "cr"])
@pytest.mark.parametrize(
    "tile",
    [(128, 192, 8, 1), (128, 192, 4, 1), (128, 192, 8, 4), (64, 384, 8, 1), (64, 96, 4, 1), (64, 96, 4, 4)],
    ids=str,
)
def test_tiles_in_two_parts_multiply(
    tile: tuple[int, int, int, int], layout: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ragged sizes, and a rest that lies beyond the last column; every element of a poisoned output is written."""
    import torch

    from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine, runtime_precision
    from tests.support.gemm import launch

    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")  # one tf32 pass
    kind = getattr(torch, dtype)
    tile_m, tile_n, num_warps, split_k = tile
    config = {"tile_m": tile_m, "tile_n": tile_n, "num_warps": num_warps, "split_k": split_k}
    # A 32-bit output has shared memory of its own.
    config |= {"num_stages": 2 if kind in (torch.float32, torch.int8) else 3}
    config |= {"tile_k": 128 // kind.itemsize, "persistent": 0, "group_m": 4, "epilogue_subtile": 1}
    m, k = 300, 1000
    for n in (432, tile_n + 24, 2 * tile_n):
        generator = torch.Generator(device="cuda").manual_seed(n)
        a, b = (torch.randn(s, device="cuda", generator=generator) * 8 for s in ((2, m, k), (2, k, n)))
        a, b = a.clamp(-100, 100).to(kind), b.clamp(-100, 100).to(kind)
        if layout[0] == "c":
            a = a.transpose(1, 2).contiguous().transpose(1, 2)
        if layout[1] == "c":
            b = b.transpose(1, 2).contiguous().transpose(1, 2)
        out_kind = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.bfloat16}.get(kind, kind)
        out = torch.full((2, m, n), float("nan") if out_kind.is_floating_point else -(2**31), device="cuda").to(
            out_kind
        )
        call = GemmCall(a, b, out, Machine(132, 1, True), Epilogue(), runtime_precision(a.dtype))
        launch("gemm.descriptor", call, config)
        exact, sums = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        # tf32 has 11 bits, and fp8 sums keep 14 between promotions.
        step = {torch.float32: 2.0**-9, torch.float8_e4m3fn: 2.0**-13, torch.int8: 0.0}.get(kind, k * 2.0**-24)
        roundoff = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: k * 2.0**-24}.get(out_kind, 0.0)
        assert bool(((out.double() - exact).abs() <= step * sums + roundoff * exact.abs()).all())
