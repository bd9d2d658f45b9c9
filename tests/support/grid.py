"""Kernels in CUDA C++ on the CPU: built by g++ with the grid of `grid_on_cpu/`, which is compiled once in a run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.shared import files_once

HEADERS = Path(__file__).parent / "grid_on_cpu"
#: Headers that are the same for all kernels.
GRID = ("grid.h", "standard.h")
#: The precompiled header is taken where it was compiled with the same options. Libraries of other configurations have
#: the same names, of which each is its own.
COMPILER = ("g++", "-O1", "-U_FORTIFY_SOURCE", "-w", "-std=c++17", "-fno-gnu-unique", "-fPIC")


def _compile_grid(folder: Path) -> None:
    for name in (*GRID, "grid.cc"):
        shutil.copy(HEADERS / name, folder)
    subprocess.run([*COMPILER, "-x", "c++-header", "grid.h", "-o", "grid.h.gch"], cwd=folder, check=True)
    subprocess.run([*COMPILER, "-c", "grid.cc", "-o", "grid.o"], cwd=folder, check=True)


def replaced(files: dict[str, str], changes: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """The files with each change made: a file, a text that it has once, and the text in its place."""
    files = dict(files)
    for name, before, after in changes:
        assert files[name].count(before) == 1, before
        files[name] = files[name].replace(before, after)
    return files


def built_on_grid(files: Mapping[str, str], macros: Mapping[str, object], folder: Path) -> ctypes.CDLL:
    """The library of `main.cc` among files; those of the grid lie beside them."""
    grid = files_once("grid", _compile_grid)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    given = [f"-D{name}={value}" for name, value in macros.items()]
    headers = f"-I{grid}", "-include", "grid.h"
    linked = "-shared", "-Wl,-Bsymbolic", "main.cc", str(grid / "grid.o"), "-o", "kernel.so"
    subprocess.run([*COMPILER, *headers, *given, *linked], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))
