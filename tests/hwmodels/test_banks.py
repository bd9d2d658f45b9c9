"""Every GPU says how it serves shared memory, and bank conflicts are counted as the definition counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import HardwareModelError, UnsupportedError, UsageError
from constrint.hwmodels import bank_access, bank_conflicts, list_gpus, load_gpu
from constrint.hwmodels.banks import KINDS, STATED_WIDTHS, BankAccess, Kind, known_accesses, read_banks


def clocks_by_definition(access: BankAccess, addresses: list[int]) -> list[int]:
    """Clocks of each phase: the most different words that one bank gives."""
    found = []
    for phase in access.phases:
        banks: dict[int, set[int]] = {}
        for lane in phase:
            for byte in range(addresses[lane], addresses[lane] + max(1, access.width_bits // 8)):
                word = byte // access.bank_width_bytes
                banks.setdefault(word % access.banks, set()).add(word)
        found.append(max(map(len, banks.values())))
    return found


@pytest.mark.parametrize("name", list_gpus())
def test_a_gpu_states_its_phases_or_says_that_no_source_does(name: str) -> None:
    gpu = load_gpu(name)
    for kind, width, access in known_accesses(gpu):
        if access is None:
            with pytest.raises(UnsupportedError, match="no source states"):
                bank_access(gpu, width, kind)
            continue
        assert sorted(lane for phase in access.phases for lane in phase) == list(range(gpu.sm.warp_size))
        assert access.source.partition(":")[0] in ("vendor", "device")
        # A phase takes no more than one clock of all banks, so that consecutive addresses have no conflict.
        assert all(len(phase) * width // 8 <= access.banks * access.bank_width_bytes for phase in access.phases)


def test_nvidia_serves_wide_accesses_by_halves_and_quarters_and_cdna4_in_four_phases_of_64_banks() -> None:
    h200, mi355x, mi300x = load_gpu("h200"), load_gpu("mi355x"), load_gpu("mi300x")
    assert [len(bank_access(h200, width, "read").phases) for width in (32, 64, 128)] == [1, 2, 4]
    wide = bank_access(mi355x, 128, "read")
    assert wide.banks == 64
    assert wide.phases[0] == (0, 1, 2, 3, 12, 13, 14, 15, *range(20, 28))
    assert (bank_access(mi355x, 64, "write").banks, len(bank_access(mi355x, 64, "write").phases)) == (32, 4)
    assert bank_access(mi355x, 96, "read").banks == 32
    assert bank_access(mi300x, 128, "read").phases[0] == (0, 1, 2, 3, 20, 21, 22, 23)


@settings(max_examples=60)
@given(st.data())
def test_clocks_are_those_of_the_definition(data: st.DataObject) -> None:
    gpu = load_gpu(data.draw(st.sampled_from(["h100", "mi300x", "mi355x", "mi210"])))
    kind: Kind = data.draw(st.sampled_from(KINDS))
    width = data.draw(st.sampled_from((8, 16, *STATED_WIDTHS)))
    try:
        access = bank_access(gpu, width, kind)
    except UnsupportedError:
        return
    steps = st.integers(0, data.draw(st.sampled_from([3, 40, 1000]))).map(lambda step: step * access.alignment_bytes)
    patterns = data.draw(
        st.lists(st.lists(steps, min_size=access.lanes, max_size=access.lanes), min_size=1, max_size=3)
    )
    found = bank_conflicts(gpu, patterns, width, kind)
    assert found.clocks.tolist() == [clocks_by_definition(access, pattern) for pattern in patterns]
    assert found.degree.tolist() == [max(phases) for phases in found.clocks.tolist()]
    assert found.is_free == (not found.beyond_least.any())


def test_one_word_for_all_lanes_is_a_broadcast() -> None:
    gpu = load_gpu("h100")
    assert bank_conflicts(gpu, np.zeros(32, int), 32, "read").is_free
    assert bank_conflicts(gpu, np.arange(32) % 4, 8, "read").is_free
    assert bank_conflicts(gpu, np.arange(32) * 128, 32, "read").degree == 32


def test_many_patterns_are_counted_at_once() -> None:
    addresses = np.arange(32) * np.arange(1, 33)[:, None] * 4
    found = bank_conflicts(load_gpu("h100"), addresses, 32, "read")
    assert found.degree.tolist() == [int(np.gcd(stride, 32)) for stride in range(1, 33)]
    assert bank_conflicts(load_gpu("h100"), np.zeros((0, 32), int), 32, "read").clocks.shape == (0, 1)


LANES = list(range(0, 128, 4))


@pytest.mark.parametrize(
    ("addresses", "width", "kind", "message"),
    [
        (LANES[:-1], 32, "read", "one address for each of 32 lanes"),
        (7, 32, "read", "one address for each of 32 lanes"),
        ([LANES, LANES[:-1]], 32, "read", "one length in each axis"),
        ([-4, *LANES[1:]], 32, "read", "not negative; got -4"),
        ([2, *LANES[1:]], 32, "read", "a multiple of 4; got 2"),
        ([8, *[0] * 31], 128, "read", "a multiple of 16; got 8"),
        ([10**9, *LANES[1:]], 32, "read", "is too far"),
        ([232448 - 4] * 32, 32, "read", ""),
        ([232448] * 32, 32, "read", "is too far"),
        ([2**63 * 4, *LANES[1:]], 32, "read", "whole numbers|too far"),
        ([10**30, *LANES[1:]], 32, "read", "whole numbers"),
        ([0.5, *LANES[1:]], 32, "read", "whole numbers"),
        ([True] * 32, 32, "read", "whole numbers"),
        (["0"] * 32, 32, "read", "whole numbers"),
        (None, 32, "read", "whole numbers"),
        (LANES, 48, "read", "a lane accesses"),
        (LANES, True, "read", "a lane accesses"),
        (LANES, "32", "read", "a lane accesses"),
        (LANES, 32, "load", "unknown kind of access"),
        (LANES, 96, "read", "no source states which lanes"),
    ],
)
def test_what_is_no_access_is_refused_by_a_sentence(addresses: Any, width: Any, kind: Any, message: str) -> None:
    gpu = load_gpu("h100")
    if not message:
        assert bank_conflicts(gpu, addresses, width, kind).is_free
        return
    with pytest.raises(UsageError, match=message):
        bank_conflicts(gpu, addresses, width, kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("any: {read_32: {phases: [0-31], source: x}}", "an entry has exactly"),
        ("any: {read_32: {phases: [], source: x}}", "length >= 1"),
        ("any: [1]", "Expected `object`"),
    ],
)
def test_a_broken_file_of_phases_names_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "banks.yaml"
    path.write_text(text)
    with pytest.raises(HardwareModelError, match=message):
        read_banks(path)


@pytest.mark.parametrize("phases", ["[0-30]", "[0-31, 31-31]", "[0-15 17-31]", "[all]", "['0-31, 32']"])
def test_phases_hold_every_lane_once(tmp_path: Path, phases: str) -> None:
    entry = f"{{phases: {phases}, source: x}}"
    path = tmp_path / "banks.yaml"
    accesses = ", ".join(f"{kind}_{width}: {entry}" for kind in KINDS for width in STATED_WIDTHS)
    path.write_text(f"any: {{{accesses}}}")
    if phases == "[0-30]":  # a warp of 31 lanes is odd, and no warp of the vendor
        read_banks(path)
        return
    with pytest.raises(HardwareModelError, match="every lane of a warp exactly once"):
        read_banks(path)
