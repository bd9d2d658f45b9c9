"""The command as a process of its own: full disks, closed streams, readers that go away, and an early Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from constrint.cli import entry
from constrint.errors import OutputError
from tests.support.clock import PATIENCE_S

ROOT = Path(__file__).parents[2]
#: What the installed script does, here with the sources of this checkout.
SCRIPT = "import sys; from constrint.cli.entry import main; sys.argv[0] = 'constrint'; sys.exit(main())"

posix = pytest.mark.skipif(os.name != "posix", reason="descriptors are closed and devices are full as POSIX has it")


def ended(shell: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of shell in which $C is the command."""
    environment = {**os.environ, "C": SCRIPT, "P": sys.executable, "PYTHONPATH": str(ROOT)}
    # A shell without job control, as one under `make` may be, has its children ignore Ctrl-C.
    return subprocess.run(
        ["sh", "-c", shell],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full, a disk that is always full")
@pytest.mark.parametrize("command", ["solve --gpu mi300x", "--help"])
def test_a_full_disk_is_one_line(command: str) -> None:
    full = ended(f'"$P" -c "$C" {command} > /dev/full')
    assert full.returncode == 1
    assert full.stderr == "error: cannot write the output: No space left on device\n"


@posix
def test_a_closed_stdout_is_one_line_and_a_closed_stderr_is_none() -> None:
    closed = ended('"$P" -c "$C" gpus --json >&-')
    assert closed.returncode == 1
    assert closed.stderr == "error: cannot write the output: Bad file descriptor\n"
    # What goes wrong is still said by the exit code.
    silent = ended('"$P" -c "$C" gpus --unknown 2>&-')
    assert (silent.returncode, silent.stdout, silent.stderr) == (2, "", "")


@posix
def test_a_reader_that_goes_away_is_no_error() -> None:
    read = ended('{ "$P" -c "$C" solve --gpu h200 --all --json; echo "$?" >&2; } | head -1')
    assert read.stdout.count("\n") == 1
    assert read.stderr.splitlines()[-1] == "0"
    assert "Traceback" not in read.stderr


EARLY = """
import os, signal, sys
from importlib.abc import MetaPathFinder
class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)
from constrint.cli.entry import main
sys.argv = ["constrint", "solve", "--gpu", "h200"]
sys.exit(main())
"""


@posix
@pytest.mark.parametrize("module", ["constrint.cli.app", "numpy"])
def test_a_ctrl_c_while_the_command_is_still_imported_is_one_word(module: str) -> None:
    early = subprocess.run(
        [sys.executable, "-c", EARLY.format(module=module)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (early.returncode, early.stdout, early.stderr) == (130, "", "interrupted\n")


PROGRESS = """
import os, pty, sys
number, file = pty.fork()
if number == 0:
    os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 1)
    from constrint.cli import run as progress
    progress.AFTER_S = progress._EVERY_S = 0.0
    from constrint.cli.entry import main
    sys.argv = ["constrint", "sample", "--problem", sys.argv[2], "--count", "1000", "--seed", "1", "--json"]
    sys.exit(main())
shown = b""
while True:
    try:
        shown += os.read(file, 1 << 16)
    except OSError:
        break
assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 0, shown
sys.stdout.buffer.write(shown)
"""


@posix
def test_progress_is_on_the_terminal_and_never_in_the_output(tmp_path: Path) -> None:
    problem, out = tmp_path / "many.constrint", tmp_path / "out.jsonl"
    problem.write_text("var a in 1..3000; var b in 1..3000; (a * b) % 7 == 3\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    shown = subprocess.run(
        [sys.executable, "-c", PROGRESS, str(out), str(problem)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "of 1,000 rows" in shown.stdout
    lines = out.read_text().splitlines()
    assert len(lines) == 1000
    assert all(line.startswith('{"a":') for line in lines)


def test_what_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "read-only"
    path.write_text("")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        stream = entry._stream(descriptor, entry._Output, None)
        stream.write("x")
        with pytest.raises(OutputError, match="cannot write the output: Bad file descriptor"):
            stream.flush()
        stream.write("y")
        stream.flush()
        messages = entry._stream(descriptor, entry._Messages, None)
        messages.write("lost\n")
        messages.flush()
    finally:
        os.close(descriptor)
