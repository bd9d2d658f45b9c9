"""The micro-benchmark of banks compiles without a GPU, draws all degrees, and judges measured clocks."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import banks
from constrint.hwmodels import bank_conflicts, load_gpu
from constrint.tune.compile import nvidia_tool
from tests.support.needs import has_nvrtc, missing_packages


@pytest.mark.skipif(not has_nvrtc(), reason="needs NVRTC")
@pytest.mark.skipif(bool(missing_packages("triton")), reason="needs triton, which has a disassembler")
def test_its_kernels_make_every_access_as_wide_as_it_is_stated() -> None:
    for binary, (kind, width) in zip(banks.compiled("h100"), banks.GROUPS, strict=True):
        assert binary.spill_bytes == 0
        text = nvidia_tool("nvdisasm", binary.cubin, "-c")
        name = {"read": "LDS", "write": "STS"}[kind] + {32: "", 64: r"\.64", 128: r"\.128"}[width]
        assert len(re.findall(rf"\b{name} ", text)) >= banks.UNROLLED


@pytest.mark.parametrize("width", banks.WIDTHS)
def test_its_patterns_are_accesses_with_and_without_conflicts(width: int) -> None:
    patterns = banks.patterns_of(width, 60, np.random.default_rng(1))
    degrees = bank_conflicts(load_gpu("h100"), patterns, width, "read").degree
    assert (degrees == 1).sum() >= 6
    assert len(set(degrees.tolist())) >= 5
    assert int(patterns.max()) <= banks.REACH - width // 8


def test_it_finds_clocks_that_the_model_does_not_state(capsys: pytest.CaptureFixture[str]) -> None:
    def rows(wrong: int) -> list[banks.Measured]:
        every = [(kind, width, n) for kind, width in banks.GROUPS for n in (1, 1, 2, 4, 8)]
        return [
            banks.Measured(kind, width, 0, n, n * width // 32, n * width / 32 + wrong * (place % 3 == 1))
            for place, (kind, width, n) in enumerate(every)
        ]

    assert banks.judged(rows(0)) == []
    faults = banks.judged(rows(20))
    assert any("a pattern without a conflict takes" in fault for fault in faults)
    assert any("rank correlation" in fault for fault in faults)
    assert "rank correlation over all" in capsys.readouterr().out
