"""The wheel holds the package and nothing else, and every data file of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution, metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from constrint.cli.pages import pages
from tests.support.clock import PATIENCE_S
from tests.support.shared import SharedResults

ROOT = Path(__file__).resolve().parents[1]
DATA_SUFFIXES = (".yaml", ".json", ".cu", ".cuh", ".typed", ".md", ".j2", ".css", ".js")


@pytest.fixture(scope="module")
def wheel_names(shared_results: SharedResults, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return list(shared_results.once("wheel", lambda: build_wheel(tmp_path_factory.mktemp("wheel"))))


def built(out: Path, **variables: str) -> str:
    """What building the wheel of this checkout says.

    A copy is built: the build compiles the core beside its sources, and with it what others cache begins anew.
    """
    copy = out / "copy"
    left_out = shutil.ignore_patterns(
        ".[!g]*", ".git", "__pycache__", "*.so", "*.pyd", "build", "dist", "tests", "benchmarks"
    )
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(copy)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def quick_compiler(folder: Path) -> str:
    """A C++ compiler that does not optimise: how fast the core is that a wheel holds makes no difference here."""
    script = folder / "c++"
    script.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
    script.chmod(0o755)
    return str(script)


def build_wheel(out: Path) -> list[str]:
    """Names of the files in the wheel of this checkout."""
    compiler = quick_compiler(out) if shutil.which("c++") else ""
    built(out, **({"CC": compiler, "CXX": compiler} if compiler else {}))
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
    pages = {f"constrint/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md")}
    assert {name for name in wheel_names if name.startswith("constrint/docs/")} == pages
    assert sum(name.endswith(".yaml") and "/data/" in name for name in wheel_names) >= 26


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler: the wheel is pure Python")
def test_wheel_has_the_compiled_core(wheel_names: list[str]) -> None:
    assert [n for n in wheel_names if n.startswith("constrint/core/_core") and n.endswith((".so", ".pyd"))]
    assert not [n for n in wheel_names if n.endswith((".cpp", ".hpp"))]


def test_wheel_names_the_licence_and_the_command(wheel_names: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)
    assert any(name.endswith("entry_points.txt") for name in wheel_names)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout: what an sdist has to hold is what git tracks")
def test_sdist_has_all_that_is_tracked_but_the_links(tmp_path: Path) -> None:
    """So its own tests run from it, and the README's commands."""
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    tracked = {name for name in listed.split("\0") if (ROOT / name).is_file()}
    assert tracked - held == set()


def test_a_pure_wheel_is_made_where_it_is_asked_for(tmp_path: Path) -> None:
    assert "not built" not in built(tmp_path, CONSTRINT_PURE="1")
    assert list(tmp_path.glob("*-py3-none-any.whl"))


def test_wheel_without_a_compiler_is_pure_python(tmp_path: Path) -> None:
    assert "the compiled core was not built" in built(tmp_path, CC="/bin/false", CXX="/bin/false")
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [n for n in archive.namelist() if n.endswith((".so", ".pyd"))]


#: Licences that ask for nothing but their own text and a name.
PERMISSIVE = ("MIT", "BSD", "ISC", "Apache", "PSF", "Python Software Foundation", "0BSD", "Zlib", "CC0-1.0")


def required(name: str, seen: set[str]) -> set[str]:
    """What the core of a distribution brings with it, extras left out."""
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        if (needed.marker is None or needed.marker.evaluate({"extra": ""})) and needed.name not in seen:
            seen.add(needed.name)
            required(needed.name, seen)
    return seen


def test_all_that_the_core_brings_has_a_licence_that_is_permissive() -> None:
    names = required("constrint", set())
    assert {"numpy", "msgspec", "rich", "SQLAlchemy".lower()} <= {name.lower() for name in names}
    assert not {"ortools", "pandas", "torch", "python-constraint2"} & names, "these are of extras"
    for name in sorted(names):
        known: Any = metadata(name)
        stated = [known.get("License-Expression"), *(known.get("License") or "").splitlines()[:1]]
        stated += [value for value in known.get_all("Classifier") or () if value.startswith("License")]
        text = " ".join(filter(None, stated))
        assert any(licence in text for licence in PERMISSIVE), f"{name}: {text or 'no licence stated'}"
        assert "GPL" not in text, f"{name}: {text}"


def _pins(name: str) -> dict[str, str]:
    """Versions by the name of the package, as a list of requirements pins them."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_every_tool_of_continuous_integration_is_pinned_by_hash() -> None:
    lines = (ROOT / "requirements-tools.in").read_text().splitlines()
    wanted = {re.sub(r"\[.*", "", line).lower() for line in lines if line and not line.startswith("#")}
    text = (ROOT / "requirements-tools.txt").read_text()
    packages = re.split(r"^(?=[A-Za-z])", text, flags=re.MULTILINE)[1:]
    assert wanted <= _pins("requirements-tools.txt").keys()
    assert [entry for entry in packages if "--hash=sha256:" not in entry] == []


def test_tools_pinned_twice_have_one_version() -> None:
    tools, development = _pins("requirements-tools.txt"), _pins("constraints-dev.txt")
    both = tools.keys() & development.keys()
    assert {"mypy", "pytest", "ruff"} <= both
    assert {name: tools[name] for name in both} == {name: development[name] for name in both}


def test_the_readme_of_a_package_index_names_commands_in_place_of_files() -> None:
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert core.readme_content_type == "text/markdown"
    targets = re.findall(r"\]\(([^)]*)\)", re.sub(r"^```.*?^```$", "", core.readme, flags=re.MULTILINE | re.DOTALL))
    assert all(target.startswith("https://") for target in targets)
    named = re.findall(r"\(`constrint docs ([\w/]+)`\)", core.readme)
    assert len(named) > 20
    assert {*named} <= pages().keys()
