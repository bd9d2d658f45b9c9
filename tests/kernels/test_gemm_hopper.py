"""The GEMM with a producer warp: its tiles, what compiled kernels take, when it is chosen, its products on a GPU."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from constrint.kernels.gemm.choose import Request, choose

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.producer import DTYPES, REGISTERS, Shares, has_producer
from constrint.kernels.gemm.spec import SPEC
from constrint.select import Workload
from constrint.solve import enumerate_space

H200 = load_gpu("h200")
CONFIG = {"tile_m": 128, "tile_n": 256, "tile_k": 64, "num_warps": 8, "num_stages": 4, "split_k": 1, "persistent": 1}
CONFIG |= {"group_m": 8, "descriptor": 1, "epilogue_subtile": 1, "producer": 1}
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs the extra [torch]")


def workload(dtype: str = "bf16", n: int = 8192) -> Workload:
    return Workload("gemm", {"m": 8192, "n": n, "k": 8192}, dtype)


def configs(dtype: str, n: int = 8192) -> list[dict[str, int]]:
    """Every configuration with a producer warp, in one order of tiles."""
    names = [p.name for p in SPEC.params(H200, workload(dtype, n)) if p.name != "group_m"]
    columns, _ = enumerate_space(SPEC.problem(H200, workload(dtype, n))).project(names)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(columns[c].tolist() for c in names), strict=True)]
    return [row | {"group_m": 8} for row in rows if row.get("producer")]


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


def test_a_producer_is_for_hopper_and_for_rows_that_can_be_stored() -> None:
    assert [has_producer(H200, dtype) for dtype in (*DTYPES, "int8")] == [True] * 4 + [False]
    for name in ("b200", "a100", "rtx-5090", "mi300x"):
        assert "producer" not in SPEC.problem(load_gpu(name), workload()).variables
    assert configs("bf16", n=8196) == []
    assert configs("tf32", n=8196) != []  # rows of 32,784 bytes


def test_rules_name_what_is_broken() -> None:
    problem = SPEC.problem(H200, workload())

    def broken(**change: int) -> list[str]:
        return [c.name for c in problem.constraints if not c.holds(CONFIG | change)]

    assert broken() == []
    assert broken(tile_n=192) == []
    assert "producer_depth" in broken(tile_k=128)
    assert "producer_warps" in broken(num_warps=4)
    assert "producer_persistent" in broken(persistent=0)
    assert "producer_descriptor" in broken(descriptor=0)
    assert "producer_epilogue" in broken(epilogue_subtile=2)
    assert "producer_columns" in broken(tile_n=384)
    assert "producer_columns" in broken(tile_n=96)
    assert "producer_most_rows" in broken(tile_m=256, tile_n=64)
    assert "producer_least_rows" in broken(tile_m=32, tile_n=128)
    assert "producer_sums" in broken(tile_m=256, tile_n=256)
    assert "smem" in broken(num_stages=5)
    assert "parts_not_persistent" in broken(tile_n=192, producer=0)
    assert "parts_not_persistent" in broken(tile_n=192, persistent=0)


def test_it_is_chosen_only_where_it_computes_the_product() -> None:
    request = Request.of(Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, "bf16"))
    assert choose("h200", request)["producer"] == 1
    others = (
        {"batch": 2},
        {"has_source": True},
        {"output_bytes": 4},
        {"n": 4100, "width_b": 8, "packed_bytes": 4096 * 4100 * 2},
        {"allows_producer": False},
        {"m": 256},
    )
    for change in others:
        assert choose("h200", replace(request, **change))["producer"] == 0, change
    assert choose("h200", replace(request, has_bias=True))["producer"] == 1


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp8"])
def test_compiled_kernels_take_what_the_rules_say(dtype: str) -> None:
    from constrint.kernels.gemm.build import compile_config

    rng = random.Random(9)
    use = SPEC.use(H200, workload(dtype), SPEC.problem(H200, workload(dtype)))
    for config in rng.sample(configs(dtype), 6):
        compiled = compile_config(H200, workload(dtype), config, rng.choice(["rr", "rc", "cr", "cc"]))
        assert compiled.smem_bytes == use.smem_bytes.value(config), config
        assert compiled.registers_per_thread == REGISTERS
        assert compiled.spill_bytes == 0
        assert compiled.instruction.startswith("wgmma")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["rr", "cc"])
@pytest.mark.parametrize("tile", [(128, 256, 4), (128, 192, 4), (128, 128, 6)], ids=str)
def test_matrix_instructions_stay_in_flight(tile: tuple[int, int, int], layout: str, monkeypatch: Any) -> None:
    """Each consumer commits a step's products together and waits for those of the step before, never for its own."""
    import triton
    import triton.backends.nvidia as backend
    from constrint.kernels.gemm.build import compile_config

    kept: list[Any] = []
    real = triton.compile

    def keep(*arguments: Any, **options: Any) -> Any:
        kept.append(real(*arguments, **options))
        return kept[-1]

    monkeypatch.setattr(triton, "compile", keep)
    config = CONFIG | dict(zip(("tile_m", "tile_n", "num_stages"), tile, strict=True))
    compile_config(H200, workload(), config, layout)
    assert backend.__file__ is not None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kept[-1].asm["cubin"])
        file.flush()
        tool = Path(backend.__file__).parent / "bin" / "cuobjdump"
        text = subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout
    shares = Shares.of(config, "bf16")
    groups = 2 if shares.rest else 1
    products = re.findall(r"HGMMA[^;]*", text)
    assert len(products) == 2 * groups * 4 * (shares.rows // 64)
    assert sum("gsb0" in line for line in products) == 2 * groups
    # In the loop all but the last step's groups are waited for, after it those.
    assert re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d)", text) == [str(groups), "0"] * 2
    assert "USETMAXREG" in text


