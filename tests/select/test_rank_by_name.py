"""`constrint.rank` by plain names: the same answer as with specs and models, a clear sentence for every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import constrint
from constrint import Workload, load_gpu, load_kernel, rank
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels.files import DATA
from constrint.select import KernelSpec

SIZES: Any = {"m": 512, "n": 512, "k": 512}


def test_names_ask_the_same_as_specs_and_models() -> None:
    named = rank("gemm", "mi300x", **SIZES, dtype="FP16", top=3)
    stated = rank(load_kernel("gemm"), load_gpu("mi300x"), Workload("gemm", SIZES, "fp16"), top=3)
    assert named.candidates == stated.candidates
    assert named.workload == stated.workload
    only = rank(load_kernel("gemm.pointer").implementations[0], "MI300X", **SIZES, top=1)
    assert only.workload.dtype == load_kernel("gemm").default_workload(load_gpu("mi300x")).dtype
    assert rank("gemm.pointer", "mi300x", **SIZES, top=1).candidates == only.candidates


def test_options_stand_beside_sizes_and_sizes_may_all_be_left_out() -> None:
    ranking = rank("gemm", "h200", **SIZES, transpose_b=1, batch=1, top=1)
    assert ranking.workload.options == {"transpose_b": 1}
    assert rank("gemm", "h200", top=1).workload == load_kernel("gemm").default_workload(load_gpu("h200"))
    assert rank("gemm", "h200", dtype="fp8", top=1).workload.dtype == "fp8"


def test_integers_of_numpy_are_whole_numbers() -> None:
    ranking = rank("gemm", "h200", m=np.int64(512), n=np.int32(512), k=512, top=1)
    assert ranking.workload.sizes == SIZES
    assert all(type(size) is int for size in ranking.workload.sizes.values())
    given = Workload("gemm", {**SIZES, "m": np.int64(512)}, "bf16")
    assert constrint.select.rank(load_kernel("gemm"), load_gpu("h200"), given, top=1).candidates == ranking.candidates


def test_a_gpu_may_be_a_file() -> None:
    path = next(Path(DATA).rglob("a100*.yaml"))
    assert rank("gemm", path, **SIZES, top=1).gpu == load_gpu(str(path))


@pytest.mark.parametrize(
    ("sizes", "kind", "told"),
    [
        ({"m": 1, "n": 2}, UsageError, r"kernel 'gemm' has the sizes m, n and k; k is missing. A whole call: rank\("),
        ({"k": 1}, UsageError, "m and n are missing"),
        ({**SIZES, "kk": 3}, UnknownNameError, "unknown size 'kk'. Nearest: k. These are sizes and options of kernel"),
        ({**SIZES, "m": 8192.5}, UsageError, "m of kernel 'gemm' must be a whole number, got 8192.5"),
        ({**SIZES, "m": "8192"}, UsageError, "m of kernel 'gemm' must be a whole number, got '8192'"),
        ({**SIZES, "m": True}, UsageError, "must be a whole number, got True"),
        ({**SIZES, "m": None}, UsageError, "must be a whole number, got None"),
        ({**SIZES, "m": 0}, UsageError, "m must be between 1 and"),
        ({**SIZES, "m": 2**40}, UsageError, "m must be between 1 and"),
        ({**SIZES, "transpose_a": 2}, UsageError, "transpose_a must be between 0 and 1, got 2"),
        ({**SIZES, "dtype": "fp64"}, UnknownNameError, "unknown dtype 'fp64'. Known: bf16"),
        ({**SIZES, "dtype": np.float16}, UsageError, r"dtype takes a name \(bf16, .*\), got <class 'numpy.float16'>"),
        ({**SIZES, "top": 0}, UsageError, "top must be a whole number from 1, got 0"),
        ({**SIZES, "top": 1.5}, UsageError, "top must be a whole number from 1, got 1.5"),
        ({**SIZES, "compile": -1}, UsageError, "compile must be a whole number from 0, got -1"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong_with_it(sizes: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        rank("gemm", "mi300x", **sizes)


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (Workload("gemm", {"m": 1, "n": 2}, "fp16"), "k is missing"),
        (Workload("gemm", {**SIZES, "z": 3}, "fp16"), "unknown size 'z'"),
        (Workload("gemm", {**SIZES, "batch": 3}, "fp16"), "'batch' is an option of 'gemm'"),
        (Workload("gemm", SIZES, "fp16", {"z": 3}), "unknown size 'z'"),
        (Workload("lstm", SIZES, "fp16"), "the workload is one of 'lstm', the kernel 'gemm' computes 'gemm'"),
        (Workload("gemm", {**SIZES, "m": 8192.5}, "fp16"), "must be a whole number, got 8192.5"),  # type: ignore[dict-item]
        (Workload("gemm", SIZES, None), "dtype takes a name"),  # type: ignore[arg-type]
        ({"m": 3}, "a workload is a constrint.Workload, got dict"),
    ],
    ids=str,
)
def test_a_wrong_workload_is_told_what_is_wrong_with_it(workload: Any, told: str) -> None:
    for ask in (rank, constrint.select.rank):
        with pytest.raises(UsageError, match=told):
            ask(load_kernel("gemm"), load_gpu("mi300x"), workload)


@pytest.mark.parametrize(
    ("kernel", "gpu", "told"),
    [
        ("gem", "mi300x", "unknown kernel 'gem'. Nearest: gem"),
        ("gemm", "mi30x", "unknown GPU 'mi30x'. Nearest: .*MI300X"),
        ("gemm", None, "a GPU is named by a non-empty string or a path; got None"),
        (None, "mi300x", "a kernel is a name, an Operation or a KernelSpec, got None"),
        (KernelSpec, "mi300x", r"got <class .*KernelSpec'>; write KernelSpec\(\)"),
        ("", "mi300x", "unknown kernel ''. Known: "),
    ],
)
def test_wrong_kernels_and_gpus_are_named(kernel: Any, gpu: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        rank(kernel, gpu, **SIZES)


def test_a_workload_and_its_parts_exclude_each_other() -> None:
    with pytest.raises(
        UsageError, match="a workload or its parts by name, not both; leave out the workload or m, dtyp"
    ):
        rank("gemm", "mi300x", Workload("gemm", SIZES, "fp16"), m=3, dtype="fp16")


@pytest.mark.parametrize("name", [None, 3])
def test_what_is_no_name_of_a_kernel_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="a kernel is named by a text"):
        load_kernel(name)
