"""The list of `triton.Config` is used as a user does: `@triton.autotune` takes it, and the kernel compiles with it."""

from __future__ import annotations

from typing import Any

import pytest

from constrint import enumerate_space, load_gpu, load_kernel, problem_from_space
from constrint.errors import InfeasibleError, UnknownNameError, UsageError
from constrint.export import export
from constrint.model import Var
from constrint.select.rank import Ranking, rank_requests, requests
from constrint.select.spec import Operation
from constrint.select.workload import Workload

RENAME = {"tile_m": "BLOCK_M", "tile_n": "BLOCK_N", "tile_k": "BLOCK_K", "group_m": "GROUP_M"}
#: What the small kernel does not have: one block per tile, all of K, and no order over dies.
LEFT_OUT = {"split_k": 1, "persistent": 0, "xcd_chunk": 0}


def small_ranking(gpu_name: str, top: int = 2) -> Ranking:
    """The best of configurations that compile quickly."""
    gpu, operation = load_gpu(gpu_name), load_kernel("gemm.pointer")
    able, refusals = requests(operation, gpu, Workload("gemm", {"m": 1024, "n": 1024, "k": 1024}, "bf16"))
    for name, value in {"tile_m": 64, "tile_n": 64, "tile_k": 32, "num_warps": 4, **LEFT_OUT}.items():
        if name in able[0].problem.variables:
            able[0].problem.add(Var(name) == value)
    return rank_requests(operation, able, refusals, top=top)


def configs_of(text: str) -> Any:
    """`CONFIGS` of a file of ours, run as a user imports it."""
    names: dict[str, Any] = {}
    exec(compile(text, "configs.py", "exec"), names)  # noqa: S102
    return names["CONFIGS"]


@pytest.mark.parametrize(("gpu_name", "target", "top"), [("h200", "sm_90", 2), ("mi300x", "gfx942", 1)])
def test_a_kernel_with_autotune_compiles_with_the_list(gpu_name: str, target: str, top: int) -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")
    from constrint.tune import TritonSource, compile_triton
    from tests.support.matmul import matmul_kernel

    ranking = small_ranking(gpu_name, top)
    left_out = {name: "" for name in LEFT_OUT if name in ranking.candidates[0].config}
    text = export(ranking, "triton", rename={**RENAME, **left_out})
    assert ranking.gpu.name in text.splitlines()[0]
    assert "m=1024 n=1024 k=1024 bf16" in text.splitlines()[0]
    assert "modelled, not measured" in text

    tuned = triton.autotune(configs=configs_of(text), key=["m", "n", "k"])(matmul_kernel)
    assert len(tuned.configs) == top
    for config, candidate in zip(tuned.configs, ranking.candidates, strict=True):
        given = config.all_kwargs()
        # As Triton sorts them: what the function names is its own, all else is an option of the back-end.
        constants = {name: given.pop(name) for name in tuned.arg_names if name in given}
        assert constants == {new: candidate.config[old] for old, new in RENAME.items()}
        assert given["num_warps"] == candidate.config["num_warps"]
        assert given["num_stages"] == candidate.config["num_stages"]
        options = {name for name in given if name in ("waves_per_eu", "matrix_instr_nonkdim", "kpack")}
        assert options == {
            name for name in candidate.config if name in ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
        }
        types = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*bf16", "m": "i32", "n": "i32", "k": "i32"}
        source = TritonSource(tuned.fn, types, constants, frozenset(types), given)
        compiled = compile_triton(ranking.gpu, source)
        assert compiled.target == target
        assert compiled.spill_bytes == 0


def test_options_of_amd_stand_among_what_the_kernel_gets() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    (config,) = configs_of(export(small_ranking("mi300x", top=1), "triton"))
    assert {"tile_m", "waves_per_eu", "matrix_instr_nonkdim", "kpack"} <= config.kwargs.keys()
    assert not {"num_warps", "num_stages"} & config.kwargs.keys()


def test_kernels_have_lists_of_their_own_and_configs_is_that_of_the_best() -> None:
    gpu, operation = load_gpu("h200"), load_kernel("gemm")
    able, refusals = requests(operation, gpu, operation.default_workload(gpu))
    ranking = rank_requests(operation, able, refusals, top=30)
    configured = [candidate.kernel for candidate in ranking.candidates if candidate.config]
    kernels = list(dict.fromkeys(configured))
    assert len(kernels) > 1
    text = export(ranking, "triton")
    for kernel in kernels:
        assert f"CONFIGS_{kernel.replace('.', '_').upper()} = [" in text
    assert text.endswith(f"CONFIGS = CONFIGS_{kernels[0].replace('.', '_').upper()}\n")
    assert text.count("triton.Config(") == len(configured) >= 29
    assert text == export(ranking, "triton"), "the output is the same each time"


def test_what_varies_cannot_be_left_out() -> None:
    ranking = small_ranking("h200", top=5)
    values = {candidate.config["num_stages"] for candidate in ranking.candidates}
    assert len(values) > 1
    with pytest.raises(UsageError, match=r"num_stages cannot be left out: it is .*Fix it first"):
        export(ranking, "triton", rename={"num_stages": ""})


@pytest.mark.parametrize(
    ("rename", "error", "told"),
    [
        ({"tile_q": "Q"}, UnknownNameError, "unknown parameter 'tile_q'.*tile_k"),
        ({"tile_m": "tile_n"}, UsageError, "'tile_m' and 'tile_n' would both be called 'tile_n'"),
        ({"tile_m": "lambda"}, UsageError, "'lambda' cannot stand in a Python expression"),
        ({"tile_m": 'x": __import__("os"), "y'}, UsageError, "cannot stand in a Python expression"),
    ],
)
def test_names_that_cannot_be_are_refused(rename: dict[str, str], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        export(small_ranking("h200", top=1), "triton", rename=rename)


def test_a_kernel_that_is_not_in_triton_is_refused() -> None:
    gpu, operation = load_gpu("h200"), load_kernel("lstm.cuda")
    able, refusals = requests(operation, gpu, operation.default_workload(gpu))
    assert isinstance(operation, Operation)
    with pytest.raises(UsageError, match=r"lstm\.cuda has no num_warps and no num_stages.*--kernel"):
        export(rank_requests(operation, able, refusals, top=1), "triton")


def test_a_users_space_with_text_and_bools_becomes_a_list() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    hostile = "a\"\\\n# é'"
    params: dict[str, list[Any]] = {"BLOCK": [64, 128], "mode": [hostile], "fast": [True, None], "num_warps": [4]}
    space = enumerate_space(problem_from_space(params, ["BLOCK > 64"]))
    first, second = configs_of(export(space, "triton", title="mine\n*/ import os"))
    assert first.kwargs == {"BLOCK": 128, "mode": hostile, "fast": True}
    assert second.kwargs["fast"] is None
    (only,) = configs_of(export(space, "triton", top=1))
    assert (only.kwargs, only.num_warps) == (first.kwargs, 4)


def test_an_empty_space_is_refused() -> None:
    space = enumerate_space(problem_from_space({"x": [1, 2]}, ["x > 2"]))
    with pytest.raises(InfeasibleError, match="no valid configuration to export"):
        export(space, "triton")