def is_hopper() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available()) and torch.cuda.get_device_capability() == (9, 0)


needs_hopper = pytest.mark.skipif(not is_hopper(), reason="needs a Hopper GPU")
GPU_TILES = [(128, 256, 4), (256, 128, 3), (128, 192, 4), (128, 128, 5), (64, 256, 4), (64, 192, 2), (64, 64, 6)]
#: One step, ragged tiles, and many tiles of few steps among them.
SHAPES = [(8, 8, 8), (336, 776, 1560), (1000, 1000, 1000), (2048, 2304, 512), (3000, 2000, 72), (520, 5000, 4104)]


def product_is_right(shape: tuple[int, int, int], config: dict[str, int], dtype: str, layout: str, **ep: Any) -> bool:
    """Compare a product on a poisoned output with the one in double precision."""
    import torch

    from constrint.kernels.gemm.launch import Epilogue, Machine, launch
    from constrint.kernels.gemm.reference import gemm_reference

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
        launch(a, b, out, config, Machine(132, 1, True), Epilogue(**ep))
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

    from constrint.kernels.gemm.launch import Epilogue, Machine, launch

    a = torch.empty((2, 64, 64), dtype=torch.bfloat16)
    machine = Machine(132, 1, True)
    with pytest.raises(UsageError, match="one product at a time"):
        launch(a, a, torch.empty_like(a), CONFIG, machine, Epilogue())
    with pytest.raises(UsageError, match="one product at a time"):
        launch(a[:1], a[:1], torch.empty_like(a[:1]), CONFIG, machine, Epilogue(source=a[:1]))
    with pytest.raises(UsageError, match=r"rows of 64 elements of torch\.float32"):
        launch(a[:1], a[:1], torch.empty((1, 64, 64)), CONFIG, machine, Epilogue())
    whole = torch.zeros((1, 64, 64), dtype=torch.int8)
    with pytest.raises(UsageError, match=r"not for torch\.int8"):
        launch(whole, whole, torch.empty((1, 64, 64), dtype=torch.int32), CONFIG, machine, Epilogue())
