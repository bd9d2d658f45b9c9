"""Tables, choices and plans that one process leaves on disk, and what later processes make of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from constrint import cache
from constrint.choose import Decision
from constrint.choose import candidates as choose_candidates
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.pointer.spec import PointerSpec
from constrint.kernels.rnn import candidates as layer_candidates
from constrint.kernels.rnn.candidates import decide_layer
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.spec import SPECS as TRITON_SPECS
from constrint.select.toolchain import key_of
from tests.support.clock import PATIENCE_S
from tests.support.decisions import begin_anew, choose_kernel, forget_products, forget_refusals, refuse_step
from tests.support.gemm import POINTER, product

ASKED = dataclasses.replace(product(1000, 4096, 4096), no_library="our kernels are tested")
LAYER = workload_of("lstm", (16, 1024, 12, 64), "bf16")
BOTH = ("forward", "backward")
#: Its tables, of two kernels, are made in a fraction of the time that an H200's four take.
B200 = load_gpu("b200")


def new_process() -> None:
    """Forget what a process knows."""
    forget_products()
    forget_refusals()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for what is kept."""
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    monkeypatch.setattr(candidates, "_TABLES", {})
    begin_anew(monkeypatch)
    return tmp_path


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def never(*_: object, **__: object) -> Any:
    """Stands for what must not be called."""
    raise AssertionError("computed, although it is on disk")


def arrays_of(gpu: GpuModel) -> list[Any]:
    tables = list(candidates._tables(gpu, ASKED))
    return [(t.spec, list(t.columns), *t.columns.values(), t.blocks_per_sm, t.smem_bytes) for t in tables]


@pytest.mark.parametrize("name", ["h200", "mi300x"])
def test_tables_are_read_back_as_they_were_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = load_gpu(name)
    made, choice = arrays_of(gpu), decide_product(gpu, ASKED)
    new_process()
    monkeypatch.setattr("constrint.kernels.gemm.tables.whole_space", never)
    for one, other in zip(made, arrays_of(gpu), strict=True):
        assert one[:2] == other[:2]
        for mine, read in zip(one[2:], other[2:], strict=True):
            assert mine.dtype == read.dtype
            assert np.array_equal(mine, read)
    assert decide_product(gpu, ASKED) == choice


def array_bytes(rows: Any, **how: bool) -> bytes:
    file = BytesIO()
    np.save(file, rows, **how)
    return file.getvalue()


