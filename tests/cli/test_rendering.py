"""What a terminal of 80 columns shows, what a pipe gets, and a reader that goes away."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import PATIENCE_S
from tests.support.terminal import shown_by

ROOT = Path(__file__).parents[2]
TILES = str(ROOT / "examples" / "tiles.constrint")
SPACES = ROOT / "tests" / "data" / "spaces"
CODE = "from constrint.cli.app import main; main()"
COMMANDS = {
    "solve-amd": ("solve", "--gpu", "mi300x", "--m", "512"),
    "solve-nvidia": ("solve", "--gpu", "h200", "--dtype", "fp8"),
    "solve-several": ("solve", "--gpu", "h200"),
    "explain-several": ("explain", "--gpu", "h200", "--set", "tile_n=192"),
    "sample-several": ("sample", "--gpu", "h200", "--count", "20"),
    "solve-space": ("solve", "--space", str(SPACES / "atf_gemm_10x500x64.json"), "--top", "3"),
    "solve-all": ("solve", "--all", "--problem", TILES),
    "explain-kernel": ("explain", "--gpu", "mi300x"),
    "explain-problem": ("explain", "--problem", TILES),
    "explain-space": ("explain", "--space", str(SPACES / "hotspot.json")),
    "why-not": ("why-not", "--problem", TILES, "tile_m=256", "tile_n=256", "tile_k=48", "stages=4"),
    "count": ("count", "--gpu", "h200"),
    "sample": ("sample", "--gpu", "mi300x", "--seed", "1"),
}


#: Of these some are called as users call them, in a process of their own.
IN_PROCESSES = ("solve-several", "explain-space", "why-not")


def in_terminal(arguments: tuple[str, ...], columns: int = 80) -> tuple[int, str]:
    """Exit code and output of a process whose stdout is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm-256color"}
    child = subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments], stdout=theirs, stderr=subprocess.PIPE, env=environment, cwd=ROOT
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the end, as Linux reports it
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    _, err = child.communicate(timeout=PATIENCE_S)
    assert b"Traceback" not in err
    return child.returncode, re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def _in_this_process(arguments: tuple[str, ...]) -> tuple[int, str]:
    return shown_by(*arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_of_80_columns_shows_whole_lines(name: str) -> None:
    code, shown = (in_terminal if name in IN_PROCESSES else _in_this_process)(COMMANDS[name])
    assert code == 0
    assert shown.strip()
    too_long = [line for line in shown.splitlines() if len(line) > 80]
    assert too_long == []
    assert "…" not in shown, "nothing is cut"


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_pipe_gets_plain_lines(run: Any, arguments: tuple[str, ...]) -> None:
    code, out, _ = run(*arguments)
    assert code == 0
    assert "\x1b" not in out
    assert not any(ord(char) > 0x2000 for char in out), "no box drawing in a pipe"
    assert all(line == line.rstrip() for line in out.splitlines())
    assert "…" not in out


def test_a_narrow_terminal_gets_every_value_of_a_wide_solution() -> None:
    _, shown = shown_by(*COMMANDS["solve-space"])
    same = shown.partition("the same in all rows: ")[2]
    assert "INPUT_SIZE_L_2=500" in same
    assert shown.partition("─")[0].count("NUM_") == 4, "titles are broken at underscores"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_reader_that_goes_away_ends_the_output_quietly(form: tuple[str, ...]) -> None:
    arguments = ["solve", "--all", "--space", str(SPACES / "expdist.json"), *form]
    child = subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stdout.readline()
    child.stdout.close()
    assert child.stderr is not None
    err = child.stderr.read().decode()
    child.stderr.close()
    assert child.wait(timeout=PATIENCE_S) == 0
    assert err.count("\n") == 1, err
    assert "294,000 solutions" in err
