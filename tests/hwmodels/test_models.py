"""The models that ship: complete, sourced, indexed, and saying what they do not know."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import HardwareModelError, UnknownNameError
from constrint.hwmodels import (
    AmdCu,
    Arch,
    CacheLevel,
    Compute,
    Device,
    Dram,
    GpuModel,
    MatrixInstruction,
    Memory,
    NvidiaSm,
    files,
    list_gpus,
    load_all,
    load_gpu,
)
from constrint.hwmodels.files import DATA, fold, index, read_yaml
from constrint.hwmodels.schema import MeasuredHere
from constrint.hwmodels.vendors.amd import VgprFile

MODELS = load_all()
by_name = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
GRADES = ("executed", "vendor", "device", "secondary", "derived")


def test_every_gpu_that_was_promised_is_there() -> None:
    nvidia = """A10 A100-SXM4-40GB A100-SXM4-80GB A30 A40 A800-SXM4-80GB AGX-Orin-64GB AGX-Thor B200 B300 GB10 GB200
        GB300 GH200 H100-NVL H100-PCIe H100-SXM5 H20 H200-SXM H800-SXM5 L20 L4 L40 L40S RTX-3090 RTX-4070 RTX-4070-Ti
        RTX-4080 RTX-4080-SUPER RTX-4090 RTX-5070 RTX-5070-Ti RTX-5080 RTX-5090 RTX-6000-Ada RTX-A6000
        RTX-PRO-6000 T4 V100-SXM2"""
    amd = """MI100 MI210 MI250-GCD MI250X-GCD MI300A MI300X MI308X MI325X MI350X MI355X PRO-W7900 Radeon-8060S
        RX-7900-XT RX-7900-XTX RX-9060-XT RX-9070 RX-9070-XT"""
    assert list_gpus() == (*nvidia.split(), *amd.split())


def test_every_file_is_called_after_its_model_and_no_spelling_stands_for_two() -> None:
    assert {name: DATA / path for name, path in index().files.items()} == {
        model.name: DATA / model.vendor / f"{model.name.lower()}.yaml" for model in MODELS
    }
    claimed = {model.name: {fold(text) for text in (model.name, *model.aliases)} for model in MODELS}
    assert {spelling: owners for spelling, owners in index().names.items() if len(owners) > 1} == {}
    for name, spellings in claimed.items():
        assert all(index().names[spelling] == (name,) for spelling in spellings)


def test_a_file_that_is_put_beside_the_others_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CONTRIBUTING says of adding a GPU is all that there is to do."""
    shutil.copytree(DATA, tmp_path / "data")
    text = (DATA / "nvidia" / "h200-sxm.yaml").read_text()
    aliases = next(line for line in text.splitlines() if line.startswith("aliases:"))
    new = text.replace("name: H200-SXM", "name: My-H300").replace(aliases, "aliases:\n  - h300\n  - h100  # taken\n")
    (tmp_path / "data" / "nvidia" / "my-h300.yaml").write_text(new)
    (tmp_path / "data" / "nvidia" / "broken.yaml").write_text("schema: [")
    monkeypatch.setattr(files, "DATA", tmp_path / "data")
    files.index.cache_clear()
    try:
        assert load_gpu("My H300").name == load_gpu("h300").name == "My-H300"
        assert "My-H300" in list_gpus()
        assert load_gpu("mi300x").name == "MI300X"
        with pytest.raises(HardwareModelError, match="an alias of H100-SXM5 and of My-H300"):
            load_gpu("h100")
        with pytest.raises(HardwareModelError, match=r"broken\.yaml:2: not YAML"):
            load_gpu("broken")
    finally:
        files.index.cache_clear()


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h200", "H200-SXM"),
        ("H200-SXM", "H200-SXM"),
        ("h200_sxm", "H200-SXM"),
        ("NVIDIA H200", "H200-SXM"),
        ("7900xtx", "RX-7900-XTX"),
        ("RX 7900 XTX", "RX-7900-XTX"),
        ("AMD Radeon RX 7900 XTX", "RX-7900-XTX"),
        ("Mi300x", "MI300X"),
        ("a100", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("h100", "H100-SXM5"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("mi250x", "MI250X-GCD"),
        ("mi250", "MI250-GCD"),
        ("AMD Instinct MI308X", "MI308X"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA GB10", "GB10"),
        ("Orin", "AGX-Orin-64GB"),
        ("NVIDIA Thor", "AGX-Thor"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("Strix Halo", "Radeon-8060S"),
    ],
)
def test_names_fold_case_separators_and_vendor_words(spelling: str, name: str) -> None:
    assert load_gpu(spelling).name == name
    assert load_gpu(spelling) is load_gpu(name)


@pytest.mark.parametrize(
    ("typo", "near"),
    [
        ("h200x", "H200-SXM"),
        ("mi300z", "MI300X"),
        ("rtx5091", "RTX-5090"),
        ("l40x", "L40S"),
        ("mi35x", "MI355X"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(typo: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_gpu(typo)
    assert near in caught.value.nearest
    assert near in str(caught.value)


def test_a_name_like_none_lists_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown GPU 'zzzzzzz'.*MI300X"):
        load_gpu("zzzzzzz")


@by_name
def test_every_source_states_its_grade_and_nothing_internal(model: GpuModel) -> None:
    for key, text in model.sources.items():
        assert text.partition(":")[0] in GRADES, key
        assert len(text) > 20, key
    text = (DATA / index().files[model.name]).read_text()
    assert not re.search(r"stored copy", text)


@by_name
def test_every_block_has_sources_that_are_a_few_of_the_file(model: GpuModel) -> None:
    blocks: list[Any] = [model.arch, model.device, model.sm, model.memory.l1, model.memory.l2, model.memory.dram]
    blocks += [model.compute, model.matrix] + ([model.memory.last_level] if model.memory.last_level else [])
    for block in blocks:
        assert set(block.sources) <= set(model.sources)


@by_name
def test_clock_times_width_reproduces_the_matrix_rates_of_amd(model: GpuModel) -> None:
    """Cycles are per SIMD: 2 m n k blocks / cycles x SIMDs x CUs x clock is the dense peak."""
    if not isinstance(model.sm, AmdCu):
        assert all(i.cycles is None for i in model.matrix.instructions)
        return
    best: dict[str, float] = {}
    for row in model.matrix.instructions:
        if row.cycles is not None:
            per_clk = 2 * row.m[0] * row.n[0] * row.k * row.blocks / row.cycles * model.sm.num_partitions
            best[row.dtype] = max(best.get(row.dtype, 0.0), per_clk)
    assert best or model.arch.target == "gfx950"
    for dtype, per_clk in best.items():
        if dtype == "int4":
            continue
        assert model.device.boost_clock_hz is not None
        rate = per_clk * model.device.sm_count * model.device.boost_clock_hz
        assert model.peak_flop_per_s(dtype) == pytest.approx(rate, rel=0.01), dtype


@by_name
def test_numbers_that_hang_together(model: GpuModel) -> None:
    sm = model.sm
    if isinstance(sm, NvidiaSm):
        assert sm.registers_per_partition * sm.num_partitions == 65536
        assert sm.smem_carveouts_bytes[-1] == sm.smem_bytes_per_sm
        assert model.memory.l1.size_bytes is not None
        assert model.memory.l1.size_bytes > sm.smem_bytes_per_sm
    else:
        assert isinstance(sm, AmdCu)
        for size in sm.warp_sizes:
            lanes = sm.vgprs_per_lane(size) * size * sm.num_partitions
            assert lanes * 4 in (393216, 524288 // (2 if sm.max_waves_per_simd == 10 else 1))
    fp32, fp16 = model.vector_flop_per_s("fp32"), model.peak_flop_per_s("fp16")
    assert fp32 is not None
    assert fp16 is not None
    assert fp16 > fp32


@by_name
def test_matrix_shapes_are_dense_single_block_instructions_of_the_dtype(model: GpuModel) -> None:
    for dtype in model.compute.matrix_flop_per_s:
        shapes = model.matrix_shapes(dtype)
        assert shapes, dtype
        assert all(s.dtype == dtype and s.blocks == s.num_ctas == 1 for s in shapes)
    assert not any("smfmac" in row.name or "swmmac" in row.name for row in model.matrix.instructions)


def test_facts_that_others_compute_with() -> None:
    h200, mi300x, mi355x = load_gpu("h200"), load_gpu("mi300x"), load_gpu("mi355x")
    assert h200.memory.l2.size_bytes == 62_914_560
    assert "H200_QUERY" in h200.memory.l2.sources
    assert (h200.arch.target, h200.device.sm_count, h200.sm.max_smem_bytes_per_block) == (
        "sm_90a",
        132,
        232448,
    )
    assert h200.peak_flop_per_s("bf16") == 989.4e12
    assert h200.peak_flop_per_s("fp32") == 67e12
    assert load_gpu("v100").peak_flop_per_s("bf16") is None
    wgmma = [row for row in h200.matrix_shapes("int8") if row.kind == "wgmma"]
    assert [row.n for row in wgmma] == [(8, 16, 24, 32, *range(48, 257, 16))]
    assert (mi300x.device.num_xcds, mi300x.device.sms_per_xcd) == (8, 38)
    assert mi300x.memory.last_level is not None
    assert mi300x.memory.last_level.bandwidth_bytes_per_s == 17.2e12
    assert mi300x.memory.l2.bandwidth_bytes_per_s == pytest.approx(34.4e12, rel=0.001)
    assert mi355x.sm.smem_alloc_granularity_bytes == 1280
    assert "tf32" not in mi355x.compute.matrix_flop_per_s
    assert [load_gpu(n).sm.warp_size for n in ("h200", "mi300x", "7900xtx")] == [32, 64, 32]
    assert load_gpu("l40s").memory.l2.size_bytes == 96 * 2**20
    assert load_gpu("b300").memory.l2.size_bytes is None


def test_unknown_dtypes_are_refused() -> None:
    for ask in (
        load_gpu("h200").peak_flop_per_s,
        load_gpu("h200").matrix_shapes,
        load_gpu("t4").vector_flop_per_s,
    ):
        with pytest.raises(UnknownNameError, match="unknown dtype 'fp17'"):
            ask("fp17")


@by_name
def test_every_unknown_is_declared(model: GpuModel) -> None:
    """The loader enforces it; this looks once more, at the file itself."""
    raw = read_yaml(DATA / index().files[model.name])
    declared = {entry.partition(":")[0] for entry in model.unconfirmed}
    nulls = set(_nulls(raw, ""))
    assert nulls <= declared
    assert all(": " in entry for entry in model.unconfirmed)


def _nulls(value: object, path: str) -> list[str]:
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in _nulls(inner, f"{path}.{key}" if path else key)]
    if isinstance(value, list):
        return [found for inner in value for found in _nulls(inner, path)]
    return [path] if value is None else []


def test_folding_keeps_names_apart() -> None:
    spellings = [spelling for model in MODELS for spelling in (model.name, *model.aliases)]
    assert len({fold(s) for s in spellings}) >= len(MODELS)
    assert fold("AMD") == "amd"


def test_a_path_is_never_taken_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DATA / "nvidia" / "h200-sxm.yaml").read_text().replace("name: H200-SXM", "name: MINE")
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "x").write_text(text)
    for path in ("./mine.yaml", "mine.yaml", str(tmp_path / "mine.yaml"), "h200/x"):
        assert load_gpu(path).name == "MINE"
    assert load_gpu(Path("mine.yaml")).name == "MINE"
    assert load_gpu("h200").name == "H200-SXM"
    (tmp_path / "mine.yaml").write_text(text.replace("name: MINE", "name: CHANGED"))
    assert load_gpu("mine.yaml").name == "CHANGED"


def test_the_schema_is_written_down_key_by_key() -> None:
    text = (DATA / "README.md").read_text()
    described = set(re.findall(r"[a-z][a-z0-9_]*", " ".join(re.findall(r"`[^`]*`", text))))
    structs = (
        GpuModel,
        Arch,
        Device,
        NvidiaSm,
        AmdCu,
        VgprFile,
        CacheLevel,
        Dram,
        Memory,
        Compute,
        MatrixInstruction,
        MeasuredHere,
    )
    for struct in structs:
        assert set(struct.__struct_fields__) <= described, struct.__name__
