"""`constrint records`: what is in a store, compared, removed, exported and imported."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from constrint.select.toolchain import toolchain
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.cli.conftest import Call
from tests.support.records import record, timed

ROOT = Path(__file__).resolve().parents[2]


def trials() -> list[TuningRecord]:
    """Two runs over three workloads; the second one finds something better for one of them."""
    found = []
    for run, gain in (("monday", 1.0), ("tuesday", 0.8)):
        for m in (16, 256, 4096):
            for i in range(4):
                seconds = 1e-6 * m * (1 + i) * (gain if m == 256 else 1.0)
                config = {"tile_m": 64 + (gain < 1 and m == 256), "i": i}
                found.append(
                    record(i, gpu="H200-SXM", run=run, config=config, sizes={"m": m, "n": 64, "k": 64},
                           created=1e9 + m + i + (gain < 1) * 1e5, outcome="crashed" if i == 3 else "ok",
                           figures=None if i == 3 else timed(seconds))
                )  # fmt: skip
    return found


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path) as store:
        store.add(trials())
    return str(path)


def document(run: Call, *arguments: object) -> Any:
    code, out, err = run("records", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_best_of_each_workload_is_listed(run: Call, place: str) -> None:
    code, out, err = run("records", "list", "--store", place)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["id", "GPU", "kernel", "dtype", "workload", "us", "tried", "ok", "config"]
    assert [line.split()[4:9] for line in lines[1:4]] == [
        ["m=16", "n=64", "k=64", "16.00", "8"],
        ["m=256", "n=64", "k=64", "204.80", "8"],
        ["m=4096", "n=64", "k=64", "4096.00", "8"],
    ]
    assert lines[-1] == f"3 workloads, 24 records of 2 runs on H200-SXM in {place}."
    found = document(run, "list", "--store", place)
    assert found["schema"] == "constrint.records.list/1"
    assert [one["best"]["figures"]["median_s"] for one in found["results"]] == pytest.approx([16e-6, 204.8e-6, 4096e-6])
    assert {one["num_records"] for one in found["results"]} == {8}


def test_filters_choose_records(run: Call, place: str) -> None:
    def number(*filters: str) -> int:
        return len(document(run, "list", "--all", "--limit", 0, "--store", place, *filters)["results"])

    assert number() == 24
    # Any name of the GPU, an operation or an implementation.
    assert number("--gpu", "h200") == number("--gpu", "NVIDIA H200") == number("--kernel", "gemm") == 24
    assert number("--kernel", "gemm.descriptor") == number("--gpu", "a100") == number("--dtype", "fp8") == 0
    assert number("--run", "monday", "--outcome", "crashed") == 3
    assert number("--workload", "m=16,k=64") == 8
    # An option that was not stated has its default.
    assert number("--workload", "m=16,transpose_b=0,batch=1") == 8
    assert number("--workload", "m=16,transpose_b=1") == 0
    found = document(run, "list", "--all", "--limit", 5, "--store", place)
    assert (len(found["results"]), found["is_cut"]) == (5, True)
    _, out, _ = run("records", "list", "--all", "--limit", 5, "--store", place)
    assert "5 records in" in out
    assert "there are more: --limit 10, or 0 for all" in out


def test_a_record_is_shown_by_the_beginning_of_its_id(run: Call, place: str) -> None:
    one = trials()[0]
    found = document(run, "show", one.id[:10].upper(), "--store", place)
    assert found["record"]["id"] == one.id
    assert found["record"]["config"] == one.config
    code, out, _ = run("records", "show", one.id, "--store", place)
    assert code == 0
    assert "median:        16.00 us of 20 rounds, L2 cold, not among the finalists" in out
    assert "toolchain:     triton=3.6.0 torch=2.11.0 cuda=12.9 driver=570.1" in out


def test_control_characters_of_a_record_do_not_reach_the_terminal(run: Call, place: str) -> None:
    hostile = "\x1b[31mred\r\n"
    one = record(99, message=hostile, config={hostile: hostile}, run="x")
    with RecordStore.open(place) as store:
        store.add([one])
    for arguments in (("show", one.id), ("list", "--run", "x"), ("list", "--all", "--run", "x")):
        _, out, _ = run("records", *arguments, "--store", place)
        assert "red" in out
        assert "\x1b" not in out
        assert "\r" not in out


def test_runs_are_compared(run: Call, place: str) -> None:
    found = document(run, "diff", "monday", "tuesday", "--store", place)["results"]
    assert [one["change"] for one in found] == pytest.approx([0, -0.2, 0])
    assert [one["is_same_config"] for one in found] == [True, False, True]
    code, out, _ = run("records", "diff", "monday", "tuesday", "--store", place, "--workload", "m=256")
    assert code == 0
    assert "-20.0%" in out
    assert "was gemm.pointer tile_m=64 i=0" in out
    assert "now gemm.pointer tile_m=65 i=0" in out
    assert "1 workload, 1 of them in both; another best configuration: 1." in out


def test_stores_are_compared(run: Call, place: str, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with RecordStore.open(other) as store:
        store.add(one for one in trials() if one.sizes["m"] == 16)
    found = document(run, "diff", other, f"sqlite:///{place}")["results"]
    assert [one["change"] for one in found] == [0, None, None]
    assert [one["before"] is None for one in found] == [False, True, True]
    code, _, err = run("records", "diff", "monday", "sunday", "--store", place)
    assert code == 2
    assert "unknown run 'sunday'. Nearest: monday" in err


def test_pruning_removes_what_agrees_with_everything_named(run: Call, place: str) -> None:
    def pruned(*options: str) -> tuple[int, int]:
        found = document(run, "prune", "--store", place, *options)
        return found["num_found"], found["num_left"]

    assert pruned("--failed", "--dry-run") == (6, 24)
    assert pruned("--failed", "--run", "monday") == (3, 21)
    assert pruned("--older-than", "30d", "--run", "tuesday", "--workload", "m=16") == (4, 17)
    with RecordStore.open(place) as store:
        store.add([record(50, created=time.time())])
    assert pruned("--older-than", "1h") == (17, 1)


def test_pruning_of_stale_records_goes_by_what_is_here(run: Call, place: str) -> None:
    from constrint.kernels.registry import load_kernel
    from constrint.select.fingerprint import fingerprint_of

    (spec,) = load_kernel("gemm.pointer").implementations
    code = fingerprint_of(spec)
    here = {"triton": toolchain().get("triton", "3.6.0")}
    current: dict[str, Any] = {"source_hash": code.source, "spec_hash": code.spec, "toolchain": here}
    with RecordStore.open(place) as store:
        store.remove(store.ids(""))
        store.add([
            record(1, **current),
            record(2, **{**current, "source_hash": "old"}),
            record(3, **{**current, "toolchain": {"triton": "0.1"}}),
            record(4, kernel="known.to.others", operation="others", toolchain={}),  # not known here
            record(5, **{**current, "toolchain": {"rocm": "6.4"}}),
        ])  # fmt: skip
    expected = 2 if toolchain().get("triton") else 1
    assert document(run, "prune", "--stale", "--dry-run", "--store", place)["num_found"] == expected


def test_pruning_asks_or_wants_to_be_told(run: Call, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("records", "prune", "--store", place)
    assert (code, err.startswith("error: say which records: --stale")) == (2, True)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, _, err = run("records", "prune", "--failed", "--store", place)
    assert code == 2
    assert "6 records would be removed" in err
    assert "say --yes, or --dry-run" in err
    code, out, _ = run("records", "prune", "--failed", "--yes", "--store", place)
    assert (code, out) == (0, f"6 records removed from {place}, 18 are left.\n")
    code, _, err = run("records", "prune", "--older-than", "soon", "--store", place)
    assert (code, "write 12h, 30d or 8w" in err) == (2, True)


def test_names_in_records_load_no_files(run: Call, place: str, tmp_path: Path) -> None:
    trap, mark = tmp_path / "trap.py", tmp_path / "loaded"
    trap.write_text(f"open({str(mark)!r}, 'w').close()\nSPEC = None\n")
    with RecordStore.open(place) as store:
        store.add([record(77, kernel=f"{trap}:SPEC", operation=f"{trap}:SPEC")])
        store.add([record(78, kernel="this:s", operation="this:s")])
    publish = ("publish", "--folder", str(tmp_path))
    for arguments in (("prune", "--stale", "--dry-run"), ("list", "--workload", "bias=0"), publish):
        code, _, err = run("records", *arguments, "--store", place)
        assert (code, err) == (0, "")
    assert not mark.exists()


def test_winners_of_a_store_are_published(run: Call, place: str, tmp_path: Path) -> None:
    from constrint.kernels.registry import code_of

    code = code_of("gemm.pointer")
    assert code is not None
    with RecordStore.open(place) as store:
        current = {"source_hash": code, "run": "here", "gpu": "H200-SXM"}
        store.add([record(i, sizes={"m": 16 + i}, created=1.0, **current) for i in range(3)])
    folder = tmp_path / "tables"
    found = document(run, "publish", "--folder", folder, "--store", place)
    # The other records are of other code than the kernel has here.
    assert found["results"] == [{"gpu": "H200-SXM", "file": str(folder / "tuned-h200-sxm.json"), "num_entries": 3}]
    code_seen, out, _ = run("records", "publish", "--gpu", "h200", "--folder", folder, "--store", place)
    assert (code_seen, out.startswith("3 winners for H200-SXM in ")) == (0, True)
    code_seen, _, err = run("records", "publish", "--gpu", "a100", "--folder", folder, "--store", place)
    assert (code_seen, "has no records of A100-SXM4-80GB; it has those of: H200-SXM" in err) == (2, True)
    assert "CONSTRINT_CACHE is 0" in run("records", "publish", "--store", place)[2]


def test_unreadable_records_can_be_removed(run: Call, place: str) -> None:
    with sqlite3.connect(place) as raw:
        raw.execute("UPDATE constrint_records SET record = 'torn' WHERE run = 'monday' AND outcome = 'crashed'")
    raw.close()
    code, out, err = run("records", "list", "--store", place)
    assert code == 0
    assert "21 records of 2 runs" in out
    assert err.count("note: '") == err.count("is left out") == 1
    found = document(run, "prune", "--unreadable", "--store", place)
    assert (found["num_removed"], found["num_left"]) == (3, 21)


def test_what_is_exported_is_imported(run: Call, place: str, tmp_path: Path) -> None:
    file, other = tmp_path / "out.jsonl", str(tmp_path / "other.sqlite")
    assert run("records", "export", "-o", file, "--store", place) == (0, "", "")
    code, out, err = run("records", "import", file, "--store", other)
    assert (code, out, err) == (0, f"24 records of {file} added to {other}.\n", "")
    found = document(run, "import", file, "--store", other)
    assert (found["num_records"], found["num_new"]) == (24, 0)
    _, text, _ = run("records", "export", "--store", other)
    assert text == file.read_text()
    assert [path.name for path in tmp_path.glob("*.part*")] == []


def test_formats_of_others_are_taken_and_given(run: Call, place: str, tmp_path: Path) -> None:
    file, other = tmp_path / "cache.json", str(tmp_path / "other.sqlite")
    options = ("--workload", "m=16", "--run", "monday", "--store", place)
    code, text, _ = run("records", "export", "--format", "kernel-tuner", *options)
    file.write_text(text)
    assert (code, len(json.loads(text)["cache"])) == (0, 4)
    code, out, _ = run("records", "import", file, "--format", "kernel-tuner", "--run", "theirs", "--store", other)
    assert (code, out.startswith("4 records")) == (0, True)
    assert document(run, "list", "--store", other)["results"][0]["best"]["run"] == "theirs"
    code, _, err = run("records", "export", "--format", "t4", "--store", place)
    assert (code, "Choose with --kernel, --gpu, --dtype and --workload" in err) == (2, True)


@pytest.mark.parametrize(("arguments", "said"), [
    (("export", "--format", "pickle"), "unknown format 'pickle'. Known: c-header"),
    (("import", "none.jsonl"), "cannot read none.jsonl: No such file or directory"),
    (("import", __file__), "test_records.py:1: not a line of constrint.records/1"),
    (("import", __file__, "--format", "t1"), "`constrint count --space FILE` reads it as a space"),
    (("list", "--workload", "m"), "write sizes and options as m=4096"),
    (("list", "--workload", "m=²"), "write sizes and options as m=4096"),
    (("show", "xyz"), "no record has an id that begins with 'xyz'"),
    (("show", ""), "no record has an id that begins with ''"),
    (("lst",), "No such command 'lst'"),
    (("export", "-o", "/no/such/folder/file"), "cannot write /no/such/folder/file: No such file or directory"),
])  # fmt: skip
def test_mistakes_are_told_in_a_line(run: Call, place: str, arguments: tuple[str, ...], said: str) -> None:
    store = ("--store", place) if arguments != ("lst",) else ()
    code, _, err = run("records", *arguments, *store)
    assert code in (1, 2)
    assert said in err
    assert err.count("\n") == 1


def test_a_store_that_is_named_must_be_there(run: Call, tmp_path: Path) -> None:
    code, _, err = run("records", "list", "--store", tmp_path / "none.sqlite")
    assert (code, "there is no store" in err) == (2, True)
    assert not (tmp_path / "none.sqlite").exists()


def test_a_damaged_store_is_read_as_far_as_it_can_be_and_put_aside_by_who_writes(
    run: Call, place: str, tmp_path: Path
) -> None:
    (file_of_all := tmp_path / "all.jsonl").write_text(run("records", "export", "--store", place)[1])
    with open(place, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 20000)
    damaged = Path(place).read_bytes()
    for _ in range(2):
        code, _, err = run("records", "list", "--store", place)
        assert (code, err.count("note: the store"), "puts the file aside" in err) == (0, 1, True)
    assert Path(place).read_bytes() == damaged
    code, _, err = run("records", "import", file_of_all, "--store", place)
    assert (code, err.count("note: the store"), "It is kept as" in err) == (0, 1, True)
    assert [path.read_bytes() == damaged for path in tmp_path.glob("*.damaged*")] == [True]
    assert run("records", "list", "--store", place)[2] == ""


def test_the_environment_names_the_store(run: Call, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_STORE", place)
    assert len(document(run, "list")["results"]) == 3
