"""Which tests of the table of faults fail on the commit that was attacked.

    python -m benchmarks.attacks.before --commit befc2ab

Checks the commit out into a temporary worktree, puts the tests and attacks of now beside its package, and runs each
test that `docs/explanations/faults.md` names. A test "fails" where its body ends in an assertion, in a limit, or in an
exception of what it tests; one that cannot be loaded there, or that calls what that commit does not have, says nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "explanations" / "faults.md"
#: Exceptions by which a test meets an interface that is not there; they say nothing of the fault.
OTHER_INTERFACE: Final = re.compile(
    r"^E +(ImportError|ModuleNotFoundError|AttributeError|NameError|FileNotFoundError|fixture '"
    r"|TypeError: .*(unexpected keyword|positional argument|object is not subscriptable))",
    re.MULTILINE,
)


def named_tests(text: str) -> Iterator[tuple[str, str]]:
    """Files below `tests/` and the names of tests in them, as the page names them."""
    for row in text.splitlines():
        if row.startswith("| ") and "`" in row:
            for file, names in re.findall(r"`([\w/]+\.py)`((?:[:,]? *`test_\w+`)*)", row):
                for name in re.findall(r"`(test_\w+)`", names):
                    yield file, name


def outcome(tree: Path, file: str, name: str, seconds: float) -> tuple[str, str]:
    """What comes of a test in a tree: `fails`, `passes` or `says nothing`, and the last line that tells why."""
    options = ("-q", "-x", "-p", "no:cacheprovider", "-k", name)
    command = [sys.executable, "-m", "pytest", *options, f"tests/{file}"]
    try:
        ended = subprocess.run(
            command, cwd=tree, env=_environment(tree), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return "says nothing", f"no end within {seconds:g} s"
    errors = re.findall(r"^E +(.+)$", ended.stdout, re.MULTILINE)
    why = errors[0] if errors else ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ended.stderr
    if ended.returncode == 0:
        return ("passes" if re.search(r"\d+ passed", ended.stdout) else "says nothing"), why
    is_body = ended.returncode == 1 and re.search(r"^FAILED ", ended.stdout, re.MULTILINE) is not None
    return ("fails" if is_body and not OTHER_INTERFACE.search(ended.stdout) else "says nothing"), why


def _environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "CONSTRINT_CACHE": "0", "OMP_NUM_THREADS": "1"}


def transplant(tree: Path) -> None:
    """Put the tests and the attacks of now into a tree, in place of its own.

    The fixtures of all tests import much of what the commit does not have: without them a test that asks for one says
    nothing.
    """
    for part in ("tests", "benchmarks/attacks"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (tree / "tests" / "conftest.py").write_text("")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="befc2ab", help="the commit that was attacked")
    parser.add_argument("--tree", type=Path, help="a checkout of it with its core built; made where none is named")
    parser.add_argument("--only", default="", help="files of tests whose path has this in it")
    parser.add_argument("--seconds", type=float, default=120.0, help="most time of one test")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        tree = asked.tree or Path(name) / "tree"
        if asked.tree is None:
            subprocess.run(["git", "worktree", "add", "--detach", str(tree), asked.commit], cwd=ROOT, check=True)
            subprocess.run([sys.executable, "hatch_build.py"], cwd=tree, env=_environment(tree), check=True)
        try:
            transplant(tree)
            for file, test in dict.fromkeys(named_tests(PAGE.read_text(encoding="utf-8"))):
                if asked.only in file:
                    what, why = outcome(tree, file, test, asked.seconds)
                    counts[what] += 1
                    print(f"{what:12} {file} {test}: {why[:120]}", flush=True)
        finally:
            if asked.tree is None:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=False)
    print(f"before: {asked.commit}, {', '.join(f'{number} {what}' for what, number in sorted(counts.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
