"""The wheel holds the package and nothing else, and every data file of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.shared import SharedResults

ROOT = Path(__file__).resolve().parents[1]
DATA_SUFFIXES = (".yaml", ".json", ".cu", ".cuh", ".typed", ".md")


@pytest.fixture(scope="module")
def wheel_names(shared_results: SharedResults, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return list(shared_results.once("wheel", lambda: build_wheel(tmp_path_factory.mktemp("wheel"))))


def build_wheel(out: Path) -> list[str]:
    """Names of the files in the wheel of this checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_wheel_has_one_import_name(wheel_names: list[str]) -> None:
    top = {name.split("/")[0] for name in wheel_names}
    assert {t for t in top if not t.endswith(".dist-info")} == {"constrint"}
    assert len([t for t in top if t.endswith(".dist-info")]) == 1


def test_wheel_has_every_file_of_the_package(wheel_names: list[str]) -> None:
    package = ROOT / "constrint"
    wanted = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*")
        if path.suffix in (".py", *DATA_SUFFIXES) and "__pycache__" not in path.parts
    }
    assert wanted <= set(wheel_names)
    assert sum(name.endswith(".yaml") and "/data/" in name for name in wheel_names) >= 26


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler: the wheel is pure Python")
def test_wheel_has_the_compiled_core(wheel_names: list[str]) -> None:
    assert [n for n in wheel_names if n.startswith("constrint/core/_core") and n.endswith((".so", ".pyd"))]
    assert not [n for n in wheel_names if n.endswith((".cpp", ".hpp"))]


def test_wheel_names_the_licence_and_the_command(wheel_names: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)
    assert any(name.endswith("entry_points.txt") for name in wheel_names)


def test_wheel_without_a_compiler_is_pure_python(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "CC": "/bin/false", "CXX": "/bin/false"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the compiled core was not built" in done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [n for n in archive.namelist() if n.endswith((".so", ".pyd"))]
