"""What is exported is read by the tools that it is for: Kernel Tuner, PyTorch Inductor, Triton, a C compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from constrint.answers.formats.records import Source, StatedFields, reader, writer
from constrint.tune.store.choices import best_records
from constrint.tune.store.record import TuningRecord
from tests.support.records import record, timed

NO_KERNEL_TUNER = "kernel_tuner is not installed (pip install kernel_tuner)"


def trials() -> list[TuningRecord]:
    """A small space, every configuration tried once; two of them failed."""
    configs = [
        {"block_size_x": b, "vector": v, "fast": f} for b in (32, 64, 128) for v in (1, 2) for f in (True, False)
    ]
    failed = {3: "compile_failed", 7: "wrong_result"}
    return [
        record(i, kernel="vector_add", operation="vector_add", sizes={"n": 1 << 20}, config=config,
               outcome=failed.get(i, "ok"), figures=None if i in failed else timed(1e-4 * (1 + abs(i - 5))))
        for i, config in enumerate(configs)
    ]  # fmt: skip


def exported(name: str, folder: Path, records: list[TuningRecord] | None = None) -> Path:
    path = folder / f"{name}.json"
    path.write_text("".join(writer(name)(records or trials())))
    return path


def test_kernel_tuner_replays_an_exported_cache(tmp_path: Path) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason=NO_KERNEL_TUNER)
    path = exported("kernel-tuner", tmp_path)
    results, _ = kernel_tuner.tune_cache(str(path), verbose=False, quiet=True)
    measured = [one for one in trials() if one.is_ok]
    assert len(results) == len(measured)
    best = min(results, key=lambda one: one["time"])
    (ours,) = best_records(trials())
    assert {name: best[name] for name in ours.config} == ours.config
    assert ours.figures is not None
    assert best["time"] == pytest.approx(ours.figures.median_s * 1e3)


def test_what_kernel_tuner_adds_to_a_cache_is_imported(tmp_path: Path) -> None:
    util = pytest.importorskip("kernel_tuner.util", reason=NO_KERNEL_TUNER)
    path = exported("kernel-tuner", tmp_path)
    cache = util.read_cache(str(path), open_cache=True)  # now it is open, as while tuning
    failed = sum("__error__" in one for one in cache["cache"].values())
    assert (len(cache["cache"]), failed) == (12, 2)
    more = {"block_size_x": 256, "vector": 1, "fast": True, "time": 0.05, "times": [0.05, 0.04, 0.06]}
    util.store_cache("256,1,True", more, str(path), cache["cache"])
    broken = {"block_size_x": 256, "vector": 2, "fast": True, "time": util.CompilationFailedConfig()}
    util.store_cache("256,2,True", broken, str(path), cache["cache"])
    found = reader("kernel-tuner")(Source(str(path), path.read_bytes()))
    assert len(found) == 14
    assert found[12].figures is not None
    assert found[12].figures.median_s == pytest.approx(5e-5)
    assert found[13].outcome == "compile_failed"


def test_t4_and_t1_agree_with_the_schemas_that_kernel_tuner_carries(tmp_path: Path) -> None:
    file_utils = pytest.importorskip("kernel_tuner.file_utils", reason=NO_KERNEL_TUNER)
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    results = json.loads(exported("t4", tmp_path).read_text())
    _, schema = file_utils.output_file_schema("results")
    jsonschema.validate(results, schema)
    found = file_utils.get_input_file(exported("t1", tmp_path), validate=True)
    assert [one["Name"] for one in found["ConfigurationSpace"]["TuningParameters"]] == [
        "block_size_x",
        "vector",
        "fast",
    ]
    assert found["ConfigurationSpace"]["TuningParameters"][0]["Values"] == "[32, 64, 128]"


def test_what_kernel_tuner_writes_as_t4_is_imported(tmp_path: Path) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason=NO_KERNEL_TUNER)
    file_utils = pytest.importorskip("kernel_tuner.file_utils", reason=NO_KERNEL_TUNER)
    path = exported("kernel-tuner", tmp_path)
    results, _ = kernel_tuner.tune_cache(str(path), verbose=False, quiet=True)
    params = {name: [one.config[name] for one in trials()] for name in ("block_size_x", "vector", "fast")}
    file_utils.store_output_file(str(tmp_path / "theirs.json"), results, params)
    said = StatedFields(kernel="vector_add", gpu="H200-SXM", dtype="fp32")
    found = reader("t4")(Source("theirs.json", (tmp_path / "theirs.json").read_bytes(), said))
    assert len(found) == sum(one.is_ok for one in trials())
    assert best_records(found)[0].config == best_records(trials())[0].config


@pytest.mark.slow
def test_inductor_looks_an_exported_table_up(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    choices = pytest.importorskip("torch._inductor.lookup_table.choices", reason="this torch has no lookup tables")
    import torch

    config = {"tile_m": 128, "tile_n": 64, "tile_k": 32, "num_warps": 8, "num_stages": 3, "group_m": 4}
    product = record(0, config=config, sizes={"m": 64, "n": 128, "k": 96}, options={"transpose_b": 1})
    table: dict[str, Any] = json.loads(exported("inductor", tmp_path, [product]).read_text())

    class Choices(choices.LookupTableChoices):  # type: ignore[misc,name-defined]
        """As on a GPU whose name the table does not state."""

        def _get_lookup_table(self) -> dict[str, Any]:
            return table

        @staticmethod
        def _get_device_key(device: torch.device) -> str:
            return "NVIDIA H200"

    operands = [torch.empty(64, 96, dtype=torch.bfloat16), torch.empty(128, 96, dtype=torch.bfloat16).t()]
    inputs = SimpleNamespace(
        device=lambda: operands[0].device,
        dtypes=lambda: tuple(one.dtype for one in operands),
        shapes_hinted=lambda: tuple(tuple(one.shape) for one in operands),
        strides_hinted=lambda: tuple(one.stride() for one in operands),
        _scalars={},
    )
    found = Choices().lookup_template_configs(inputs, "mm", ["triton::mm", "aten::mm"], {"triton::mm": "hash"})
    (entry,) = found["triton::mm"]
    assert (entry["BLOCK_M"], entry["BLOCK_K"], entry["num_warps"], entry["GROUP_M"]) == (128, 32, 8, 4)


@pytest.mark.slow
def test_triton_takes_the_list_of_configs() -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")
    text = "".join(writer("triton-config")([record(0, config={"BLOCK": 64, "num_warps": 8, "num_stages": 2})]))
    space: dict[str, Any] = {}
    exec(compile(text, "configs.py", "exec"), space)  # noqa: S102 - our own output, as a user would paste it
    (config,) = space["CONFIGS"]
    assert isinstance(config, triton.Config)
    assert (config.kwargs, config.num_warps, config.num_stages) == ({"BLOCK": 64}, 8, 2)


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_a_c_compiler_takes_the_header(tmp_path: Path) -> None:
    hostile = 'a"\\\n*/é%s??/'
    config = {"tile_m": 128, "offset": -3, "wide": 2**62, "ratio": 0.5, "fast": True, "text": hostile, "none": None}
    header = tmp_path / "tuned.h"
    one = record(0, kernel="x*/y", dtype="fp16", config=config, sizes={"n*/": 3})
    header.write_text("".join(writer("c-header")([one])))
    program = """
    #include "tuned.h"
    #include <stdio.h>
    int main(void) {
        printf("%d %d %lld %g %d %s", tile_m, 2 + offset, (long long)wide, ratio, fast, text);
        return CONSTRINT_H200_X_Y_FP16_N_3_tile_m != 128;
    }
    """
    (tmp_path / "main.c").write_text(program)
    command = ["cc", "-std=c99", "-Wall", "-Werror", "-Wno-trigraphs", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True)
    assert done.stdout == f"128 -1 {2**62} 0.5 1 {hostile}"


def test_several_workloads_have_macros_of_their_own_in_c() -> None:
    text = "".join(writer("c-header")([record(0, sizes={"n": 1}), record(1, sizes={"n": 2})]))
    assert "#define CONSTRINT_H200_GEMM_POINTER_BF16_N1_tile_m 128" in text
    assert "#define CONSTRINT_H200_GEMM_POINTER_BF16_N2_number 1" in text
    assert "#define tile_m" not in text
