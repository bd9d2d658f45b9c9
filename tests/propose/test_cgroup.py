"""Control groups of workers: the files that the kernel reads, where no group can be made, and the kernel itself.

What asks the kernel needs a tree of version 2 in which this user may make groups, and for limits one whose controllers
of memory and processes are passed on; the rest is about files that stand for them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from constrint.propose.cgroup import ControlGroup
from tests.support.clock import PATIENCE_S, wait_until

TOTALS = {"memory_bytes": 16 << 30, "processes": 128}
FILES = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.procs", "cgroup.kill")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of groups as the kernel shows it: a folder that is made has the group's files at once."""
    make = Path.mkdir

    def mkdir(self: Path, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)  # type: ignore[arg-type]
        if self.name.startswith("constrint-"):
            for name in FILES:
                (self / name).touch()

    (tmp_path / "user" / "session").mkdir(parents=True)
    monkeypatch.setattr(Path, "mkdir", mkdir)
    return tmp_path


def grouped(tree: Path, text: str, *pids: int) -> ControlGroup | None:
    own = tree / "own"
    own.write_text(text)
    return ControlGroup.around(pids, TOTALS, root=tree, own=own)


def test_a_group_beside_that_of_this_process_has_the_limits_and_the_processes(tree: Path) -> None:
    (tree / "user" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    group = grouped(tree, "4:memory:/else\n0::/user/session\n", 17)
    assert group is not None
    assert group.folder.parent == tree / "user"
    group.end()
    values = {name: (group.folder / name).read_text() for name in FILES}
    assert values == {
        "memory.max": str(16 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "256",
        "cgroup.procs": "17",
        "cgroup.kill": "1",
    }


def test_a_group_whose_controllers_are_passed_on_may_have_one_below_it(tree: Path) -> None:
    (tree / "user" / "session" / "cgroup.subtree_control").write_text("memory pids\n")
    group = grouped(tree, "0::/user/session\n", 17)
    assert group is not None
    assert group.folder.parent == tree / "user" / "session"


@pytest.mark.parametrize("text", ["", "4:memory:/user/session\n", "0::/user/session\n", "0::/\n", "0::/gone\n"])
def test_there_is_none_where_no_group_passes_its_controllers_on(tree: Path, text: str) -> None:
    (tree / "user" / "cgroup.subtree_control").write_text("cpu pids\n")
    assert grouped(tree, text, 17) is None
    assert list(tree.rglob("constrint-*")) == []


def test_a_group_that_the_kernel_does_not_let_have_processes_is_taken_away(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "user" / "cgroup.subtree_control").write_text("memory pids\n")
    monkeypatch.setattr("tests.propose.test_cgroup.FILES", ())
    assert grouped(tree, "0::/user/session\n", 17) is None
    assert list(tree.rglob("constrint-*")) == []


def mounted() -> Path | None:
    """This process's own group of version 2 in the kernel's tree, where it may make groups below; else None."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        own = next(line[4:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/"))
        root = next(Path(mount[1]) for mount in mounts if mount[2] == "cgroup2")
    except (OSError, StopIteration):
        return None
    group = root / own
    return group if os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK) else None


@pytest.fixture
def kernels_group() -> Iterator[ControlGroup]:
    """A group of the kernel without limits."""
    parent = mounted()
    if parent is None:
        pytest.skip("needs a tree of control groups of version 2 in which this user may make groups")
    group = ControlGroup(parent / f"constrint-test-{os.getpid()}")
    try:
        group.folder.mkdir()
    except OSError as error:
        pytest.skip(f"this user may make no control group: {error}")
    yield group
    group.end()
    group.remove()


#: A process with a child that left its session; both would go on for minutes.
WITH_A_CHILD = (
    "import os, sys, time; sys.stdin.readline(); os.fork() or os.setsid(); os.write(1, b'x\\n'); time.sleep(300)"
)


def test_the_kernel_ends_whatever_a_group_has_started(kernels_group: ControlGroup) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WITH_A_CHILD], text=True, **pipes) as process:  # type: ignore[call-overload]
        kernels_group._set("cgroup.procs", process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == ["x\n", "x\n"]
        assert len((kernels_group.folder / "cgroup.procs").read_text().split()) == 2
        kernels_group.end()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    wait_until(lambda: not kernels_group._has_processes(), "the end of a group's processes")
    kernels_group.remove()
    assert not kernels_group.folder.exists()


def test_the_kernel_keeps_the_limits_of_a_group() -> None:
    take = "import sys; sys.stdin.readline(); x = bytearray(400 << 20); print(len(x))"
    with subprocess.Popen([sys.executable, "-c", take], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        group = ControlGroup.around((process.pid,), {"memory_bytes": 100 << 20, "processes": 4})
        if group is None:
            process.kill()
            pytest.skip("no control group passes its controllers of memory and processes on to this user")
        out, _ = process.communicate(b"go\n", timeout=PATIENCE_S)
        group.remove()
    assert (out, process.returncode) == (b"", -signal.SIGKILL)
