"""The kernel with a producer warp: its tiles and rules, what compiled kernels take, its products on a GPU."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.producer.tile import DTYPES, REGISTERS, Shares, has_producer
from constrint.select import Workload
from constrint.solve import enumerate_space
from tests.support.compiled import Compiler
from tests.support.gemm import DESCRIPTOR, PRODUCER, broken_rules, gemm, smem_of, use_of
from tests.support.kept_assembly import compile_and_keep, sass_of
from tests.support.needs import needs_hopper, needs_triton

H200 = load_gpu("h200")
CONFIG = {"tile_m": 128, "tile_n": 256, "tile_k": 64, "num_warps": 8, "num_stages": 4, "group_m": 8}


def workload(dtype: str = "bf16", n: int = 8192, layout: str = "rr") -> Workload:
    return gemm(8192, n, 8192, dtype, transpose_a=int(layout[0] == "c"), transpose_b=int(layout[1] == "c"))


def configs(dtype: str, n: int = 8192) -> list[dict[str, int]]:
    """Every configuration, in one order of tiles."""
    names = [p.name for p in PRODUCER.params(H200, workload(dtype, n)) if p.name != "group_m"]
    columns, _ = enumerate_space(PRODUCER.problem(H200, workload(dtype, n))).project(names)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(columns[c].tolist() for c in names), strict=True)]
    return [row | {"group_m": 8} for row in rows]


def test_tiles_are_shared_or_taken_in_turns() -> None:
    assert Shares.of({"tile_m": 128, "tile_n": 256}, "bf16") == Shares(2, 64, 2, 256, 0)
    assert Shares.of({"tile_m": 256, "tile_n": 128}, "bf16") == Shares(2, 128, 1, 128, 0)
    assert Shares.of({"tile_m": 128, "tile_n": 192}, "fp16") == Shares(2, 64, 2, 128, 64)
    assert Shares.of({"tile_m": 128, "tile_n": 128}, "bf16") == Shares(1, 128, 1, 128, 0)
    assert Shares.of({"tile_m": 64, "tile_n": 256}, "tf32") == Shares(1, 64, 2, 256, 0)
    # Promoted sums are added up while the other consumer multiplies the same tile.
    assert Shares.of({"tile_m": 128, "tile_n": 128}, "fp8") == Shares(2, 64, 2, 128, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tile_of_the_space_can_be_dealt_out(dtype: str) -> None:
    found = configs(dtype)
    assert {(c["tile_m"], c["tile_n"]) for c in found} >= {(128, 128), (128, 192)}
    for config in found:
        shares = Shares.of(config, dtype)
        assert shares.rows in (64, 128)
        assert shares.parts * shares.rows == config["tile_m"]
        assert shares.buffers >= 1
        assert shares.widest in (64, 128, 256)
        assert shares.rest in (0, 64)
        registers = shares.rows * (shares.widest + shares.rest) // 128 * (2 if dtype == "fp8" else 1)
        # The second consumer has 232 of them; some 30 are for all else.
        assert registers <= 200


def test_a_producer_is_for_hopper() -> None:
    assert [has_producer(H200, dtype) for dtype in (*DTYPES, "int8")] == [True] * 4 + [False]
    for name in ("b200", "a100", "rtx-5090", "mi300x"):
        assert not has_producer(load_gpu(name), "bf16")
    assert configs("tf32", n=8196) != []  # rows of 32,784 bytes


def test_rules_name_what_is_broken() -> None:
    problem = PRODUCER.problem(H200, workload())

    def broken(**change: int) -> set[str]:
        return broken_rules(problem, CONFIG | change)

    assert CONFIG.keys() == problem.variables.keys()
    assert broken() == set()
    assert broken(tile_n=192) == set()
    assert "most_rows" in broken(tile_m=256, tile_n=64)
    assert "least_rows" in broken(tile_m=32, tile_n=128)
    assert "sums" in broken(tile_m=256, tile_n=256)
    assert "smem" in broken(num_stages=5)


def test_depth_warps_and_columns_are_those_that_the_kernel_has() -> None:
    for dtype, depth in (("bf16", 64), ("fp16", 64), ("tf32", 32), ("fp8", 128)):
        variables = PRODUCER.problem(H200, workload(dtype)).variables
        assert list(variables["tile_k"]) == [depth]
        assert list(variables["num_warps"]) == [8]
        assert set(variables["tile_n"]) == {64, 128, 192, 256}
        assert not {"split_k", "persistent", "epilogue_subtile"} & variables.keys()


def test_its_blocks_are_persistent_whole_k_blocks() -> None:
    """With fewer tiles than SMs there is nothing to walk, and the descriptor kernel remains."""
    assert broken_rules(PRODUCER.problem(H200, gemm(256, 256, 8192)), CONFIG) >= {"persistent_many_tiles"}
    assert enumerate_space(PRODUCER.problem(H200, gemm(256, 256, 8192))).size == 0
    assert enumerate_space(DESCRIPTOR.problem(H200, gemm(256, 256, 8192))).size > 0


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp8"])
def test_compiled_kernels_take_what_the_rules_say(compiler: Compiler, dtype: str) -> None:
    rng = random.Random(9)
    use = use_of(PRODUCER, H200, workload(dtype), PRODUCER.problem(H200, workload(dtype)))
    for config in rng.sample(configs(dtype), 4):
        compiled = compiler.compile(
            PRODUCER, H200, workload(dtype, layout=rng.choice(["rr", "rc", "cr", "cc"])), config
        )
        assert compiled.smem_bytes == smem_of(use, config), config
        assert compiled.registers_per_thread == REGISTERS
        assert compiled.spill_bytes == 0
        assert compiled.instruction.startswith("wgmma")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["rr", "cc"])
@pytest.mark.parametrize("tile", [(128, 256, 4), (128, 192, 4), (128, 128, 6)], ids=str)
def test_matrix_instructions_stay_in_flight(
    tile: tuple[int, int, int], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each consumer commits a step's products together and waits for those of the step before, never for its own."""
    config = CONFIG | dict(zip(("tile_m", "tile_n", "num_stages"), tile, strict=True))
    _, outputs = compile_and_keep(monkeypatch, PRODUCER, H200, workload(layout=layout), config)
    text = "\n".join(sass_of(outputs["cubin"]))
    shares = Shares.of(config, "bf16")
    groups = 2 if shares.rest else 1
    products = re.findall(r"HGMMA.*", text)
    assert len(products) == 2 * groups * 4 * (shares.rows // 64)
    assert sum("gsb0" in line for line in products) == 2 * groups
    # In the loop all but the last step's groups are waited for, after it those.
    assert re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d)", text) == [str(groups), "0"] * 2
    assert "USETMAXREG" in text


