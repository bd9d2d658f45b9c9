"""What is known of whole layers: tables beside implementations, which modules compare with a library's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.rnn import measured
from constrint.kernels.rnn.candidates import decide_layer, implementations_of
from constrint.kernels.rnn.spec import workload_of

H200 = load_gpu("h200")
TABLE = "cell,dtype,batch,dim,time,forward_ms,both_ms\nlstm,bf16,{batch},{dim},128,2.0,5.0\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(measured, "IMPLEMENTATIONS", tmp_path)
    measured.forget()
    yield tmp_path
    measured.forget()


def put(folder: Path, implementation: str, batch: int = 256, dim: int = 2048) -> None:
    table = folder / implementation / "measured" / "h200-sxm.csv"
    table.parent.mkdir(parents=True)
    table.write_text("# measured somewhere\n" + TABLE.format(batch=batch, dim=dim))


def seconds(implementation: str, direction: str, sizes: tuple[int, int, int, int]) -> float | None:
    spec = implementations_of("lstm")[implementation][direction]
    found = measured.measured_layer(implementation, spec, H200, workload_of("lstm", sizes, "bf16", direction))
    return None if found is None else found.seconds


def test_a_layer_is_known_by_the_table_of_what_ran_it(folder: Path) -> None:
    put(folder, "alternating")
    assert seconds("alternating", "forward", (256, 128, 1, 2048)) == pytest.approx(2e-3)
    assert seconds("alternating", "backward", (256, 128, 1, 2048)) == pytest.approx(3e-3)
    for sizes in ((256, 128, 2, 2048), (128, 128, 1, 2048), (256, 35, 1, 2048), (256, 128, 1, 4096)):
        assert seconds("alternating", "forward", sizes) is None, "nothing was measured on both sides of it"
    assert seconds("triton", "forward", (256, 128, 1, 2048)) is None


def test_a_backward_pass_that_another_implementation_has_is_known_by_the_whole_layer(folder: Path) -> None:
    put(folder, "wgmma", 256, 4000)
    assert implementations_of("lstm")["wgmma"]["backward"].name == "cuda"
    assert seconds("wgmma", "backward", (256, 128, 1, 4000)) == pytest.approx(3e-3)


def test_a_library_s_table_is_not_read_as_one_of_our_layers(folder: Path) -> None:
    put(folder, "cudnn")
    assert seconds("cudnn", "forward", (256, 128, 1, 2048)) is None


def test_a_module_takes_the_library_where_our_layer_was_measured_to_be_slower() -> None:
    """Wide layers with many sequences in tf32: what runs is predicted faster than it was."""
    for cell, time in (("lstm", 1024), ("gru", 35)):
        plan = decide_layer(workload_of(cell, (256, time, 1, 2048), "tf32", "forward"), H200, ("forward", "backward"))
        assert plan.program.name == "cudnn", str(plan)
