"""A command that a limit or a signal ends says what it knows, marks it in JSON, and has the exit code for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from constrint.cli.options import bytes_of, seconds_of
from constrint.cli.run import Run, Signals
from constrint.errors import UsageError
from constrint.model import parse
from constrint.solve import enumeration
from tests.support.clock import PATIENCE_S, wait_until, when_worked

#: Three congruences that no search is through with in minutes.
HARD = """var a in 1..4000; var b in 1..4000; var c in 1..4000; var d in 1..4000
(a*b + c*d) % 7919 == 3
(a*c + b*d) % 6007 == 5
(a*d + b*c) % 5003 == 7
"""
#: Quickly counted, and too many to print.
MANY = "var a in 1..3000; var b in 1..3000; a * b % 7 == 3\n"


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    path = tmp_path / "hard.constrint"
    path.write_text(HARD)
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many.constrint"
    path.write_text(MANY)
    return path


@pytest.fixture
def interrupt_after() -> Iterator[Callable[[float], object]]:
    """Sends this process a Ctrl-C after some seconds of work; it heeds one, whatever shell started the tests."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only, and this is another one")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield lambda seconds: when_worked(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_count_at_its_limit_gives_bounds(run: Any, hard: Path) -> None:
    result: dict[str, Any] = {"searched": None}
    # Where the machine is busy, the last fifth of so little time may be over before it begins.
    for seconds in (0.4, 0.8, 1.6, 3.2, 6.4):
        code, out, err = run("count", "--problem", hard, "--max-seconds", seconds, "--json")
        assert (code, err) == (1, "")
        (result,) = json.loads(out)["results"]
        if result["searched"] is not None:
            break
    assert result["num_valid"] is None
    assert 0 <= result["at_least"] <= result["at_most"] <= result["num_product"] == 4000**4
    assert 0 <= result["searched"] < 1
    assert result["stopped"].startswith(f"the time is over, --max-seconds {seconds}")
    code, out, _ = run("count", "--problem", hard, "--max-seconds", 0.2)
    assert code == 1
    assert "between 0 and 256,000,000,000,000" in out
    assert "not counted to the end: the time is over, --max-seconds 0.2" in out


def test_a_whole_count_says_nothing_of_limits(run: Any, many: Path) -> None:
    code, out, _ = run("count", "--problem", many, "--max-seconds", 60, "--max-memory", "2GB", "--json")
    assert code == 0
    (result,) = json.loads(out)["results"]
    assert set(result) == {"title", "num_valid", "num_product"}


@pytest.mark.parametrize("command", ["count", "explain"])
def test_ctrl_c_ends_a_command_with_what_it_knows(
    run: Any, hard: Path, command: str, interrupt_after: Callable[[float], object]
) -> None:
    out = ""
    for seconds in (0.3, 1.0, 4.0):  # Where the machine is busy, the search may not have begun: nothing is known then.
        interrupt_after(seconds)
        code, out, err = run(command, "--problem", hard, "--json")
        assert code == 130
        assert err.splitlines()[-1] == "interrupted"
        if out:
            break
    (result,) = json.loads(out)["results"]
    assert result["num_valid"] is None
    assert result["at_most"] == 4000**4
    assert result["stopped"] == "it was interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_ends_a_solve_and_a_sample(run: Any, hard: Path, interrupt_after: Callable[[float], object]) -> None:
    interrupt_after(0.2)
    code, out, err = run("sample", "--problem", hard)
    assert (code, out, err) == (130, "", "interrupted\n")
    interrupt_after(0.2)
    code, out, err = run("solve", "--problem", hard, "--backend", "native")
    assert code == 130
    assert err.splitlines()[-1] == "interrupted"


@pytest.fixture
def ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the time of a run be over after the third look at the clock, whatever the machine does."""
    looks: list[str] = []

    def reason(self: Run) -> str:
        looks.append("")
        return "the time is over" if len(looks) > 3 else ""

    monkeypatch.setattr(Run, "reason", reason)


@pytest.mark.usefixtures("ends_soon")
def test_a_sample_at_its_limit_has_what_was_drawn_and_says_so(run: Any, many: Path) -> None:
    problem = parse(MANY)
    code, out, err = run("sample", "--problem", many, "--count", 100_000, "--json")
    assert code == 1
    *rows, last = map(json.loads, out.splitlines())
    assert last == {"stopped": {"num_printed": len(rows), "num_asked": 100_000, "why": "the time is over"}}
    assert 0 < len(rows) < 100_000
    assert all(rule.holds(row) for rule in problem.constraints for row in rows[::1000])
    assert err == f"stopped after {len(rows):,} of 100,000 rows: the time is over\n"


@pytest.mark.usefixtures("ends_soon")
def test_a_listing_at_its_limit_says_so_too(run: Any, many: Path) -> None:
    code, out, err = run("solve", "--all", "--problem", many)
    assert code == 1
    assert "stopped" not in out
    assert f"stopped after {len(out.splitlines()) - 1:,} of " in err


def test_a_space_that_no_limit_lets_be_known_is_an_error(run: Any, hard: Path, tmp_path: Path) -> None:
    code, out, err = run("sample", "--problem", hard, "--max-seconds", 0.2)
    assert (code, out) == (1, "")
    assert err.startswith("error: nothing is known yet: the time is over, --max-seconds 0.2")
    dense = tmp_path / "dense.constrint"
    dense.write_text("var a in 1..300; var b in 1..300; var c in 1..300; a * b % 7 == c % 5\n")
    code, out, err = run("solve", "--all", "--problem", dense, "--max-memory", "1kB")
    assert (code, out) == (1, "")
    assert "--max-memory 1000" in err


def test_solve_shows_the_best_so_far(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.constrint"
    path.write_text(HARD.splitlines()[0] + "\n(a*b + c*d) % 7919 == 3\nmaximise a*b - c*d\n")
    code, out, err = run("solve", "--problem", path, "--max-seconds", 1, "--backend", "native", "--json")
    assert code == 0, err
    document = json.loads(out)
    (row,) = document["solutions"]
    assert (row["a"] * row["b"] + row["c"] * row["d"]) % 7919 == 3
    stopped = document["stopped"]
    assert stopped["is_best"] or stopped["bound"] >= row["a"] * row["b"] - row["c"] * row["d"]
    assert document["num_valid"] is None


def test_explain_has_the_rules_that_were_evaluated(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "half.constrint"
    path.write_text(HARD + "a < 2000\n")
    code, out, err = run("explain", "--problem", path, "--max-seconds", 3, "--json")
    assert code == 1
    (result,) = json.loads(out)["results"]
    rules = {rule["rule"]: rule for rule in result["rules"]}
    assert rules["a < 2000"]["removes_alone"] == 2001 * 4000**3
    assert rules["a < 2000"]["removes_only"] is None
    assert result["stopped"]
    assert "what each rule removes is not counted" in err


def test_why_not_names_every_rule_whatever_the_limit(run: Any, hard: Path) -> None:
    code, out, _ = run("why-not", "--problem", hard, "a=1", "b=1", "c=2", "d=3", "--max-seconds", 1e-6, "--json")
    assert code == 0
    assert len(json.loads(out)["broken"]) == 2


def test_a_ranking_that_ended_before_it_began_is_an_error(run: Any) -> None:
    code, out, err = run("solve", "--gpu", "h200", "--where", "tile_m < 100", "--max-seconds", 1e-9)
    # Spaces that are known already take no time: then all kernels are ranked, or the others are named.
    ended = err.startswith("error: ") or "not ranked, and perhaps better: " in out
    assert (code, ended) == (1, True) or (code, ended) == (0, False)


@pytest.mark.parametrize(
    ("text", "number"),
    [("2GB", 2 * 10**9), ("512MiB", 1 << 29), ("1.5k", 1500), ("7", 7), ("3 tib", 3 << 40), ("1b", 1), (None, None)],
)
def test_sizes_of_memory(text: str | None, number: int | None) -> None:
    assert bytes_of(text) == number


@pytest.mark.parametrize("text", ["", "GB", "2XB", "-1GB", "0", "1e9", "nan", "0.1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="--max-memory takes a size above 0, such as 2GB"):
        bytes_of(text)


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="--max-seconds takes a number of seconds above 0"):
        seconds_of(text)


def sleep_through(interrupt_after: Callable[[float], object]) -> None:
    interrupt_after(0.0)
    time.sleep(PATIENCE_S)


def test_a_search_that_does_not_notice_is_interrupted(interrupt_after: Callable[[float], object]) -> None:
    signals = Signals()
    signals.begin()
    try:
        with pytest.raises(KeyboardInterrupt):
            sleep_through(interrupt_after)
    finally:
        signals.end()
    assert signals.number == signal.SIGINT


def test_a_second_ctrl_c_interrupts_at_once(interrupt_after: Callable[[float], object]) -> None:
    signals = Signals()
    signals.begin()
    try:
        interrupt_after(0.0)
        wait_until(signals.noticed, "the first Ctrl-C")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signals.end()


def test_what_is_ignored_stays_so() -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only, and this is another one")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signals = Signals()
        signals.begin()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signals.end()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_want_of_memory_is_one_line(run: Any, many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_memory(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(enumeration, "count", without_memory)
    code, out, err = run("count", "--problem", many)
    assert (code, out) == (1, "")
    assert err.startswith("error: there is not enough memory")
    assert err.count("\n") == 1


def test_kernels_that_a_limit_leaves_out_of_a_ranking_are_named() -> None:
    # In a process of its own: a space that is known already takes no memory.
    command = [sys.executable, "-m", "constrint.cli.app", "solve", "--gpu", "h200", "--kernel", "gemm", "--max-memory"]
    done = subprocess.run([*command, "1kB"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    told = next(line for line in done.stdout.splitlines() if line.startswith("not ranked, and perhaps better: "))
    assert "gemm.pointer" in told
    assert "more than --max-memory 1000; raise it" in told
    done = subprocess.run([*command, "1kB", "--gpu", "mi300x"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("not ranked, and perhaps better: ") == 2
    done = subprocess.run([*command, "1GB"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "not ranked" not in done.stdout
