"""Text from others reaches no terminal, no spreadsheet and no source file as anything but text, in any command."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from constrint.answers.registry import EXPORTS, PAGES, RECORDS
from constrint.answers.terminal import clean_streams
from constrint.cli.app import COMMANDS, main
from constrint.cli.run import Run
from constrint.cli.tune_progress import progress
from constrint.hwmodels import load
from constrint.select import Workload
from constrint.tune.store.store import RecordStore
from tests.cli.conftest import Call
from tests.support.records import record
from tests.support.shared import SharedResults
from tests.support.terminal import terminal
from tests.tune.store.test_proposals import proposal

#: A title for the window, colours, a C1 sequence, reversed direction, a line of its own, markup, ends of strings and
#: comments.
MARK = "FORGED"
EVIL = (
    f"=1+1\x1b]0;{MARK}\x07\x1b[31m\x9b2J\u202e\u2066\x85\u2028\r\n{MARK} error: all is well\n\x08\x7f\u200b"
    f"</script><script>{MARK}()</script>|`*[a](b)'''\"\"\"*/ {MARK}; /* \\"
)
FORMULAS = ("=HYPERLINK(1)", "@SUM(A1)", "+1", "-a", "\t=1", "\r=1")
DATA = Path(load.__file__).parent / "data" / "nvidia" / "t4.yaml"

KERNEL = f"""
from constrint.select import BlockUse, KernelSpec, Param, Rule, Size

EVIL = {EVIL!a}


class Scale(KernelSpec):
    operation, name, summary, dtypes = "scale", "plain", EVIL, ("fp32", "fp16")
    sizes = (Size("rows", 1024, EVIL),)
    options = (Size("in_place", 0, EVIL, least=0, most=1),)

    def params(self, gpu, workload):
        return [Param("tile_m", (16, 32, 64), EVIL, EVIL, EVIL), Param("num_warps", (4, 8), "warps of a block", "few")]

    def rules(self, gpu, workload, v):
        yield Rule(v["tile_m"] <= 32, EVIL, EVIL)

    def use(self, gpu, workload, v):
        return BlockUse(v["num_warps"], 32 + v["tile_m"], v["tile_m"] * 0)


class Misnamed(Scale):
    name = EVIL


SPEC, MISNAMED = Scale(), Misnamed()
"""


#: Names of the files that say hostile things.
FILES = {
    "gpu": "evil.yaml",
    "kernel": "evil.py",
    "space": "evil.json",
    "problem": "evil.constrint",
    "store": "evil.sqlite",
}


@pytest.fixture
def places(tmp_path: Path, shared_results: SharedResults) -> dict[str, str]:
    """A store, a GPU, a kernel, a problem and a space that say hostile things, in files of the test's own."""
    shutil.copytree(shared_results.files_once("hostile", _write_places), tmp_path, dirs_exist_ok=True)
    return {name: str(tmp_path / file) for name, file in FILES.items()}


def _write_places(folder: Path) -> None:
    files = {name: folder / file for name, file in FILES.items()}
    quoted = json.dumps(EVIL).replace("\x7f", "\\x7f")
    text = DATA.read_text().replace("[Tesla T4]", f"[{quoted}]")
    text = text.replace("kind: GDDR6", f"kind: {quoted}").replace("CUTLASS: '", f"CUTLASS: {quoted} #")
    text = text.replace("notes:\n", f"notes:\n- {quoted}\n").replace("disagreements: []", f"disagreements: [{quoted}]")
    files["gpu"].write_text(text)
    files["kernel"].write_text(KERNEL)
    space = {"name": EVIL, "params": {EVIL: [1, 2], "b": [EVIL, *FORMULAS]}, "restrictions": ["b != 'x'"]}
    files["space"].write_text(json.dumps(space))
    files["problem"].write_text(f"var x in {{1, 2}} because {quoted}\nr: x <= 1 because {quoted}\n")
    with RecordStore.open(files["store"]) as store:
        store.add([record(0, **_hostile(EVIL)), record(1), *(record(2, **_hostile(text)) for text in FORMULAS)])
        told = {
            "because": EVIL,
            "origin": EVIL,
            "host": EVIL,
            "kind": EVIL,
            "refusals": (EVIL,),
            "config": {EVIL: EVIL},
        }
        store.add_proposals([proposal(0, run=EVIL, gpu=EVIL, operation=EVIL, dtype=EVIL, kernel=EVIL, **told)])


