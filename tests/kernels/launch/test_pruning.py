"""`constrint.prune` and `constrint.perf_model`: what they leave out, what they leave alone, and Triton's protocol."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import constrint
from benchmarks.harness.table import read_rows
from constrint import perf_model, prune
from constrint.errors import InfeasibleError, NoDeviceError, UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.pruning import limits
from constrint.kernels.registry import load_kernel, load_spec
from constrint.select import KernelSpec, Operation
from tests.support.needs import needs_triton
from tests.support.tutorial import RENAME, SIZES, lists

RECORDED = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "prune.csv"
GRID = lists()["grid"]
ASKED: Any = {"rename": {**RENAME}, "dtype": "fp16", **SIZES}


def config(m: int, n: int, k: int, stages: int, warps: int) -> dict[str, int]:
    return {
        "BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8,
        "num_stages": stages, "num_warps": warps,
    }  # fmt: skip


def test_what_is_left_out_today_is_what_was_shown_not_to_run() -> None:
    """Every row was compiled, by a program of commit befc2ab: `benchmarks/results/README.md`."""
    rows = read_rows(RECORDED)
    assert len(rows) >= 300
    for gpu in {row["gpu"] for row in rows}:
        own = [row for row in rows if row["gpu"] == gpu]
        names = {ours: theirs for theirs, ours in RENAME.items()}
        columns = ("tile_m", "tile_n", "tile_k", "num_stages", "num_warps")
        configs = [{names.get(name, name): int(row[name]) for name in columns} for row in own]
        rename = {theirs: ours for theirs, ours in RENAME.items() if ours in columns}
        kept = {id(one) for one in prune(configs, "gemm.pointer", gpu=gpu, **{**ASKED, "rename": rename})}
        removed = [row for one, row in zip(configs, own, strict=True) if id(one) not in kept]
        assert len(removed) >= 10
        assert [row["is_kept"] for row in own] == [str(id(one) in kept) for one in configs]
        assert all(row["blocks_per_sm"] == "0" for row in removed)
        late = [row for one, row in zip(configs, own, strict=True) if id(one) in kept and "bytes of" in row["problem"]]
        assert not late


def test_the_same_objects_come_back_in_their_order() -> None:
    kept = prune(GRID, "gemm.pointer", gpu="a100", **ASKED)
    assert 0 < len(kept) < len(GRID)
    places = [next(at for at, one in enumerate(GRID) if one is config) for config in kept]
    assert places == sorted(places)
    # An operation's name leaves out only what none of its implementations could run.
    of_any = prune(GRID, "gemm", gpu="h200", **ASKED)
    assert all(any(one is other for other in of_any) for one in prune(GRID, "gemm.pointer", gpu="h200", **ASKED))


def test_reasons_are_told() -> None:
    told: list[tuple[Any, str]] = []
    two = [config(256, 256, 128, 5, 8), config(64, 64, 32, 3, 4)]
    assert prune(two, "gemm.pointer", gpu="a100", say=lambda *one: told.append(one), **ASKED) == two[1:]
    ((removed, why),) = told
    assert removed is two[0]
    # Four stages of A and B in fp16, as mma.sync holds the fifth in registers.
    assert f"at most 166,912 bytes of shared memory, and this takes {4 * (256 + 256) * 128 * 2:,}" in why


def test_nothing_but_the_hardware_prunes_another_kernel() -> None:
    """Our kernel's own rules, and what registers are estimated to spill, are no proof."""
    spilling, small, idle = config(256, 256, 32, 2, 1), config(16, 16, 16, 1, 8), config(512, 16, 16, 2, 4)
    every = [spilling, small, idle]
    assert prune(every, "gemm.pointer", gpu="h200", **ASKED) == every
    assert prune([*every, config(64, 64, 32, 3, 64)], "gemm.pointer", gpu="h200", **ASKED) == every


def test_values_beyond_those_that_a_spec_knows() -> None:
    deep, wide = config(128, 256, 64, 9, 8), config(1024, 256, 128, 3, 8)
    kept = config(64, 64, 32, 9, 8)
    assert prune([deep, wide, kept], "gemm.pointer", gpu="a100", **ASKED) == [kept]
    # MI300X is asked for up to four stages; five take one more slice of A and B.
    assert prune([kept, config(64, 256, 32, 5, 8)], "gemm.pointer", gpu="mi300x", **ASKED) == [kept]
    none = {**config(256, 256, 128, 3, 8), "num_stages": 0}
    assert prune([none], "gemm.pointer", gpu="mi300x", **ASKED) == [none]
    odd: Any = [{**kept, "num_stages": "many"}, {**kept, "BLOCK_SIZE_M": 8}, {**kept, "num_warps": None}]
    assert prune(odd, "gemm.pointer", gpu="a100", **ASKED) == odd


