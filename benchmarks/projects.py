"""Published projects that use recurrent layers: their own tests with this package's layers in the place of torch's.

    python -m benchmarks.projects --source pfrl=pfrl --source darts=darts --write benchmarks/results/projects.csv

`benchmarks/projects.yaml` lists the projects: repository, commit, what their tests need, and the tests that make
recurrent layers. `--source NAME=DIR` is a checkout of one; a project without one is cloned. Each gets an environment of
its own under `--environments`, which stays for the next run. Its tests run twice on the CPU, with torch's layers and
with this package's (`benchmarks/patched.py`): what fails with both is the project's or this machine's, what fails with
ours alone is our fault.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".yaml")
ENVIRONMENTS = Path("build/projects")
#: What the tests and this package need in every environment.
COMMON = ("torch==2.13.0", "pytest", "numpy", "pyyaml", "msgspec", "typer<0.29", "rich", "platformdirs", "sqlalchemy")
OURS, THEIRS = "ours", "none"
#: Most names of tests that a cell lists.
MAX_NAMES = 20


class OutsideTests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A project and its tests.

    Args:
        repository: OWNER/NAME on GitHub.
        commit: The commit whose tests run.
        install: What pip installs for them.
        tests: Files of tests, with pytest's `::NAME` where some are meant.
        options: Further words for pytest.
        is_path: Whether the checkout itself is imported, in place of an installed release.
        remove: Files of the environment that need an accelerator's libraries to load.
    """

    repository: str
    commit: str
    install: tuple[str, ...]
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    is_path: bool = False
    remove: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """The tests of one run by their names: passed, failed, skipped, or why no test ran."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    layers: str
    problem: str = ""


class ProjectRow(msgspec.Struct, frozen=True):
    """A line of the table.

    Args:
        project, repository, commit: The project.
        passed_with_torch, passed_with_ours: Numbers of tests.
        failed_with_both: Tests that fail with either.
        failed_with_ours: Tests that fail with our layers alone.
        layers: Our layers that the tests made, by class.
        names: Names of the tests that fail with our layers alone.
        problem: Why no test ran; empty where some did.
    """

    project: str
    repository: str
    commit: str
    passed_with_torch: int
    passed_with_ours: int
    failed_with_both: int
    failed_with_ours: int
    layers: str
    names: str
    problem: str


def read_list(path: Path = LIST) -> dict[str, OutsideTests]:
    """The projects of a list by name."""
    return msgspec.yaml.decode(path.read_bytes(), type=dict[str, OutsideTests])


def environment(project: OutsideTests, folder: Path) -> Path:
    """The Python of a project's environment, which is made where there is none.

    Raises:
        CalledProcessError: When a package cannot be installed.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *COMMON, *project.install], check=True)
    for pattern in project.remove:
        for file in folder.glob(f"lib/python*/site-packages/{pattern}"):
            file.unlink()
    return python


def checkout(project: OutsideTests, folder: Path) -> Path:
    """The project's folder at its commit, cloned where there is none.

    Raises:
        CalledProcessError: When it cannot be cloned.
    """
    if not folder.is_dir():
        address = f"https://github.com/{project.repository}"
        subprocess.run(["git", "clone", "-q", "--filter=blob:none", address, str(folder)], check=True)
        subprocess.run(["git", "-C", str(folder), "checkout", "-q", project.commit], check=True)
    return folder


def import_place(folder: Path) -> Path:
    """A folder from which tests import this package and the plug-in, and nothing else of this repository."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in (("constrint", ROOT / "constrint"), ("patched.py", ROOT / "benchmarks" / "patched.py")):
        if not (folder / name).exists():
            (folder / name).symlink_to(target)
    return folder


def run_tests(project: OutsideTests, python: Path, source: Path, place: Path, which: str, timeout_s: float) -> Outcome:
    """Run a project's tests with torch's layers (`none`) or with ours, one process on one thread."""
    report = place / f"{source.name}-{which}.xml"
    report.unlink(missing_ok=True)
    paths = [str(place.resolve()), *([str(source.resolve())] if project.is_path else [])]
    shown = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTEST_ADDOPTS": "",
        "CONSTRINT_PATCHED": which,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    pytest = [str(python.absolute().parent / "pytest"), "-q", "-p", "patched", "-p", "no:cacheprovider", "-W", "ignore"]
    words = [*pytest, f"--junitxml={report.resolve()}", *project.options, *project.tests]
    try:
        ended = subprocess.run(words, cwd=source, env=shown, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return Outcome(frozenset(), frozenset(), frozenset(), "", f"not done after {timeout_s:.0f} s")
    made = re.search(r"^layers made: (.*)$", ended.stdout, re.MULTILINE)
    if not report.exists():
        lines = (ended.stdout + ended.stderr).strip().splitlines()
        told = next((line.strip() for line in lines if "error" in line.lower()), f"exit code {ended.returncode}")
        return Outcome(frozenset(), frozenset(), frozenset(), "", told)
    return outcome_of(report.read_text(encoding="utf-8"), made[1] if made else "")


def outcome_of(report: str, layers: str) -> Outcome:
    """The outcome that a report in JUnit's form states."""
    names: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for case in ElementTree.fromstring(report).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        names[kind].add(f"{case.get('classname', '')}::{case.get('name', '')}".lstrip(":"))
    passed, failed, skipped = (frozenset(found) for found in names.values())
    return Outcome(passed, failed, skipped, layers)


