"""Parts of a recurrent loop that are left out stand in today's sources, and what is left compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from benchmarks.rnn.parts import CUTS, Cut, launches_of, without
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import compile_cuda
from constrint.kernels.rnn.spec import workload_of

H200 = load_gpu("h200")


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.name)
def test_every_part_can_be_left_out(cut: Cut, tmp_path: Path) -> None:
    workload = workload_of("lstm", (16, 64, 1, 2688), "bf16", "forward")
    _, launches = launches_of(H200, workload, "meta")
    cut_launches = without(cut, launches, tmp_path)
    assert cut_launches[:-1] == launches[:-1]
    assert compile_cuda(H200, cut_launches[-1].source).registers > 0


def test_a_part_that_stands_nowhere_is_named(tmp_path: Path) -> None:
    _, launches = launches_of(H200, workload_of("lstm", (16, 64, 1, 512), "bf16", "forward"), "meta")
    with pytest.raises(ValueError, match=r"forward\.cu has the text of 'nonsense' 0 times"):
        without(Cut("nonsense", "forward.cu", "no such text", ""), launches, tmp_path)