def test_a_parameter_that_a_config_does_not_name_may_have_any_value() -> None:
    large = config(256, 256, 128, 5, 8)
    whole = {name: value for name, value in large.items() if name != "num_stages"}
    assert prune([whole, config(64, 64, 32, 3, 4)], "gemm.pointer", gpu="a100", **ASKED)[0] is whole
    with pytest.raises(InfeasibleError, match="none of the 1 configs can run on MI300X"):
        prune([{**whole, "BLOCK_SIZE_K": 256}], "gemm.pointer", gpu="mi300x", **ASKED)


def test_sizes_that_are_no_multiples_of_16_leave_only_threads_to_be_certain_of() -> None:
    large, many = config(256, 256, 128, 5, 8), config(64, 64, 32, 3, 64)
    odd = {**ASKED, "K": 4100}
    assert prune([large, many], "gemm.pointer", gpu="a100", **odd) == [large]
    with pytest.raises(InfeasibleError, match=r"BLOCK_SIZE_M=256 .*: a block of A100.* has at most"):
        prune([large, many], "gemm.pointer", gpu="a100", **ASKED)


def test_a_stated_space_prunes_by_its_own_names_and_rules() -> None:
    space = constrint.space(
        {"BLOCK": [64, 128, 256, 512], "num_warps": [4, 8]},
        rules=["BLOCK <= N", "BLOCK >= 32 * num_warps // 2"],
        smem_bytes="BLOCK * 128 * element_bytes",
    )
    configs = [{"BLOCK": block, "num_warps": warps} for block in (64, 128, 256, 512) for warps in (4, 8)]
    kept = prune(configs, space, gpu="mi300x", dtype="fp32", N=256)
    assert kept == [{"BLOCK": 64, "num_warps": 4}, {"BLOCK": 128, "num_warps": 4}, {"BLOCK": 128, "num_warps": 8}]
    assert len(prune(configs, space, gpu="mi300x", dtype="fp16", N=256)) == 5
    with pytest.raises(UsageError, match=r"unknown name 'N'.*Give sizes by name"):
        prune(configs, space, gpu="mi300x", dtype="fp32")
    with pytest.raises(UsageError, match="'element_bytes'"):
        prune(configs, space, gpu="mi300x", N=256)


def test_a_spec_of_ones_own_will_do() -> None:
    spec = load_spec("gemm.pointer")
    assert isinstance(spec, KernelSpec)
    named = prune(GRID, "gemm.pointer", gpu="a100", **ASKED)
    assert prune(GRID, spec, gpu="a100", **ASKED) == named
    assert prune(GRID, Operation(spec.full_name, (spec,)), gpu=load_gpu("a100"), **ASKED) == named