def row_of(name: str, project: OutsideTests, theirs: Outcome, ours: Outcome) -> ProjectRow:
    """The line of a project from its two runs."""
    alone = sorted((ours.failed | (theirs.passed - ours.passed - ours.skipped)) - theirs.failed)
    return ProjectRow(
        project=name,
        repository=project.repository,
        commit=project.commit,
        passed_with_torch=len(theirs.passed),
        passed_with_ours=len(ours.passed),
        failed_with_both=len(theirs.failed & ours.failed),
        failed_with_ours=len(alone),
        layers=ours.layers,
        names=" ".join(alone[:MAX_NAMES]),
        problem=theirs.problem or ours.problem,
    )


def table(rows: Sequence[ProjectRow]) -> Iterator[str]:
    """The table as Markdown."""
    yield "| project | tests passed with torch's layers | with ours | failed with ours alone | layers of ours made |"
    yield "|---|---:|---:|---:|---|"
    for row in rows:
        counts = f"{row.passed_with_torch} | {row.passed_with_ours} | {row.failed_with_ours}"
        yield f"| {row.project} | {counts} | {row.problem or row.layers} |"


def write_rows(path: Path, rows: Sequence[ProjectRow]) -> None:
    """Write the lines as CSV; those of other projects stay."""
    kept = [row for row in read_rows(path) if row.project not in {new.project for new in rows}] if path.exists() else []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(ProjectRow.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(row) for row in sorted([*kept, *rows], key=lambda row: row.project))


def read_rows(path: Path) -> list[ProjectRow]:
    """The lines of a CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return [msgspec.convert(row, ProjectRow, strict=False) for row in csv.DictReader(file)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests of all projects; 1 if a test fails with our layers alone."""
    options = _parser().parse_args(arguments)
    projects = read_list(options.list)
    sources = {name: Path(folder) for name, _, folder in (text.partition("=") for text in options.source)}
    chosen = options.only or list(sources) or list(projects)
    if unknown := (sources.keys() | set(chosen)) - projects.keys():
        print(f"the list has {', '.join(projects)}; got {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if shutil.which("git") is None and set(chosen) - sources.keys():
        print("git is not here: name a checkout with --source NAME=DIR", file=sys.stderr)
        return 2
    place = import_place(options.environments / "place")
    rows = []
    for name in chosen:
        project = projects[name]
        try:
            python = environment(project, options.environments / name)
            source = sources.get(name) or checkout(project, options.environments / "source" / name)
        except subprocess.CalledProcessError as error:
            failed = Outcome(frozenset(), frozenset(), frozenset(), "", f"cannot be set up: {error.cmd[0]} failed")
            rows.append(row_of(name, project, failed, failed))
            continue
        runs = [run_tests(project, python, source, place, which, options.timeout) for which in (THEIRS, OURS)]
        rows.append(row_of(name, project, *runs))
        print(rows[-1], flush=True)
        if options.write is not None:
            write_rows(options.write, rows)
    print(*table(rows), sep="\n")
    return int(any(row.failed_with_ours for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="append", default=[], metavar="NAME=DIR", help="a project's checkout")
    parser.add_argument("--only", action="append", metavar="NAME", help="this project; may be repeated")
    parser.add_argument("--list", type=Path, default=LIST, help="the projects and their tests")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="folder of their environments")
    parser.add_argument(
        "--timeout", type=float, default=900.0, metavar="SECONDS", help="for one run of a project's tests"
    )
    parser.add_argument("--write", type=Path, metavar="CSV", help="add the lines to this table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
