"""Quantities of a GPU's file hang together: peaks, memory, caches, registers; each broken relation is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.attacks.gpu_relations import BREAKS, attack
from constrint.hwmodels import list_gpus, load_gpu
from constrint.hwmodels.files import DATA, index
from constrint.hwmodels.load import check_file
from constrint.hwmodels.vendors import list_vendors


def broken(folder: Path, file: str, old: str, new: str) -> list[str]:
    text = (DATA / file).read_text()
    assert old in text
    (folder / "mine.yaml").write_text(text.replace(old, new, 1))
    _, sentences = check_file(folder / "mine.yaml")
    return [sentence.removeprefix(f"{folder / 'mine.yaml'}: ") for sentence in sentences]


@pytest.mark.parametrize("name", list_gpus())
def test_every_shipped_file_holds_every_relation(name: str) -> None:
    model, sentences = check_file(index().files[name])
    assert sentences == []
    assert model == load_gpu(name)


def test_every_target_with_a_model_has_its_units() -> None:
    models = [load_gpu(name) for name in list_gpus()]
    assert [model.name for model in models if model.compiler_target not in model.maker.units()] == []
    for vendor in list_vendors():
        for units in vendor.units().values():
            assert units.source.partition(":")[0] in ("vendor", "executed", "derived", "secondary")


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        (
            "nvidia/l40s.yaml", "fp16: 3.6205e+14", "fp16: 7.2e+14",
            "compute.matrix_flop_per_s.fp16: must be at most 4.031e+14: 1.1 x 142 SMs x 1024 operations a clock x "
            "2.52e+09 Hz; it is 7.2e+14.",
        ),
        (
            "nvidia/rtx-5080.yaml", "bandwidth_bytes_per_s: 9.6e+11", "bandwidth_bytes_per_s: 8.0e+11",
            "memory.dram.bandwidth_bytes_per_s: must be bus_width_bits x data_rate_bits_per_s / 8, 9.6e+11; "
            "it is 8e+11.",
        ),
        (
            "nvidia/h200-sxm.yaml", "sm_count: 132", "sm_count: 1320",
            "device.sm_count: must be fewer, or the clock lower: 1320 SMs x 128 operations a clock x 1.98e+09 Hz are "
            "9.84 times compute.vector_flop_per_s.fp64, and no other peak is nearer; it is 1320.",
        ),
        (
            "nvidia/h200-sxm.yaml", "bandwidth_bytes_per_s: 4.8e+12", "bandwidth_bytes_per_s: 4.8e+13",
            "memory.dram.bandwidth_bytes_per_s: must be at most 2.82e+13: no memory is read whole more than 200 times "
            "a second; it is 4.8e+13.",
        ),
        (
            "nvidia/rtx-5080.yaml", "    bus_width_bits: 256\n", "",
            "memory.dram: needs both or neither: bus_width_bits is null, data_rate_bits_per_s 30000000000.0.",
        ),
        (
            "amd/mi300x.yaml", "bandwidth_bytes_per_s: 1.72e+13", "bandwidth_bytes_per_s: 1.72e+12",
            "memory.last_level.bandwidth_bytes_per_s: must be at least that of dram, 5.3e+12; it is 1.72e+12.",
        ),
        (
            "amd/mi300x.yaml", "vgprs_per_lane: 512", "vgprs_per_lane: 510",
            "sm.wave64.vgprs_per_lane: must be a multiple of alloc_granularity_vgprs, 8; it is 510.",
        ),
        (
            "nvidia/h200-sxm.yaml", "num_gpcs: 8", "num_gpcs: 800",
            "device.num_gpcs: exceeds sm_count, 132; it is 800.",
        ),
    ],
)  # fmt: skip
def test_a_broken_relation_names_the_key_the_rule_and_what_was_seen(
    tmp_path: Path, file: str, old: str, new: str, sentence: str
) -> None:
    assert sentence in broken(tmp_path, file, old, new)


def test_every_broken_rule_of_a_file_is_listed(tmp_path: Path) -> None:
    sentences = broken(tmp_path, "nvidia/rtx-5080.yaml", "sm_count: 84", "sm_count: 8")
    assert [sentence.partition(":")[0] for sentence in sentences][:2] == [
        "compute.matrix_flop_per_s.tf32",
        "compute.matrix_flop_per_s.fp16",
    ]
    assert len(sentences) == 10


def test_impossible_files_are_refused(tmp_path: Path) -> None:
    counts, finds = attack(60, 7, tmp_path)
    assert finds == []
    assert len(counts) == len(set(BREAKS))
