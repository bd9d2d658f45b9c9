"""Defaults of options from files of settings and from the environment."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call

SMALL = ("solve", "--top", "1", "--kernel", "gemm.pointer", "--m", 512, "--n", 512, "--k", 512)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below one that may have settings; it is the working folder."""
    inner = tmp_path / "project" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CONSTRINT_GPU", "CONSTRINT_STORE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return inner.parent


def solved(text: str) -> list[tuple[str, str]]:
    """GPU and dtype of each result of a JSON document."""
    return [(result["gpu"], result["dtype"]) for result in json.loads(text)["results"]]


def test_a_file_of_the_project_gives_gpu_dtype_and_format(run: Call, folder: Path) -> None:
    (folder / "constrint.toml").write_text('gpu = ["mi300x", "a100"]\ndtype = "fp16"\nformat = "csv"\n')
    code, out, _ = run(*SMALL)
    assert (code, [row["gpu"] for row in csv.DictReader(out.splitlines())]) == (0, ["MI300X", "A100-SXM4-80GB"])
    # A command for one GPU takes the first; what is typed comes first.
    assert run("limits")[1].startswith("section,")
    code, out, _ = run(*SMALL, "--json")
    assert [dtype for _, dtype in solved(out)] == ["fp16", "fp16"]
    code, out, _ = run(*SMALL, "--gpu", "l4", "--dtype", "bf16", "--format", "json")
    assert solved(out) == [("L4", "bf16")]


def test_the_environment_comes_before_files_and_a_file_of_the_project_before_the_users(
    run: Call, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "home" / ".config" / "constrint"
    own.mkdir(parents=True)
    (own / "constrint.toml").write_text('gpu = "h200"')
    assert run("limits")[1].startswith("H200-SXM")
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.constrint]\ngpu = "a100"\n')
    assert run("limits")[1].startswith("A100-SXM4-80GB")
    monkeypatch.setenv("CONSTRINT_GPU", "mi300x")
    assert run("limits")[1].startswith("MI300X")


def test_a_question_about_a_file_takes_no_gpu_from_settings(run: Call, folder: Path) -> None:
    (folder / "constrint.toml").write_text('gpu = "h200"\ndtype = "fp16"\n')
    (folder / "p.constrint").write_text("var x in 1..3\n")
    code, out, err = run("count", "--problem", folder / "p.constrint", "--json")
    assert (code, err) == (0, "")
    assert "H200" not in out


def test_the_store_lies_beside_the_file(run: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_STORE", "")
    monkeypatch.delenv("CONSTRINT_STORE")
    (folder / "constrint.toml").write_text('store = "records.sqlite"')
    out = "".join(run("records", "list")[1:])
    assert str(folder / "records.sqlite") in " ".join(out.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'gpuu = "h200"', "Did you mean gpu?"),
        (b"gpu = 3", "gpu takes a text or a list of texts"),
        (b"gpu = []", "gpu takes a text or a list of texts"),
        (b'dtype = ["fp16"]', "dtype takes a text"),
        (b"gpu = ", "is not TOML"),
        (b"\xff", "is not UTF-8"),
        (b"x = " + b"[" * 100_000, "is not TOML"),
        (b" " * (1 << 21), "too long"),
    ],
)
def test_bad_files_are_refused_by_a_sentence_and_do_not_hide_the_help(
    run: Call, folder: Path, text: bytes, message: str
) -> None:
    (folder / "constrint.toml").write_bytes(text)
    code, out, err = run("limits")
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert run("limits", "--help")[0] == 0


def test_a_wrong_value_says_where_it_was_set(run: Call, folder: Path) -> None:
    (folder / "constrint.toml").write_text('gpu = "h2000"')
    code, _, err = run("limits")
    assert code == 2
    assert f"note: --gpu h2000 is set in {folder / 'constrint.toml'}." in err
