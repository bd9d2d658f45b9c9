"""`constrint kernels`, and what the help says of kernels and their sizes."""

from __future__ import annotations

import csv
import io
import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import msgspec
import pytest

from constrint import plugins
from constrint.cli import kernel_list, limits
from constrint.cli.shipped import digest, shipped
from constrint.hwmodels import load_gpu
from constrint.hwmodels.load import load_all
from constrint.kernels import registry
from constrint.kernels.registry import list_kernels, load_kernel
from examples.softmax.softmax import SPEC

SHIPPED_IS_STALE = "write it anew: python -m benchmarks.shipped"


def test_every_operation_and_implementation_is_listed_with_its_sizes(run: Any) -> None:
    code, out, _ = run("kernels")
    assert code == 0
    for name in list_kernels():
        operation = load_kernel(name)
        assert all(f"{spec.full_name} " in out for spec in operation.implementations)
        for size in (*operation.sizes, *operation.options):
            line = next(line for line in out.splitlines() if line.startswith("--" + size.name.replace("_", "-") + " "))
            assert size.meaning in line or name != "gemm"


def test_the_document_says_where_each_runs(run: Any) -> None:
    document = json.loads(run("kernels", "--json")[1])
    assert document["schema"] == "constrint.kernels/1"
    kernels = {kernel["name"]: kernel for kernel in document["kernels"]}
    assert [name for name, kernel in kernels.items() if kernel["is_default"]] == ["gemm"]
    assert kernels["gemm"]["sizes"][0] | {"meaning": ""} == {
        "name": "m", "default": 4096, "meaning": "", "least": 1, "most": 2**31 - 1,
    }  # fmt: skip
    implementations = {each["name"]: each for kernel in kernels.values() for each in kernel["implementations"]}
    assert implementations["gemm.pointer"]["gpus"] == [
        gpu["name"] for gpu in json.loads(run("gpus", "--json")[1])["gpus"]
    ]
    for each in implementations.values():
        for name in each["gpus"]:
            assert each["name"] != "gemm.descriptor" or load_gpu(name).traits.has_tensor_descriptors
    assert "H200-SXM" in implementations["lstm.cudnn"]["gpus"]


def test_one_kernel_is_shown_alone_in_every_format(run: Any) -> None:
    out = run("kernels", "gru")[1]
    assert "gru.triton" in out
    assert "gemm.pointer " not in out
    rows = list(csv.DictReader(io.StringIO(run("kernels", "gru", "--format", "csv")[1])))
    assert [row["kernel"] for row in rows] == [spec.full_name for spec in load_kernel("gru").implementations]
    assert rows[0]["sizes"] == "batch=16 time=1024 heads=12 head_dim=64"


def test_a_registered_kernel_is_listed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry.register(SPEC)
    out = run("kernels")[1]
    assert f"{SPEC.full_name} " in out
    assert SPEC.summary.split()[0] in out


@pytest.mark.parametrize("name", ["gem", "", "x" * 10_000, "\x07", "größe", "gemm.x"])
def test_a_wrong_name_is_one_line(run: Any, name: str) -> None:
    code, out, err = run("kernels", name)
    assert (code, out) == (2, "")
    assert err.startswith("error: unknown kernel")
    assert len(err) < 500
    assert "\x07" not in err


def test_solve_without_a_kernel_says_which_is_meant(run: Any) -> None:
    said = "no --kernel was named, so gemm is meant; `constrint kernels` lists all"
    assert run("solve", "--gpu", "h200", "--top", 1)[1].splitlines()[1] == said
    assert said not in run("solve", "--gpu", "h200", "--kernel", "gemm", "--top", 1)[1]


@pytest.mark.parametrize("kernel", ["gemm", "lstm"])
def test_the_help_of_a_kernel_says_what_its_sizes_mean(run: Any, kernel: str) -> None:
    code, out, _ = run("solve", "--kernel", kernel, "--help")
    assert code == 0
    text = " ".join(out.split())
    for size in load_kernel(kernel).sizes:
        meaning = f"{size.meaning[:1].upper()}{size.meaning[1:]}. [default: {size.default}]"
        assert f"--{size.name.replace('_', '-')} <int> {meaning}" in text
    assert f"are sizes of {kernel}. Those of another kernel: constrint solve --kernel NAME --help" in text


def test_the_first_list_asks_no_kernel_about_any_gpu(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(kernel_list, "_facts", None)
    assert run("kernels")[0] == 0
    assert run("kernels", "--json")[0] == 0
    assert run("kernels", "gemm")[0] == 0


def test_only_operations_that_a_package_adds_to_are_computed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry.register(SPEC)
    computed: list[str] = []
    facts = kernel_list._facts

    def noted(one: Any, gpus: Any) -> Any:
        computed.append(one.name)
        return facts(one, gpus)

    monkeypatch.setattr(kernel_list, "_facts", noted)
    out = run("kernels")[1]
    assert computed == [SPEC.operation]
    assert f"{SPEC.full_name} " in out
    assert "gemm.pointer " in out


def test_the_shipped_list_is_that_of_the_kernels() -> None:
    names = registry.built_in_operations()
    found = kernel_list.kernels_of([load_kernel(name) for name in names])
    assert msgspec.json.encode(found) == msgspec.json.encode(shipped().kernels), SHIPPED_IS_STALE


@pytest.mark.parametrize(
    "name", ["h200", "b200", "a100-sxm4-80gb", "rtx-4090", "t4", "mi300x", "mi355x", "rx-7900-xtx"]
)
def test_the_shipped_heads_are_the_largest(name: str) -> None:
    gpu = load_gpu(name)
    assert limits.largest_heads(gpu) == shipped().heads[digest(gpu)], SHIPPED_IS_STALE


def test_every_shipped_gpu_has_its_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {digest(gpu) for gpu in load_all()} == shipped().heads.keys(), SHIPPED_IS_STALE


def test_a_package_with_kernels_is_read_again_when_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "theirs_with_kernels" / "kernels.py"
    file.parent.mkdir()
    file.write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("theirs", "theirs_with_kernels.kernels:SPEC", registry.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "offered", lambda group: [point])
    before = kernel_list._key()
    assert before is not None
    assert kernel_list._key() == before
    file.write_text("raise SystemExit('changed')\n")
    assert kernel_list._key() != before
    monkeypatch.setattr(plugins, "offered", lambda group: [EntryPoint("x", "no_such_package:SPEC", group)])
    assert kernel_list._key() is None


def test_the_largest_heads_of_a_model_of_ones_own_are_searched_once(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    found: list[str] = []

    def largest(gpu: Any, operation: str, dtype: str) -> int:
        found.append(f"{operation} {dtype}")
        return 64 * len(found)

    monkeypatch.setattr(limits, "_largest_head_dim", largest)
    run("limits", "--gpu", "h200")
    assert not found
    for name, sms in (("first", 131), ("second", 130)):
        text = run("gpu", "h200", "--yaml")[1].replace("sm_count: 132", f"sm_count: {sms}")
        (tmp_path / f"{name}.yaml").write_text(text)
    shown = run("limits", "--gpu", tmp_path / "first.yaml", "--json")
    assert run("limits", "--gpu", tmp_path / "first.yaml", "--json") == shown
    assert len(found) == 6
    run("limits", "--gpu", tmp_path / "second.yaml")
    assert len(found) == 12
