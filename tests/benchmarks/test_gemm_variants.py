"""The program that compares variants of the CUDA GEMM's source: each is what it says, and is launched as it wants."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from benchmarks.gemm.wgmma.products import End, launch_of, made
from benchmarks.gemm.wgmma.variants import KERNEL, SHAPES, chosen, show, variants
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.source import FOLDER
from constrint.kernels.launch.cuda import CudaLaunch

H200 = load_gpu("h200")
SHAPE = 1536, 1536, 1536


def launches(before: Path) -> dict[str, CudaLaunch]:
    config = next(config for config in chosen(H200, SHAPE, "bf16", "rr", 6) if not config["turned"])
    launch = launch_of(H200, config, made(SHAPE, "bf16", "rr", End(), device="meta"), End())
    return {variant.name: variant.of(launch) for variant in variants(before, is_warm=True)} | {"package": launch}


def test_a_variant_differs_by_its_source_and_its_macros(tmp_path: Path) -> None:
    (tmp_path / KERNEL).write_text("// another one\n", encoding="utf-8")
    found = launches(tmp_path)
    package, before = found["package"], found["before"]
    assert (found["now"].source, found["now"].arguments) == (package.source, package.arguments)
    own = (FOLDER / KERNEL).read_text(encoding="utf-8")
    assert before.source.text == package.source.text.replace(own, "// another one\n")
    assert before.source.folders == (tmp_path,)
    assert found["overlapping"].source.macros["OVERLAPS"] == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_configurations_of_every_kind_are_compared(shape: tuple[int, int, int]) -> None:
    found = chosen(H200, shape, "bf16", "rr", 6)
    assert 6 <= len(found) < 40
    assert len({config["cluster_m"] * config["cluster_n"] > 1 for config in found}) == 2


def test_gains_are_those_over_the_first_variant(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = chosen(H200, SHAPE, "bf16", "rr", 1)[0]
    first, second, *_ = variants(tmp_path, is_warm=False)
    show(SHAPE, [first, second], [(first, config), (second, config)], [10.0, 12.0, 8.0])
    assert "x1.500 over 1" in capsys.readouterr().out


def test_an_overlapping_launch_says_so_and_others_do_not() -> None:
    pytest.importorskip("cuda.bindings.driver")
    from benchmarks.gemm.wgmma.variants import run_overlapping
    from constrint.kernels.launch.cuda import loaded

    seen: list[int] = []
    launch = mock.Mock(run=lambda: seen.append(len(loaded._attributes(2, False))))
    run_overlapping(launch)
    launch.run()
    assert seen[0] == seen[1] + 1
