"""Gated pairs in Triton: what they compile to for GPUs that the CUDA kernel is not written for, and who runs where."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from constrint.choose import Request, decide
from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.select.toolchain import NEWEST, rules_of, triton_version
from constrint.solve import enumerate_space

SPEC = load_spec("gated.pointer")
GPUS = ("a100-sxm4-80gb", "mi300x", "mi355x")


@pytest.mark.parametrize("gpu_name", GPUS)
@pytest.mark.parametrize(
    ("sizes", "dtype", "options"),
    [
        ({"m": 4096, "n": 14336, "k": 4096}, "bf16", {"transpose_b": 1}),
        ({"m": 333, "n": 1000, "k": 777}, "fp16", {"bias": 1}),
    ],
    ids=["aligned", "odd"],
)
def test_the_best_configurations_fit_and_do_not_spill(
    gpu_name: str, sizes: dict[str, int], dtype: str, options: dict[str, int]
) -> None:
    gpu = load_gpu(gpu_name)
    workload = Workload("gated", sizes, dtype, options)
    problem = SPEC.problem(gpu, workload)
    columns, _ = enumerate_space(problem).project(list(problem.variables))
    seconds = SPEC.cost(gpu, workload, columns, np.ones(len(columns["tile_m"]))).seconds
    # Estimates of registers are fitted to the newest version; with another one a kernel that spills is passed over.
    is_newest = rules_of(triton_version()) is rules_of(NEWEST)
    seen, clean = set(), 0
    for at in np.argsort(seconds, kind="stable"):
        config = {name: int(column[at]) for name, column in columns.items()}
        key = config["tile_m"], config["tile_n"], config["num_warps"]
        if key in seen or config.get("waves_per_eu") or config.get("kpack", 1) > 1:
            continue
        seen.add(key)
        compiled = SPEC.compile(gpu, workload, config)
        assert compiled.spill_bytes == 0 or not is_newest, config
        clean += compiled.spill_bytes == 0
        assert compiled.smem_bytes <= gpu.sm.max_smem_bytes_per_block, config
        if len(seen) == 3:
            break
    assert clean


def test_few_columns_have_configurations() -> None:
    for columns in (1, 16, 40):
        workload = Workload("gated", {"m": 69, "n": columns, "k": 1813}, "fp16", {"transpose_b": 1, "bias": 1})
        decision = decide(Request("gated", workload, load_gpu("h200"), kernel="pointer"))
        assert decision.config["tile_n"] >= 64


def test_a_gpu_without_the_cuda_kernel_has_one_launch_to_compare() -> None:
    workload = Workload("gated", {"m": 2048, "n": 1024, "k": 512}, "bf16", {"transpose_b": 1})
    for gpu_name in GPUS:
        decision = decide(Request("gated", workload, load_gpu(gpu_name)))
        one = decision.program_of("gated.pointer")
        assert not one.refusal
        assert one.seconds
        named = decide(Request("gated", workload, load_gpu(gpu_name), kernel="pointer"))
        assert named.program.name == "gated.pointer"
        assert named.config["split_k"] == 1
    with pytest.raises(UnsupportedError, match="Hopper"):
        decide(Request("gated", workload, load_gpu("mi300x"), kernel="cuda"))