GPU_TILES = [(128, 256, 4), (256, 128, 3), (128, 192, 4), (128, 128, 5), (64, 256, 4), (64, 192, 2), (64, 64, 6)]
#: One step, ragged tiles, and many tiles of few steps among them.
SHAPES = [(8, 8, 8), (336, 776, 1560), (1000, 1000, 1000), (2048, 2304, 512), (3000, 2000, 72), (520, 5000, 4104)]


def product_is_right(shape: tuple[int, int, int], config: dict[str, int], dtype: str, layout: str, **ep: Any) -> bool:
    """Compare a product on a poisoned output with the one in double precision."""
    import torch

    from constrint.kernels.gemm.launch import Call, Epilogue, Machine, runtime_precision
    from constrint.kernels.gemm.reference import gemm_reference
    from tests.support.gemm import launch

    kind, (m, n, k) = getattr(torch, dtype), shape
    generator = torch.Generator(device="cuda").manual_seed(m + 3 * n + 7 * k)
    # What is not a multiple of 16 bytes is copied on the way.
    a = torch.randn((1, m, k) if layout[0] == "r" else (1, k, m), device="cuda", generator=generator).to(kind)
    b = torch.randn((1, k, n) if layout[1] == "r" else (1, n, k), device="cuda", generator=generator).to(kind)
    a, b = a if layout[0] == "r" else a.transpose(1, 2), b if layout[1] == "r" else b.transpose(1, 2)
    out_kind = torch.bfloat16 if dtype == "float8_e4m3fn" else kind
    if ep.pop("bias", False):
        ep["bias"] = torch.randn(n, device="cuda", generator=generator).to(out_kind)
    alpha = ep.get("alpha", 1.0)
    wide = {"bias": None if "bias" not in ep else ep["bias"].double(), "activation": ep.get("activation")}
    exact = gemm_reference(
        a.double(), b.double(), wide["bias"], None, alpha=alpha, beta=0.0, activation=wide["activation"],
        out_dtype=torch.float64,
    )  # fmt: skip
    sums = abs(alpha) * (a.double().abs() @ b.double().abs())
    if dtype == "float8_e4m3fn":
        # Between promotions every product is cut off relative to the largest.
        largest = a.double().abs().amax(2, keepdim=True) * b.double().abs().amax(1, keepdim=True)
        sums = torch.maximum(sums, min(k, 128) * largest)
    # tf32 has 11 bits, and fp8 sums keep 14 between promotions; activations here have slopes of at most 1.13.
    step = {"float32": 2.0**-9, "float8_e4m3fn": 2.0**-13}.get(dtype, k * 2.0**-24)
    roundoff = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}.get(out_kind, k * 2.0**-24)
    bound = 1.13 * step * sums + roundoff * exact.abs() + 1e-6
    for _ in range(3):
        out = torch.full((1, m, n), float("nan"), device="cuda", dtype=out_kind)
        call = Call(a, b, out, Machine(132, 1, True), Epilogue(**ep), runtime_precision(a.dtype))
        launch("gemm.producer", call, config)
        if not bool(((out.double() - exact).abs() <= bound).all()):
            return False
    return True


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("tile", GPU_TILES, ids=str)
def test_products(tile: tuple[int, int, int], layout: str, dtype: str) -> None:
    import torch

    name = {"bfloat16": "bf16", "float16": "fp16", "float32": "tf32"}.get(dtype, "fp8")
    config = CONFIG | dict(zip(("tile_m", "tile_n", "num_stages"), tile, strict=True))
    config["tile_k"] = 128 // getattr(torch, dtype).itemsize
    if config not in configs(name):
        pytest.skip("not in the space")
    wrong = [shape for shape in SHAPES if not product_is_right(shape, config, dtype, layout)]
    assert wrong == []


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("tile", [(128, 256, 4), (128, 192, 4), (128, 128, 5)], ids=str)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues(tile: tuple[int, int, int], activation: str | None) -> None:
    config = CONFIG | dict(zip(("tile_m", "tile_n", "num_stages"), tile, strict=True))
    for shape in SHAPES[1:4]:
        assert product_is_right(shape, config, "bfloat16", "rc", bias=True, alpha=0.5, activation=activation)
        assert product_is_right(shape, config, "float16", "rr", bias=True, activation=activation)


