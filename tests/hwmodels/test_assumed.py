"""What is assumed of a GPU: every model has it, with a band and a source, and what its own file states comes first."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from constrint.errors import HardwareModelError
from constrint.hwmodels import GpuModel, load_all, load_gpu
from constrint.hwmodels.assumed import (
    QUANTITIES,
    SUSTAINED,
    assumption,
    assumptions_of,
    l2_bandwidth,
    last_level_bandwidth,
    read_assumed,
    sustained_matrix_fraction,
)

GPUS = load_all()
CLOCK_HZ = 1e9


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_gpu_has_a_sustained_share_and_bandwidths_of_its_caches(gpu: GpuModel) -> None:
    assert gpu.compute.sustained_matrix_fraction is not None or assumption(gpu, SUSTAINED) is not None
    assert 0.4 < sustained_matrix_fraction(gpu) <= 1.0
    caches = [l2_bandwidth(gpu, CLOCK_HZ)]
    if gpu.memory.last_level is not None:
        caches.append(last_level_bandwidth(gpu, CLOCK_HZ))
    for found in caches:
        assert found is not None
        assert found.low <= found.value <= found.high
        assert found.is_stated == (not found.source)


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_an_assumption_names_a_source_or_says_that_it_has_none(vendor: str) -> None:
    gpu = next(gpu for gpu in GPUS if gpu.vendor == vendor)
    entries = assumptions_of(gpu)
    assert set(entries) <= set(QUANTITIES)
    known = {key for gpu in GPUS for key in (gpu.name, gpu.arch.target, gpu.arch.family)}
    for quantity, by_key in entries.items():
        assert set(by_key) <= known, "an entry that no GPU takes"
        for key, entry in by_key.items():
            assert entry.source.startswith(("secondary: ", "assumed: ")), (quantity, key)


def test_what_a_file_states_comes_first() -> None:
    h200, h100 = load_gpu("h200"), load_gpu("h100")
    assert sustained_matrix_fraction(h200) == h200.compute.sustained_matrix_fraction == 0.786
    measured = msgspec.structs.replace(
        h100, compute=msgspec.structs.replace(h100.compute, sustained_matrix_fraction=0.5)
    )
    assert sustained_matrix_fraction(h100) == 0.8
    assert sustained_matrix_fraction(measured) == 0.5
    a100 = l2_bandwidth(load_gpu("a100"), CLOCK_HZ)
    assert a100 is not None
    assert (a100.value, a100.is_stated) == (7.2192e12, True)
    mi355x = l2_bandwidth(load_gpu("mi355x"), CLOCK_HZ)
    assert mi355x is not None
    assert (mi355x.value, mi355x.is_stated) == (1.725e13, False)
    assert "HipKittens" in mi355x.source


def test_a_name_comes_before_a_target_and_a_target_before_a_family() -> None:
    pcie, sxm = load_gpu("h100-pcie"), load_gpu("h100")
    assert sustained_matrix_fraction(pcie) < sustained_matrix_fraction(sxm)
    # The same family, other targets.
    assert assumption(load_gpu("b200"), SUSTAINED) != assumption(load_gpu("rtx-5090"), SUSTAINED)
    mine = msgspec.structs.replace(pcie, name="MINE")
    assert assumption(mine, SUSTAINED) == assumption(sxm, SUSTAINED)
    arch = msgspec.structs.replace(pcie.arch, target="sm_130a", family="Rubin")
    assert assumption(msgspec.structs.replace(mine, arch=arch), SUSTAINED) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clock_hz: {}", "clock_hz: unknown quantity"),
        ("sustained_matrix_fraction: {a: {value: 2, low: 0.1, high: 1, source: x}}", "a: the value must lie between"),
        ("sustained_matrix_fraction: {a: {value: 1, low: 1, high: 1}}", "missing required field `source`"),
    ],
)
def test_a_broken_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "assumed.yaml"
    path.write_text(text)
    with pytest.raises(HardwareModelError, match=message):
        read_assumed(path)
