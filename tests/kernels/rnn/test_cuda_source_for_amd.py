"""The grid placement's device code for an AMD GPU: `ptx.cuh` is all that has to be replaced, as it says itself.

`tests/support/hip` stands in for that file and for HIP's headers, so that clang alone compiles for gfx942. Nothing of
it is run, and it is no build that anybody gets: warps of 32 lanes are halves of a wave there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda.shape import GRID
from constrint.kernels.rnn.cuda.spec import SOURCE
from constrint.kernels.rnn.spec import workload_of
from tests.support.decisions import choose_kernel
from tests.support.needs import needs_torch

STAND_IN = Path(__file__).parents[2] / "support" / "hip"
TARGET = "gfx942"
NAMES = ("clang", *(f"clang-{version}" for version in range(24, 16, -1)))


@cache
def clang() -> str | None:
    """A clang that compiles for the target."""
    for path in filter(None, map(shutil.which, NAMES)):
        asked = [
            path,
            "--target=amdgcn-amd-amdhsa",
            f"-mcpu={TARGET}",
            "-nogpulib",
            "-x",
            "c",
            "-fsyntax-only",
            os.devnull,
        ]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return path
    return None


needs_clang = pytest.mark.skipif(clang() is None, reason=f"no clang here compiles for {TARGET}")


def compiled(folder: Path, direction: str, macros: list[str]) -> tuple[int, str]:
    """Status and messages of the compiler."""
    assert clang() is not None
    options = ["-x", "hip", f"--offload-arch={TARGET}", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-std=c++17"]
    options += ["-O2", "-S", "-o", str(folder / "out.s"), "-include", str(STAND_IN / "words.h")]
    command = [str(clang()), *options, *macros, str(folder / f"{direction}.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def macros_of(cell: str, direction: str, dtype: str, **change: int) -> list[str]:
    """The macros of a layer of the grid as NVRTC gets them, with some parameters changed."""
    from constrint.kernels.rnn.cuda.launch import source_of

    workload = workload_of(cell, (16, 1024, 1, 256), dtype, direction)
    spec = load_spec(f"{workload.operation}.cuda")
    config = choose_kernel(spec, load_gpu("h200"), workload, fixed={"placement": GRID, "recompute": 0}).config
    source = source_of(CELLS[cell], direction, 256, dtype, tuple(sorted({**config, **change}.items()))).source
    return [f"-D{name}={value}" for name, value in source.macros.items()]


def copy_sources(folder: Path) -> None:
    for path in SOURCE.iterdir():
        shutil.copy(path, folder)


@needs_clang
@needs_torch
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp32"])
@pytest.mark.parametrize(("cell", "change"), [("lstm", {}), ("gru", {"register_pairs": 1, "streamed_pairs": 1})])
def test_the_grid_compiles_for_an_amd_gpu_with_one_file_replaced(
    cell: str, change: dict[str, int], dtype: str, direction: str, tmp_path: Path
) -> None:
    copy_sources(tmp_path)
    shutil.copy(STAND_IN / "ptx.cuh", tmp_path)
    macros = macros_of(cell, direction, dtype, **change)
    status, said = compiled(tmp_path, direction, macros)
    assert status == 0, said[-3000:]
    assembly = (tmp_path / "out.s").read_text()
    assert f"recurrent_{direction}" in assembly
    assert re.search(r"_load_dword.* sc1", assembly), "words of other blocks are read past the caches of a CU"


@needs_clang
@needs_torch
def test_what_blocks_such_a_build_is_in_that_file(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    status, said = compiled(tmp_path, "forward", macros_of("lstm", "forward", "bf16"))
    assert status != 0
    assert set(re.findall(r"(\w+\.cuh?):\d+:\d+: error", said)) == {"ptx.cuh"}, said[-3000:]