def _hostile(text: str) -> dict[str, Any]:
    names = dict.fromkeys(("kernel", "operation", "gpu", "dtype", "run", "message", "source_hash", "spec_hash"), text)
    return {**names, "sizes": {text: 1}, "options": {text: 1}, "config": {text: text}, "toolchain": {text: text}}


def check(text: str, where: object, *, is_data: bool = False) -> None:
    """Nothing that a terminal acts on, and no line that another wrote."""
    odd = {one for one in text if not one.isprintable() and one not in "\n\t"}
    assert not odd, (where, odd)
    assert is_data or f"\n{MARK} error" not in text, (where, text)


def check_format(form: str, out: str, where: object) -> None:
    if form in ("json", "jsonl"):
        for document in [out] if form == "json" and out.startswith("{\n") else out.splitlines():
            json.loads(document)
    if form == "csv":
        for row in csv.reader(io.StringIO(out, newline="")):
            for cell in row:
                assert not re.match(r"\s*[=+@]|-(?!\d)|[\t\r\n]", cell), (where, cell)
    if form == "markdown":
        assert "<script" not in out.replace("\\<", ""), (where, out)


#: What each command is asked about hostile files; these questions have answers.
ANSWERED: dict[str, list[str]] = {
    "solve": ["--gpu {gpu} --kernel {kernel}:SPEC", "--gpu {gpu} --kernel {kernel}:SPEC --legend",
              "--problem {problem}", "--space {space}", "--all --space {space}",
              "--gpu {gpu} --gpu h200 --kernel {kernel}:SPEC"],
    "compare": ["--gpu {gpu} --gpu h200 --kernel {kernel}:SPEC"],
    "explain": ["--gpu {gpu} --kernel {kernel}:SPEC", "--problem {problem}", "--space {space}"],
    "why": ["{kernel}:SPEC --gpu {gpu}"],
    "why-not": ["--gpu {gpu} --kernel {kernel}:SPEC tile_m=64 num_warps=4", "--problem {problem} x=2"],
    "count": ["--gpu {gpu} --kernel {kernel}:SPEC", "--problem {problem}", "--space {space}"],
    "sample": ["--gpu {gpu} --kernel {kernel}:SPEC --seed 1", "--space {space} --seed 1"],
    "verify": ["--gpu {gpu} --kernel {kernel}:SPEC"],
    "report": ["--gpu {gpu} --kernel {kernel}:SPEC --force --store {store} --out {store}.html"],
    "limits": ["--gpu {gpu}"],
    "kernels": ["{kernel}:SPEC"],
    "gpus": [""],
    "gpu": ["{gpu}"],
    "occupancy": ["--gpu {gpu} --threads 256 --registers 64"],
    "banks": ["--gpu {gpu}", "--gpu {gpu} --tile 32x32 --access store_rows"],
    "doctor": [""],
    "records": ["list --store {store}", "list --all --wide --store {store}", "proposals --wide --store {store}",
                "publish --store {store} --folder {store}.d", "prune --stale --dry-run --store {store}",
                "diff run-1 {evil} --store {store}", "show {id} --store {store}"],
}  # fmt: skip
#: What is refused, with a message that may repeat what was given.
REFUSED: dict[str, list[str]] = {
    "solve": ["--gpu h200 --kernel {kernel}:MISNAMED"],
    "compile": ["{kernel}:SPEC --gpu {gpu} --signature {evil}"],
    "prune": ["{kernel}:SPEC --gpu {gpu} --signature {evil}", "{evil} --gpu h200 --signature *fp32"],
    "evaluate": ["--suggestions {evil}", "--suggestions . --kernel {evil} --model triton",
                 "--suggestions {evil} --device {evil}", "--suggestions . --kernel axpy --model {evil}",
                 "--suggestions . --plot {evil}/{evil}"],
    "tune": ["--kernel {kernel}:SPEC --store {store} --gpu {gpu}"],
    "propose": ["--kernel {kernel}:SPEC --gpu {gpu} --store {store}"],
    "records": ["show {evil} --store {store}", "list --store {evil}", "import {space} --store {store}",
                "import {store} --format t4 --store {store}"],
    "docs": ["{evil}"],
    "banks": ["--gpu h100 --tile {evil}", "--gpu h100 --tile 32x32 --access {evil}",
              "--gpu h100 --tile 32x32 --access ldmatrix --layout {evil}",
              "--gpu h100 --tile 32x32 --access ldmatrix --solve --form {evil}"],
}  # fmt: skip
WRONG = ["--gpu {evil}", "--kernel {evil}", "{evil}", "--{evil}", "--format {evil}"]