@pytest.mark.parametrize(
    ("configs", "spec", "changed", "kind", "told"),
    [
        (GRID, "gem", {}, UnknownNameError, "unknown kernel 'gem'"),
        (GRID, None, {}, UsageError, "say what the configs are of"),
        (GRID, 3, {}, UsageError, "spec takes a kernel's name"),
        (GRID, "gemm", {"gpu": "h2"}, UnknownNameError, "unknown GPU 'h2'"),
        (GRID, "gemm", {"rename": {"BLOCK_SIZE_M": "tile"}}, UnknownNameError, "'BLOCK_SIZE_M' stands for it"),
        (GRID, "gemm", {"rename": {"BLOCK_M": "tile_m"}}, UnknownNameError, "unknown name 'BLOCK_M'. Nearest: BLOCK"),
        (GRID, "gemm", {"rename": {"M": "m", "MM": "m"}}, UsageError, "several names for m"),
        (GRID, "gemm", {"dtype": "fp64"}, UnknownNameError, "unknown dtype 'fp64'"),
        (GRID, "gemm", {"K": None}, UsageError, "must be a whole number"),
        ("gemm", "gemm", {}, UsageError, "configs takes a list of triton.Config or of mappings, got str"),
        ([3], "gemm", {}, UsageError, "a config is a triton.Config or a mapping of names to values, got 3"),
    ],
)
def test_mistakes_are_told(configs: Any, spec: Any, changed: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        prune(configs, spec, **{"gpu": "h200", **ASKED, **changed})


def test_missing_sizes_are_named() -> None:
    with pytest.raises(UsageError, match=r"n and k are missing. rename="):
        prune(GRID, "gemm", gpu="h200", rename={**RENAME}, M=4096)
    assert prune(GRID, "gemm.pointer", gpu="a100", rename={**RENAME}, dtype="fp16") == prune(
        GRID, "gemm.pointer", gpu="a100", **ASKED
    )


def test_the_gpu_is_that_of_this_machine_or_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> list[Any]:
        raise NoDeviceError("no GPU found on this machine (torch: sees no device).")

    monkeypatch.setattr(limits, "detect", none)
    with pytest.raises(UsageError, match="say which GPU is meant, gpu='h200': no GPU found"):
        prune(GRID, "gemm.pointer", **ASKED)
    a100 = constrint.hwmodels.DetectedDevice(0, "torch", "NVIDIA A100", model="A100-SXM4-80GB")
    monkeypatch.setattr(limits, "detect", lambda: [a100, a100])
    assert prune(GRID, "gemm.pointer", **ASKED) == prune(GRID, "gemm.pointer", gpu="a100", **ASKED)


class Autotuned:
    """A kernel of `triton.autotune` as its tuner prunes a call's configurations; nothing is launched."""

    def __init__(self, configs: list[Any], prune_configs_by: dict[str, Any]) -> None:
        import triton

        from tests.support.tutorial_kernel import matmul_kernel

        self.tuner = triton.autotune(configs, ["M", "N", "K"], prune_configs_by=prune_configs_by)(matmul_kernel)

    def pruned(self, m: int, n: int, k: int, **kwargs: Any) -> list[Any]:
        import torch

        a, b, c = (torch.empty(shape, dtype=torch.float16, device="meta") for shape in ((m, k), (k, n), (m, n)))
        strides = [stride for tensor in (a, b, c) for stride in tensor.stride()]
        self.tuner.nargs = dict(zip(self.tuner.arg_names, (a, b, c, m, n, k, *strides), strict=False))
        pruned: list[Any] = self.tuner.prune_configs({"grid": lambda meta: (1,), "warmup": False, **kwargs})
        return pruned


def triton_configs(configs: list[dict[str, int]]) -> list[Any]:
    import triton

    own = ("num_stages", "num_warps")
    return [
        triton.Config({n: v for n, v in one.items() if n not in own}, **{n: one[n] for n in own}) for one in configs
    ]


@needs_triton
def test_triton_prunes_with_it() -> None:
    configs = triton_configs(GRID)
    kernel = Autotuned(configs, {"early_config_prune": prune(spec="gemm.pointer", gpu="a100", rename={**RENAME})})
    kept = kernel.pruned(4096, 4096, 4096)
    expected = prune(configs, "gemm.pointer", gpu="a100", **ASKED)
    assert [id(one) for one in kept] == [id(one) for one in expected]
    assert len(kernel.pruned(4096, 4096, 4100)) == len(configs)
    with pytest.raises(InfeasibleError, match="none of the 1 configs can run on A100"):
        Autotuned(
            triton_configs([config(256, 256, 128, 5, 8)]),
            {"early_config_prune": prune(spec="gemm.pointer", gpu="a100", rename={**RENAME})},
        ).pruned(4096, 4096, 4096)


@needs_triton
def test_triton_ranks_with_it() -> None:
    configs = triton_configs(GRID[::4])
    model = perf_model("gemm.pointer", "mi300x", rename={**RENAME})
    kernel = Autotuned(configs, {"perf_model": model, "top_k": 5})
    best = kernel.pruned(2048, 4096, 1024)
    assert len(best) == 5
    workload: Any = {"M": 2048, "N": 4096, "K": 1024}
    timed = perf_model("gemm.pointer", "mi300x", rename={**RENAME}, dtype="fp16")
    times = {id(one): timed(**workload, **one.all_kwargs()) for one in configs}
    assert sorted(times.values())[:5] == [times[id(one)] for one in best]
    assert math.isinf(timed(**workload, **config(256, 256, 128, 5, 8)))
    assert all(math.isfinite(times[id(one)]) for one in best)


def test_a_time_is_that_of_the_ranking() -> None:
    sizes: Any = {"m": 4096, "n": 4096, "k": 4096}
    best = constrint.rank("gemm.pointer", "mi300x", **sizes, dtype="bf16", top=1).candidates[0]
    assert perf_model("gemm.pointer", "mi300x", dtype="bf16")(**sizes, **best.config) == pytest.approx(
        best.cost.seconds, rel=1e-6
    )


def test_a_perf_model_says_what_it_lacks() -> None:
    with pytest.raises(UsageError, match=r"constrint.space\(...\) has none: name a kernel"):
        perf_model(constrint.space({"BLOCK": [1, 2]}))
    with pytest.raises(UsageError, match="k is missing"):
        perf_model("gemm", "h200", dtype="fp16")(m=4096, n=4096, tile_m=128)
    with pytest.raises(UnknownNameError, match=r"'BLOCK_M'.*the call has no such name"):
        perf_model("gemm", "h200", rename={"BLOCK_M": "tile_m"}, dtype="fp16")(m=1, n=1, k=1)
    assert load_kernel("gemm").implementations[-1].full_name == "gemm.pointer"
