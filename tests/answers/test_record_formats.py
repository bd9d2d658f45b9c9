"""Formats: what is written is read back, and a file of others gives its records or one error that names the line."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.answers import registry
from constrint.answers.formats.records import Source, StatedFields, load, reader, writer
from constrint.errors import UnknownNameError, UsageError
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.schema import row_of
from tests.support.hostile_records import RECORDS
from tests.support.records import record, timed

OUTCOMES = ("ok", "compile_failed", "launch_failed", "wrong_result", "timed_out", "crashed")


def text_of(name: str, records: Iterable[TuningRecord]) -> str:
    return "".join(writer(name)(records))


def read(name: str, text: str | bytes, **said: Any) -> list[TuningRecord]:
    return reader(name)(Source("file", text if isinstance(text, bytes) else text.encode(), StatedFields(**said)))


def several() -> list[TuningRecord]:
    """A trial of every outcome; those that are ok take different times."""
    return [
        record(i, outcome=outcome, figures=timed(1e-4 + i * 1.7e-6) if outcome == "ok" else None,
               config={"tile_m": 16 * i, "fast": i % 2 == 0, "mode": "a b", "ratio": 0.25})
        for i, outcome in enumerate([*OUTCOMES, "ok", "ok"])
    ]  # fmt: skip


def is_kept(one: TuningRecord) -> bool:
    try:
        row_of(one)
    except UsageError:
        return False
    figures = one.figures
    return figures is None or (figures.median_s > 0 and figures.spread_s >= 0 and figures.num_rounds >= 0)


@settings(max_examples=100)
@given(st.lists(RECORDS.filter(is_kept), max_size=4, unique_by=lambda one: one.id))
def test_lines_of_json_are_exact(records: list[TuningRecord]) -> None:
    text = text_of("jsonl", records)
    assert repr(read("jsonl", text)) == repr(records)
    # Files may be joined, even where they overlap.
    assert repr(read("jsonl", text + text)) == repr(records)


@pytest.mark.parametrize("name", ["kernel-tuner", "t4"])
def test_results_come_back_from_formats_of_others(name: str) -> None:
    records = several()
    found = read(name, text_of(name, records))
    same = ("kernel", "operation", "gpu", "dtype", "sizes", "config", "created", "source_hash", "toolchain")
    for one, back in zip(records, found, strict=True):
        assert [getattr(one, field) for field in same] == [getattr(back, field) for field in same]
        if one.figures is None:
            assert back.figures is None
        else:
            assert back.figures is not None
            assert back.figures.median_s == pytest.approx(one.figures.median_s, rel=1e-15)
            assert back.figures.cache == one.figures.cache
    if name == "t4":
        assert [one.outcome for one in found] == [
            "launch_failed" if one.outcome == "crashed" else one.outcome for one in records
        ]
    else:
        assert [one.is_ok for one in found] == [one.is_ok for one in records]
        assert found[1].outcome == "compile_failed"


def test_of_several_records_of_a_configuration_the_best_is_exported() -> None:
    records = [record(7, run=f"r{i}", figures=timed(1e-3 / (i + 1))) for i in range(4)]
    records.append(record(7, run="failed", outcome="crashed", figures=None, created=1e12))
    (found,) = read("kernel-tuner", text_of("kernel-tuner", records))
    assert found.figures is not None
    assert found.figures.median_s == pytest.approx(2.5e-4)


@pytest.mark.parametrize("name", ["kernel-tuner", "t4", "t1"])
def test_a_format_of_one_workload_takes_no_others(name: str) -> None:
    with pytest.raises(UsageError, match=r"one workload and GPU, and these records are of 2.*Choose with --kernel"):
        text_of(name, [record(0), record(1, sizes={"m": 1})])
    with pytest.raises(UsageError, match="no records to export"):
        text_of(name, [])


CACHE: dict[str, Any] = {
    "device_name": "NVIDIA RTX A4000",
    "kernel_name": "convolution",
    "problem_size": [4096, 2048],
    "tune_params_keys": ["block", "pad"],
    "tune_params": {"block": [16, 32], "pad": [True, False]},
    "cache": {
        "16,True": {"block": 16, "pad": True, "time": 2.0, "times": [3.0, 1.0, 1.0],
                    "timestamp": "2023-01-02 03:04:05"},
        "32,True": {"block": 32, "pad": True, "time": "CompilationFailedConfig"},
        "16,False": {"block": 16, "pad": False, "time": 0.5, "GFLOP/s": 7},
        "32,False": {"block": 32, "pad": False, "time": 1e20},
    },
}  # fmt: skip


def lines_of(document: object) -> str:
    return json.dumps(document, indent=1)


def test_a_cache_of_kernel_tuner() -> None:
    found = read("kernel-tuner", lines_of(CACHE), dtype="fp32", gpu="RTX A4000")
    assert [(one.config["block"], one.config["pad"]) for one in found] == [
        (16, True), (32, True), (16, False), (32, False),
    ]  # fmt: skip
    assert [one.outcome for one in found] == ["ok", "compile_failed", "ok", "launch_failed"]
    first = found[0]
    assert (first.kernel, first.gpu, first.sizes) == ("convolution", "RTX A4000", {"x": 4096, "y": 2048})
    assert first.created == 1672628645.0
    assert first.figures is not None
    assert (first.figures.median_s, first.figures.num_rounds, first.figures.cache) == (1e-3, 3, "warm")
    with pytest.raises(UsageError, match=r"does not say the dtype; say it with --dtype\. Nothing was imported"):
        read("kernel-tuner", lines_of(CACHE))


def test_a_cache_that_kernel_tuner_left_open_is_whole() -> None:
    whole = text_of("kernel-tuner", several()).rstrip()
    assert whole.endswith("}}\n}")
    for end in ("", ",", ",\n"):
        assert read("kernel-tuner", whole[: -len("}\n}")] + end) == read("kernel-tuner", whole)
    with pytest.raises(UsageError, match="not JSON"):
        read("kernel-tuner", whole[:-20] + ",")


ENTRY = ["cache", "16,False"]


def changed(path: list[Any], value: object) -> str:
    document = json.loads(lines_of(CACHE))
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return lines_of(document)


@pytest.mark.parametrize(("text", "near", "rule"), [
    ("", "", "not JSON"),
    (lines_of(CACHE)[:300], "", "not JSON"),
    ("[" * 100_000, "", "not JSON of this form: it is nested too deep"),
    ("[1, 2]", "", "the document: Expected `object`"),
    ('{"cache": 1' + "0" * 5000 + "}", "", "not JSON of this form"),
    (lines_of(CACHE).replace("0.5", "1e999"), "1e999", "the number 1e999 is not finite"),
    (lines_of(CACHE).replace("0.5", "NaN"), "NaN", "the number NaN is not finite"),
    (lines_of(CACHE).replace("32,False", "16,False"), '"16,False": {\n   "block": 32',
     "the key '16,False' is given twice"),
    (lines_of(CACHE).replace('"GFLOP/s": 7', '"block": 17'), '"block": 17', "the key 'block' is given twice"),
    (lines_of(CACHE).replace("convolution", "NaN").replace("0.5", "NaN"), "NaN,\n   \"GF", "the number NaN is not"),
    (changed(["device_name"], 3), '"device_name"', "device_name: Expected `str`"),
    (changed(["problem_size"], "4 * n"), "4 * n", "problem_size: '4 * n' is no number; say the sizes"),
    (changed(["problem_size"], [1, 1.5]), "1.5", "problem_size[1]: Expected `int`"),
    (changed(["objective"], "GFLOP/s"), "objective", "objective: 'GFLOP/s'; only times are imported"),
    (changed([*ENTRY, "time"], -1.0), '"16,False"', "cache['16,False']: a time must be positive"),
    (changed([*ENTRY, "time"], "fast"), '"16,False"', "cache['16,False']: there is no time, and 'fast'"),
    (changed([*ENTRY, "time"], [0.125]), '"time": [', "cache.16,False.time: Expected `float | str`"),
    (changed([*ENTRY, "block"], 8), '"16,False"', "cache['16,False']: its parameters have other values than its key"),
    (changed([*ENTRY, "block"], {"a": 1}), '"16,False"', "cache.16,False: Expected `bool | int | float | str | null`"),
    (changed([*ENTRY, "timestamp"], "soon"), "soon", "cache.16,False.timestamp: 'soon' is no time in ISO 8601"),
    (changed([*ENTRY, "timestamp"], 77), "77", "cache.16,False.timestamp: Expected `str | null`"),
    (changed(["tune_params_keys"], ["block", "none"]), '"16,True"', "the parameter 'none' is missing"),
])  # fmt: skip
def test_a_bad_cache_gives_one_error_with_line_and_rule(text: str, near: str, rule: str) -> None:
    with pytest.raises(UsageError) as told:
        read("kernel-tuner", text, dtype="fp32")
    line = text[: text.index(near)].count("\n") + 1
    said = str(told.value)
    assert rule in said
    assert said.startswith(f"file:{line}: " if near else "file:")
    assert said.endswith("Nothing was imported.")
    assert "\n" not in said


def test_a_cache_without_the_kernel_name_is_told_how_to_say_it() -> None:
    with pytest.raises(UsageError, match=r"^file does not say the kernel; say it with --kernel\."):
        read("kernel-tuner", changed(["kernel_name"], ""), dtype="fp32")


T4: dict[str, Any] = {
    "schema_version": "1.0.0",
    "metadata": {"timeunit": "miliseconds"},
    "results": [
        {"configuration": {"method": "pso"}, "times": {"runtimes": [0.3, 0.1]}, "invalidity": "correct",
         "correctness": 1},
        {"configuration": {"method": "mls"}, "times": {}, "invalidity": "timeout", "correctness": 1},
        {"configuration": {"method": "ils"}, "times": {}, "invalidity": "correct", "correctness": 1,
         "measurements": [{"name": "time", "value": 2.0, "unit": "ms"}]},
    ],
}  # fmt: skip


def test_a_t4_file_of_others() -> None:
    found = read("t4", json.dumps(T4), kernel="search", gpu="A100", dtype="fp64", sizes={"n": 3})
    assert [one.outcome for one in found] == ["ok", "timed_out", "ok"]
    assert [one.figures and one.figures.median_s for one in found] == [2e-4, None, 2e-3]
    assert {(one.kernel, one.operation, one.gpu, one.run) for one in found} == {("search", "search", "A100", "t4:file")}
    with pytest.raises(UsageError, match="does not say the kernel; say it with --kernel"):
        read("t4", json.dumps(T4))


@pytest.mark.parametrize(("change", "rule"), [
    ({"schema_version": "2.0.0"}, "schema_version: '2.0.0', and this version reads 1.0.0"),
    ({"metadata": {"timeunit": "seconds"}}, "metadata.timeunit: 'seconds'; only milliseconds are read"),
    ({"results": {}}, "results: Expected `array`"),
    ({"results": [{**T4["results"][0], "invalidity": "odd"}]}, "results[0].invalidity: 'odd' is none of correct"),
    ({"results": [{**T4["results"][0], "times": {}}]}, "results[0]: a correct result needs positive times.runtimes"),
    ({"results": [{**T4["results"][0], "times": {"runtimes": ["1"]}}]}, "times.runtimes[0]: Expected `float`"),
    ({"results": [{**T4["results"][0], "configuration": {"x": []}}]}, "results[0].configuration: Expected `bool | int"),
    ({"results": [{"configuration": {}}]}, "results[0]: Object missing required field `times`"),
    ({"results": [T4["results"][0], {**T4["results"][0], "times": {"runtimes": [9]}}]}, "another record of the same"),
])  # fmt: skip
def test_a_bad_t4_file_gives_one_error(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError) as told:
        read("t4", lines_of({**T4, **change}), kernel="k", gpu="g", dtype="fp32")
    assert rule in str(told.value)
    assert str(told.value).startswith("file:")


LINES = text_of("jsonl", [record(i) for i in range(3)]).splitlines()


@pytest.mark.parametrize(("lines", "rule"), [
    ([], "file:1: the file is empty"),
    (LINES[:-1], "the file is cut: its last line should be"),
    ([*LINES[:2], LINES[2][:100]], "file:3: not a line of constrint.records/1: Input data was truncated"),
    ([*LINES[:2], *LINES[3:]], "file:4: 3 records are announced and 2 are there"),
    (LINES[1:], "file:1: not a line of constrint.records/1"),
    (['{"schema": "constrint.records/9"}', *LINES[1:]], "file:1: the schema is 'constrint.records/9'"),
    ([LINES[0], LINES[1], LINES[1].replace("0.0001", "0.0002"), LINES[2]],
     "file:3: another record of the same trial, which differs, is in line 2"),
    ([LINES[0], LINES[1].replace("0.0001", "-1.0")], "file:2: a time must be positive"),
    ([LINES[0], LINES[1].replace("0.0001", "1e999")], "file:2: not a line of constrint.records/1: Number out of range"),
    ([LINES[0], LINES[1].replace("0.0001", "NaN")], "file:2: not a line of constrint.records/1"),
    ([LINES[0], LINES[1].replace('"H200"', '""')], "file:2: the record of 'gemm.pointer' of run 'run-1' has an empty"),
    ([LINES[0], LINES[1].replace('"H200"', "7")],
     "file:2: not a line of constrint.records/1: Expected `str`, got `int` - at `$.gpu`"),
    ([LINES[0], "[" * 100_000], "file:2: not a line of constrint.records/1"),
    (["\xff\xfe"], "file:1: not a line of constrint.records/1"),
])  # fmt: skip
def test_bad_lines_of_json_give_one_error_with_line_and_rule(lines: list[str], rule: str) -> None:
    with pytest.raises(UsageError) as told:
        read("jsonl", "\n".join(lines).encode("latin-1"))
    assert rule in str(told.value)


@settings(max_examples=200)
@given(st.sampled_from(["kernel-tuner", "t4", "jsonl"]), st.data())
def test_damaged_files_never_end_in_a_traceback(name: str, data: st.DataObject) -> None:
    text = bytearray(text_of(name, several()[:3]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"}", b"9"])
        )
    try:
        found = read(name, bytes(text))
    except UsageError:
        return
    assert all(is_kept(one) for one in found)


def test_triton_configs_are_python_that_does_nothing_else() -> None:
    hostile = "x'); import os; os.abort() #\n*/"
    records = [
        record(0, config={"BLOCK": 64, "num_warps": 4, "num_stages": 3}),
        record(1, config={"BLOCK": 64, "num_warps": 4, "num_stages": 3}, dtype="fp8"),
        record(2, kernel=hostile, dtype=hostile, config={"mode": hostile, "num_warps": 8}, sizes={hostile: 1}),
        record(3, outcome="crashed", figures=None),
    ]
    tree = ast.parse(text_of("triton-config", records))
    statements = [type(one).__name__ for one in tree.body]
    assert statements == ["Import", "Assign"]
    assert isinstance(tree.body[1], ast.Assign)
    assert isinstance(tree.body[1].value, ast.List)
    calls: list[Any] = tree.body[1].value.elts
    values = [(ast.literal_eval(c.args[0]), {k.arg: ast.literal_eval(k.value) for k in c.keywords}) for c in calls]
    assert ({"BLOCK": 64}, {"num_warps": 4, "num_stages": 3}) in values
    assert ({"mode": hostile}, {"num_warps": 8}) in values
    assert len(values) == 2


def test_an_inductor_table_has_the_products_that_the_template_computes() -> None:
    plain = {"tile_m": 128, "tile_n": 64, "tile_k": 32, "num_warps": 8, "num_stages": 3, "split_k": 1, "persistent": 0}
    sizes = {"m": 64, "n": 128, "k": 100}
    records = [
        record(i, config={**plain, "group_m": 2**i}, sizes=sizes, figures=timed(1e-4 - i * 1e-6)) for i in range(6)
    ]
    records.append(record(7, config={**plain, "split_k": 4}, sizes=sizes, figures=timed(1e-9)))
    records.append(record(8, config=plain, sizes=sizes, options={"batch": 3, "transpose_a": 1}, dtype="tf32"))
    records.append(record(9, config=plain, sizes=sizes, options={"bias": 1}))
    table = json.loads(text_of("inductor", records))
    product, batch = table.values()
    assert list(table) == [
        "((torch.bfloat16, [64, 100], [100, 1]), (torch.bfloat16, [100, 128], [128, 1]))+mm",
        "((torch.float32, [3, 64, 100], [6400, 1, 64]), (torch.float32, [3, 100, 128], [12800, 128, 1]))+bmm",
    ]
    assert [one["GROUP_M"] for one in product] == [32, 16, 8, 4, 2]
    assert product[0] == {
        "template_id": "triton::mm", "BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 32, "num_warps": 8,
        "num_stages": 3, "EVEN_K": False, "ALLOW_TF32": False, "USE_FAST_ACCUM": False, "ACC_TYPE": "tl.float32",
    }  # fmt: skip
    assert (batch[0]["template_id"], batch[0]["ALLOW_TF32"]) == ("triton::bmm", True)
    with pytest.raises(UsageError, match="none of these records fits Inductor's template"):
        text_of("inductor", records[-1:])
    with pytest.raises(UsageError, match="is for one GPU, and these records are of A100, H200"):
        text_of("inductor", [records[0], record(0, gpu="A100", config=plain)])


def test_names_of_formats_are_checked() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown format 'pickle'\. Known: c-header, inductor, jsonl"):
        registry.RECORDS.named("pickle")
    for name in registry.RECORDS.names():
        assert registry.RECORDS.named(name).name == name
    with pytest.raises(UsageError, match="c-header has no results that could be imported; imported are: jsonl"):
        reader("c-header")
    registry.RECORDS.add("mine", registry.RecordFormat("mine", "of a test", read=lambda source: []))
    with pytest.raises(UsageError, match="the format mine is only imported; exported are: c-header"):
        writer("mine")


def test_a_file_that_is_too_large_or_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrint.answers.formats.records.MAX_BYTES", 10)
    path = tmp_path / "large"
    path.write_bytes(b"x" * 11)
    with pytest.raises(UsageError, match="has more than 10 bytes; split it"):
        load(path, StatedFields())
    with pytest.raises(UsageError, match=r"cannot read .*: No such file or directory"):
        load(tmp_path / "none", StatedFields())
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        load(tmp_path, StatedFields())


def test_what_is_said_is_taken_for_a_file() -> None:
    (found,) = read(
        "kernel-tuner", text_of("kernel-tuner", [record(0)]), gpu="A100", dtype="fp8", run="mine", sizes={"n": 2}
    )
    assert (found.gpu, found.dtype, found.run, found.sizes) == ("A100", "fp8", "mine", {"n": 2})
    assert msgspec.json.decode(msgspec.json.encode(found), type=TuningRecord) == found


@pytest.mark.parametrize("name", ["jsonl", "kernel-tuner", "t4"])
def test_half_of_a_character_in_a_name_is_refused_with_its_line(name: str) -> None:
    text = text_of(name, several()).replace('"mode"', '"\\ud800"')
    with pytest.raises(UsageError, match=r"file:\d+: .*Nothing was imported"):
        read(name, text)


@pytest.mark.parametrize("name", ["jsonl", "kernel-tuner", "t4"])
@pytest.mark.parametrize("key", ["\\u001b]0;x\\u0007", "\\u0000", "a\\nb\\r", "\\u202egpu", "[" * 5000])
def test_an_error_quotes_a_file_in_one_short_line(name: str, key: str) -> None:
    text = text_of(name, several()).replace('"operation"', f'"{key}"')
    with pytest.raises(UsageError, match="Nothing was imported") as told:
        read(name, text)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 700