LINES = [(command, words, True) for command, lines in ANSWERED.items() for words in lines]
LINES += [(command, words, False) for command in COMMANDS for words in [*REFUSED.get(command, ()), *WRONG]]


def test_every_command_is_asked() -> None:
    assert {*COMMANDS} == ANSWERED.keys() | REFUSED.keys()


@pytest.mark.parametrize(("command", "words", "is_answered"), LINES)
def test_no_command_prints_what_a_terminal_acts_on(
    run: Call,
    places: dict[str, str],
    command: str,
    words: str,
    is_answered: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    with RecordStore.open(places["store"]) as store:
        (named,) = (one.id for one in store.find() if one.kernel == EVIL)
    arguments = [word.format(**places, evil=EVIL, id=named) for word in words.split()]
    for form in ("", *PAGES.built_in):
        code, out, err = run(command, *arguments, *(["--format", form] if form else []))
        where = (command, words, form)
        check(err, where)
        if form and "No such option: --format" in err:
            break
        assert code != 2 or not is_answered, (where, code, err)
        check(out, where, is_data=form in ("csv", "json", "jsonl", "markdown"))
        check_format(form, out, where)
    for columns in (40, 100):
        with terminal(columns) as screen:
            run(command, *arguments)
        check(screen.text, where, is_data=True)


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_a_terminal_without_unicode_gets_what_it_can_show(
    places: dict[str, str], encoding: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lacking = tmp_path / "größer → \U0001f600.json"
    lacking.write_text(json.dumps({"name": "größer", "params": {"ä→": ["\U0001f600", "=ö"]}, "restrictions": []}))
    for words in (["solve", "--space", str(lacking)], ["explain", "--space", str(lacking)], ["kernels"],
                  ["solve", "--space", "ä→\udcff"], ["gpu", "ä→"], ["--help"], ["docs", "tables"], ["ö→"]):  # fmt: skip
        for options in ([], ["--json"], ["--format", "csv"]):
            out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2))
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stderr", err)
            monkeypatch.setattr(sys, "argv", ["constrint", *words, *options])
            with pytest.raises(SystemExit) as ended:
                main()
            shown = b""
            for stream in (out, err):
                stream.flush()
                shown += stream.buffer.getvalue()
            assert shown.decode(encoding)
            if options == ["--json"] and words[0] in ("solve", "explain") and ended.value.code == 0:
                json.loads(shown.decode(encoding))


def test_what_is_exported_is_source_text_of_its_language(run: Call, places: dict[str, str]) -> None:
    asked = {
        "ranking": ["--gpu", places["gpu"], "--kernel", f"{places['kernel']}:SPEC", "--top", "3"],
        "own": ["--space", places["space"], "--top", "5", "--rename", f"{EVIL}={MARK.lower()}"],
        "names": ["--space", places["space"], "--top", "5"],
        "title": ["--problem", places["problem"], "--top", "5"],
    }
    num_written = 0
    for form in EXPORTS.built_in:
        for kind, words in asked.items():
            code, out, err = run("solve", *words, "--export", form)
            where = (form, kind)
            check(out, where, is_data=form in ("json", "csv"))
            check(err, where)
            num_written += code == 0
            if code == 0:
                _check_source(form, out, where)
    assert num_written >= 10


