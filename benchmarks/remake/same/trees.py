"""Two checkouts, and what each compiles of the same configurations: `probe.py`, run with the code of each."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from constrint.errors import ConstrintError, UsageError

ROOT = Path(__file__).parents[3]
PROBE = Path(__file__).with_name("probe.py")
#: Processes that compile at the same time, and the parts into which the jobs of a checkout are divided.
PROCESSES, PARTS = 2, 2


@dataclass(frozen=True)
class Tree:
    """A checkout.

    Args:
        folder: The folder with `constrint` in it.
        name: Its commit, or the folder's name.
    """

    folder: Path
    name: str


@dataclass
class Compiled:
    """What a checkout compiled.

    Args:
        hashes: Fingerprints of its kernels; empty for one that it lacks.
        tools: The compilers.
        launches: The launches of each job by its identifier.
        errors: Why others have none.
    """

    hashes: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    launches: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


@contextmanager
def base_of(name: str) -> Iterator[Tree]:
    """A folder with a checkout as it is, or a commit's package in a temporary folder.

    Raises:
        UsageError: When there is neither.
    """
    folder = Path(name)
    if (folder / "constrint" / "__init__.py").is_file():
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = " with changes" if commit and _git(folder, "status", "--porcelain", "--", "constrint") else ""
        yield Tree(folder.resolve(), f"{commit or folder.resolve().name}{changed}")
        return
    commit = "" if name.startswith("-") else _git(ROOT, "rev-parse", "--short=12", "--verify", f"{name}^{{commit}}")
    if not commit:
        raise UsageError(f"--same: {name} is neither a commit of this repository nor a folder with a checkout.")
    with tempfile.TemporaryDirectory(prefix="constrint-same-") as made:
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit, "constrint"], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(made, filter="data")
        yield Tree(Path(made), commit)


def here() -> Tree:
    """This checkout."""
    return Tree(ROOT, "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def compile_in(
    trees: Sequence[Tree],
    kernels: Sequence[str],
    jobs: Sequence[Mapping[str, Any]],
    work: Path,
    say: Callable[[str], None],
) -> list[Compiled]:
    """Compile jobs in checkouts, in two processes at a time.

    Args:
        trees: The checkouts.
        kernels: Kernels whose fingerprints are wanted.
        jobs: Configurations as `probe.py` takes them, each with an `id`.
        work: Folder in which compiled code is kept.
        say: Told how far it is.

    Raises:
        ConstrintError: When a checkout cannot be run at all.
    """
    work = work.resolve()
    (work / "code").mkdir(parents=True, exist_ok=True)
    parts = [part for at in range(PARTS) if (part := list(jobs[at::PARTS]))] or [[]]
    tasks = [(number, part) for part in parts for number in range(len(trees))]
    found = [Compiled() for _ in trees]

    def run(task: tuple[int, list[Mapping[str, Any]]]) -> tuple[int, list[dict[str, Any]]]:
        number, part = task
        return number, _probe(trees[number], kernels, part, work, say)

    with ThreadPoolExecutor(PROCESSES) as threads:
        for number, (head, *rows) in threads.map(run, tasks):
            compiled = found[number]
            compiled.hashes, compiled.tools = head["hashes"], head["tools"]
            compiled.launches |= {row["id"]: row["launches"] for row in rows if "launches" in row}
            compiled.errors |= {row["id"]: row["error"] for row in rows if "error" in row}
    return found


def _probe(
    tree: Tree, kernels: Sequence[str], jobs: Sequence[Mapping[str, Any]], work: Path, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("CONSTRINT_")}
    env |= {"PYTHONPATH": str(tree.folder), "CONSTRINT_CACHE": "0", "TRITON_CACHE_DIR": str(work / "triton")}
    which = f"base {tree.name}" if tree.name else "this checkout"
    with tempfile.TemporaryDirectory(dir=work) as folder:
        out = Path(folder) / "found.jsonl"
        command = [sys.executable, "-c", PROBE.read_text(encoding="utf-8"), str(out), str(work / "code")]
        with subprocess.Popen(
            command, env=env, cwd=tree.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(json.dumps({"kernels": list(kernels), "jobs": list(jobs)}))
            process.stdin.close()
            last = ""
            for line in process.stderr:
                last = line.strip() or last
                done, _, _ = line.partition(" of ")
                if done.isdigit() and (int(done) % 20 == 0 or int(done) == len(jobs)):
                    say(f"{which}: {line.strip()} configurations")
        lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    found = [json.loads(line) for line in lines]
    if process.returncode or len(found) != len(jobs) + 1:
        raise ConstrintError(f"{which} cannot be compiled with: {last}")
    if Path(found[0]["package"]).resolve() != tree.folder.resolve():
        raise ConstrintError(f"{which} is not what was loaded: {found[0]['package']} was.")
    return found