MALFORMED = [
    b"",
    b"no table",
    array_bytes(np.zeros((9, 4))),
    array_bytes(np.zeros(9, dtype=np.int64)),
    array_bytes(np.zeros((3, 4), dtype=np.int64)),
    array_bytes(np.zeros((9, 0), dtype=np.int64)),
    array_bytes(np.full((9, 4), -1, dtype=np.int64)),
    array_bytes(np.array([{}]), allow_pickle=True),
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_no_table_is_made_anew(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An A100 has one kernel, whose table has seven columns and two for its blocks."""
    gpu = load_gpu("a100")
    assert len(arrays_of(gpu)) == 1
    choice = decide_product(gpu, ASKED)
    new_process()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "load", lambda *_: data)
        assert decide_product(gpu, ASKED) == choice


@pytest.mark.parametrize("data", [b"", b"torn", b"[]", b'{"kernel": 1}', b"[[]]", b'[{"backend": "triton"}]'])
def test_what_is_no_plan_is_made_anew(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = decide_layer(LAYER, B200, BOTH)
    new_process()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "load", lambda *_: data)
        assert decide_layer(LAYER, B200, BOTH) == planned


def test_torn_files_are_made_anew(folder: Path) -> None:
    planned, choice = decide_layer(LAYER, B200, BOTH), decide_product(B200, ASKED)
    assert entries(folder)
    for path in entries(folder):
        path.write_bytes(path.read_bytes()[:-3])
    new_process()
    assert decide_layer(LAYER, B200, BOTH) == planned
    assert decide_product(B200, ASKED) == choice


def test_nothing_is_kept_where_nothing_may_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("CONSTRINT_CACHE", "0")
    choice, planned = decide_product(B200, ASKED), decide_layer(LAYER, B200, BOTH)
    assert not entries(folder)
    monkeypatch.setenv("CONSTRINT_CACHE", str(folder))
    new_process()
    with cache.ignored():
        assert (decide_product(B200, ASKED), decide_layer(LAYER, B200, BOTH)) == (choice, planned)
    assert not entries(folder)


def test_an_edited_gpu_gets_tables_and_plans_of_its_own() -> None:
    """A GPU of the same name with a tenth of the SMs takes longer."""
    replace: Any = msgspec.structs.replace
    edited = replace(B200, device=replace(B200.device, sm_count=13))
    whole, planned = decide_product(B200, ASKED), decide_layer(LAYER, B200, BOTH)
    new_process()
    small, small_plan = decide_product(edited, ASKED), decide_layer(LAYER, edited, BOTH)
    assert small.gpu is edited
    assert small.seconds > 3 * whole.seconds
    assert small_plan.seconds > planned.seconds
    new_process()
    assert decide_product(B200, ASKED) == whole


def plans(monkeypatch: pytest.MonkeyPatch) -> Decision:
    """The plan as a later process reads it."""
    new_process()
    with monkeypatch.context() as patch:
        patch.setattr(layer_candidates, "_timed", never)
        return decide_layer(LAYER, B200, BOTH)


def test_a_plan_is_read_back_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = decide_layer(LAYER, B200, BOTH)
    assert plans(monkeypatch) == planned
    assert str(plans(monkeypatch)) == str(planned)
    assert plans(monkeypatch).gpu is B200
    # Another size is another plan.
    assert decide_layer(workload_of("lstm", (16, 1024, 12, 128), "bf16"), B200, BOTH) != planned


def test_a_choice_is_read_back_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = next(spec for spec in TRITON_SPECS if spec.operation == "lstm")
    choice = choose_kernel(spec, B200, LAYER, fixed={"recompute": 1})
    new_process()
    with monkeypatch.context() as patch:
        patch.setattr(choose_candidates, "_ranked", never)
        assert choose_kernel(spec, B200, LAYER, fixed={"recompute": 1}) == choice
        with pytest.raises(AssertionError, match="although it is on disk"):
            choose_kernel(spec, B200, LAYER, fixed={"recompute": 0})


def test_what_a_device_refused_is_not_taken_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = decide_layer(LAYER, B200, BOTH)
    refused = dataclasses.replace(planned, program=planned.program_of("triton")).of("forward")
    following = refuse_step(refused, "threads", 256, 128)
    assert following.config != refused.config
    assert decide_layer(LAYER, B200, BOTH).program_of("triton").step("forward").config != refused.config
    # Other processes decide for themselves: their device may be another.
    assert plans(monkeypatch) == planned


def test_what_a_device_refused_of_a_product_is_not_taken_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)
    first = decide_product(B200, ASKED)
    following = refuse_step(first, "threads", 256, 128)
    assert following != first
    forget_products()
    assert decide_product(B200, ASKED) == following
    begin_anew(monkeypatch)
    forget_products()
    assert decide_product(B200, ASKED) == first


class Elsewhere(PointerSpec):
    """A kernel of another package."""


def test_nothing_is_kept_for_kernels_of_other_packages() -> None:
    assert key_of(B200, (POINTER,), "bf16") is not None
    assert key_of(B200, (POINTER, Elsewhere()), "bf16") is None
    assert key_of(B200, (POINTER,), "bf16") != key_of(B200, (POINTER,), "fp16")
    assert key_of(B200, (POINTER,), "bf16") != key_of(load_gpu("h100-sxm"), (POINTER,), "bf16")


SCRIPT = """
from dataclasses import replace
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.product import Product
from constrint.kernels.rnn.candidates import decide_layer
from constrint.kernels.rnn.spec import workload_of
from constrint.select.spec import Workload
gpu = load_gpu("b200")
asked = Product.of(Workload("gemm", {"m": 1000, "n": 4096, "k": 4096}, "bf16"))
choice = decide_product(gpu, replace(asked, no_library="our kernels are tested"))
planned = decide_layer(workload_of("lstm", (16, 1024, 12, 64), "bf16"), gpu, ("forward", "backward"))
print(choice.kernel, dict(choice.config), choice.seconds)
print(planned)
"""


def printed(choice: Decision, planned: Decision) -> str:
    return f"{choice.kernel} {dict(choice.config)} {choice.seconds}\n{planned}\n"


def test_processes_may_share_the_folder_at_the_same_time(folder: Path) -> None:
    """Two begin with an empty folder, a third one reads what they left; all choose what this process does."""
    environment = os.environ | {"CONSTRINT_CACHE": str(folder)}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=environment)

    both = [start(), start()]
    outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in both]
    kept = {path: path.read_bytes() for path in entries(folder)}
    outputs.append(start().communicate(timeout=PATIENCE_S)[0])
    assert {path: path.read_bytes() for path in entries(folder)} == kept
    assert not [path for path in kept if path.name.startswith("tmp")]
    with cache.ignored():
        expected = printed(decide_product(B200, ASKED), decide_layer(LAYER, B200, BOTH))
    assert outputs == [expected] * 3