@pytest.mark.parametrize("form", RECORDS.built_in)
def test_records_are_exported_as_source_text_of_their_language(run: Call, places: dict[str, str], form: str) -> None:
    for words in ([], ["--gpu", EVIL], ["--run", EVIL], ["--run", "=HYPERLINK(1)"]):
        code, out, err = run("records", "export", "--format", form, "--store", places["store"], *words)
        check(err, (form, words))
        check(out, (form, words), is_data=form not in ("triton-config", "c-header"))
        if code == 0:
            _check_source(form, out, (form, words))


def _check_source(form: str, out: str, where: object) -> None:
    """Foreign text is part of strings and comments alone."""
    if form in ("triton", "triton-config", "kernel-tuner") and not out.startswith("{"):
        names = {node.id for node in ast.walk(ast.parse(out)) if isinstance(node, ast.Name)}
        own = {"triton", "CONFIGS", "tune_params", "restrictions"}
        assert all(name in own or name.startswith("CONFIGS_") for name in names), (where, names)
    elif form == "c-header":
        bare = re.sub(r"/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"", "", out, flags=re.DOTALL)
        assert all(line.startswith("#") or not line.strip() for line in bare.splitlines()), (where, out)
    elif form == "cutlass-like":
        assert all(line.startswith(("#", "--")) for line in out.splitlines()), (where, out)
    else:
        check_format("csv" if form == "csv" else "json" if out.startswith("{\n") else "jsonl", out, where)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_moves_the_cursor_and_shows_foreign_text_as_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    evil = "\x1b]0;x\x07\x1b[2J\u202e"
    goal = SimpleNamespace(workload=Workload("gemm", {"m": 4}, f"bf16{evil}"))
    session: Any = SimpleNamespace(num_tried=1, best_s=1e-5, goal=goal)
    tuned: Any = SimpleNamespace(goal=goal, best_s=None, problem=f"why{evil}", outcomes=())
    with clean_streams(), progress([f"gpu{evil}"], 4, 1) as listener:
        listener.started(0, session)
        listener.tried(0, session, record(), 3.0)
        print(f"note: while it goes on{evil}", file=sys.stderr)
        listener.finished(0, tuned)
        running = Run("doing")
        running.progress._next = 0.0
        running.progress.say(f"it{evil}")
        running.progress.close()
    shown = screen.getvalue()
    assert "while it goes on" in shown
    assert "why" in shown
    assert "doing" in shown
    assert not [one for one in ("\x1b]", "\x07", "\x1b[2J", "\u202e") if one in shown]


def test_raw_leaves_cells_as_they_are(run: Call, places: dict[str, str]) -> None:
    for words in (["--top", "9", "--format", "csv"], ["--all", "--format", "csv"], ["--top", "9", "--export", "csv"]):
        for option, mark in (("--raw", ""), (None, "'")):
            code, out, _ = run("solve", "--space", places["space"], *words, *([option] if option else []))
            cells = {cell for row in csv.reader(io.StringIO(out, newline="")) for cell in row}
            assert code == 0
            assert f"{mark}@SUM(A1)" in cells


def test_a_page_shows_foreign_text_as_text(run: Call, places: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ["--gpu", places["gpu"], "--kernel", f"{places['kernel']}:SPEC", "--store", places["store"], "--out", page]
    assert run("report", *asked)[0] == 0
    text = page.read_text()
    own = re.sub(r"<script[^>]*>.*?</script>", "", text, flags=re.DOTALL)
    assert MARK in own
    assert f"<script>{MARK}" not in text
    assert not {one for one in own if not one.isprintable() and one not in "\n\t"}