@pytest.mark.gpu
@needs_hopper
def test_operands_with_odd_rows_are_copied() -> None:
    assert product_is_right((1001, 1000, 777), CONFIG, "bfloat16", "cr")
    assert product_is_right((1001, 1000, 777), CONFIG, "float16", "rc")


@needs_triton
def test_other_products_are_refused() -> None:
    import torch

    from constrint.kernels.gemm.launch import Call, Epilogue, Machine, runtime_precision
    from tests.support.gemm import launch

    def launched(a: torch.Tensor, out: torch.Tensor, end: Epilogue | None = None) -> None:
        call = Call(a, a, out, Machine(132, 1, True), end or Epilogue(), runtime_precision(a.dtype))
        launch("gemm.producer", call, CONFIG)

    a = torch.empty((2, 64, 64), dtype=torch.bfloat16)
    one = a[:1]
    with pytest.raises(UsageError, match="one product at a time"):
        launched(a, torch.empty_like(a))
    with pytest.raises(UsageError, match="one product at a time"):
        launched(one, torch.empty_like(one), Epilogue(source=one))
    with pytest.raises(UsageError, match=r"rows of 64 elements of torch\.float32"):
        launched(one, torch.empty((1, 64, 64)))
    with pytest.raises(UsageError, match=r"not for torch\.int8"):
        launched(torch.zeros((1, 64, 64), dtype=torch.int8), torch.empty((1, 64, 64), dtype=torch.int32))
