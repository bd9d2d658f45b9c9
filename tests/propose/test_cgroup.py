"""Control groups of workers: the files that the kernel reads, and where no group can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrint.propose.cgroup import ControlGroup

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
