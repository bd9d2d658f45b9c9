"""The list of public kernels, and the program that compiles them: offline with a project of its own, else fetched."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import outside
from tests.support.needs import needs_triton

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "outside.csv"
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
"""
LIST = """
own:
  repository: someone/own
  commit: 0123456789abcdef
  folder: src
  signature: "*_ptr=*fp32,n=i32"
  kernels:
    add.py:add: {constants: BLOCK=256}
    add.py:missing: {}
"""


def test_the_list_names_sixty_kernels_and_more() -> None:
    projects = outside.read_projects()
    assert set(projects) == {"triton", "liger", "fla", "gems"}
    assert sum(len(project.kernels) for project in projects.values()) >= 60
    for project in projects.values():
        assert len(project.commit) == 40
        assert all(kernel.partition(":")[0].endswith(".py") for kernel in project.kernels)


def test_the_recorded_results_are_of_this_list() -> None:
    with RESULTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    projects = outside.read_projects()
    wanted = {(name, kernel) for name, project in projects.items() for kernel in project.kernels}
    tried = {(row["project"], row["kernel"]) for row in rows}
    assert tried
    assert tried <= wanted
    assert {row["gpu"] for row in rows} == {"h200", "mi300x"}
    assert {row["outcome"] for row in rows} <= {outside.COMPILED, outside.NOT_LAUNCHABLE, outside.REFUSED}
    assert all(row["sentence"] for row in rows if row["outcome"] == outside.REFUSED)
    for row in rows:
        assert projects[row["project"]].commit.startswith(row["commit"])


@needs_triton
def test_each_kernel_compiles_or_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "add.py").write_text(KERNEL)
    (tmp_path / "list.yaml").write_text(LIST)
    written = tmp_path / "out.csv"
    given = [
        "--source",
        f"own={tmp_path}",
        "--list",
        str(tmp_path / "list.yaml"),
        "--gpu",
        "mi300x",
        "--write",
        str(written),
    ]
    assert outside.main(given) == 0
    with written.open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first["outcome"] == outside.COMPILED
    assert int(first["registers"]) > 0
    assert second["outcome"] == outside.REFUSED
    assert "unknown function 'missing'" in second["sentence"]
    assert "all: 2 kernels, 1 compiled, 1 refused" in capsys.readouterr().out
    assert outside.main(["--source", f"other={tmp_path}", "--gpu", "h200"]) == 2


def test_a_traceback_fails_the_program() -> None:
    project = outside.OutsideProject("a/b", "c" * 40, "", {})
    ended = subprocess.CompletedProcess([], 1, "", "Traceback (most recent call last):\n  ...\nValueError: no\n")
    assert outside.row_of("own", project, "a.py:f", "h200", ended).outcome == outside.TRACEBACK


def _is_online() -> bool:
    try:
        socket.create_connection(("github.com", 443), timeout=3).close()
    except OSError:
        return False
    return True


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", ["triton", "liger", "fla", "gems"])
def test_fetched_kernels_compile_or_are_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    if "CONSTRINT_FETCH" not in os.environ:
        pytest.skip("CONSTRINT_FETCH is not set: the test fetches other projects' sources from GitHub")
    if not _is_online():
        pytest.skip("github.com cannot be reached: the sources of other projects are fetched from there")
    project = outside.read_projects()[name]
    git = ["git", "-C", str(tmp_path), "-c", "advice.detachedHead=false"]
    for command in (
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", f"https://github.com/{project.repository}", project.commit],
        ["checkout", "-q", project.commit],
    ):
        subprocess.run([*git, *command], check=True)
    arguments = ["--source", f"{name}={tmp_path}", "--gpu", "h200", "--gpu", "mi300x"]
    done = subprocess.run([sys.executable, "-m", "benchmarks.outside", *arguments], cwd=ROOT, check=False)
    assert done.returncode == 0
