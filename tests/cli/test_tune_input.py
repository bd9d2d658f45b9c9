"""What `constrint tune` says to workloads and options that make no sense; no device is needed for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
#: Text of a file of workloads, and what is said of it.
FILES = {
    "a fraction": ("- {kernel: gemm, m: 0.5}", "entry 1: m must be a whole number"),
    "a truth": ("- {kernel: gemm, m: 4}\n- {kernel: gemm, m: true}", "entry 2: m must be a whole number"),
    "an unknown size": ("- {kernel: gemm, q: 5}", "unknown size 'q'"),
    "an unknown kernel": ("- {kernel: gemmm}", "unknown kernel"),
    "no name": ("- {kernel: [gemm]}", "kernel is no name"),
    "an unknown type": ("- {kernel: gemm, dtype: fp13}", "unknown dtype"),
    "a huge size": ("- {kernel: gemm, m: 99999999999999999999999}", "m must be between 1 and"),
    "no YAML": ("- {kernel: [", "is no YAML"),
    "code": ("!!python/object/apply:os.system ['true']", "is no YAML"),
    "a text": ("gemm", "holds no list of workloads"),
    "nothing": ("", "holds no list of workloads"),
    "numbers": ("[1, 2]", "entry 1: it is no mapping"),
    "brackets": ("[" * 5000, "is no YAML"),
    "too many": (f"- {{kernel: gemm, m: {list(range(1, 200))}, n: {list(range(1, 200))}}}", "more than"),
}
#: Options, and what is said of them.
OPTIONS = {
    ("--budget", "soon"): "is no time",
    ("--budget", "0s"): "is no time",
    ("--gpus", "one"): "write all, or indices",
    ("--engine", "slurm"): "unknown engine",
    ("--engine", "ray", "--gpus", "0"): "--gpus names GPUs of this machine",
    ("--address", "auto"): "add --engine ray",
    ("--cache", "tepid"): "unknown cache",
    ("--search", "guess"): "unknown search",
    ("--trials", "0"): "0",
    ("--timeout", "0"): "0",
    ("--workloads", "missing.yaml"): "cannot read the workloads",
    ("--workloads", "."): "cannot read the workloads",
    ("--install", "--n", "5"): "takes neither sizes",
    ("--store", "mysql://here"): "cannot hold records",
}


@pytest.fixture
def tune(run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    return lambda *arguments: run("tune", "--gpu", "h200", "--device", "cpu", *arguments)


@pytest.mark.parametrize("name", FILES)
def test_files_of_workloads_are_refused_in_a_line(tune: Call, tmp_path: Path, name: str) -> None:
    text, told = FILES[name]
    (tmp_path / "w.yaml").write_text(text)
    code, out, err = tune("--workloads", tmp_path / "w.yaml")
    assert (code, out) == (2, ""), err
    assert told in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("error: ")


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_options_are_refused_in_a_line(tune: Call, options: tuple[str, ...]) -> None:
    code, out, err = tune(*options)
    assert (code, out) == (2, ""), err
    assert OPTIONS[options] in err
    assert len(err.strip().splitlines()) == 1


def test_a_missing_file_is_named_before_gpus_are_looked_for(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrint.tune.engine.registry.open_fleet", lambda *_: pytest.fail("GPUs were looked for"))
    code, out, err = run("tune", "--workloads", "missing.yaml")
    assert (code, out) == (2, "")
    assert err == "error: cannot read the workloads missing.yaml: No such file or directory.\n"


def test_frozen_measures_nothing_and_says_what_is_missing(tune: Call) -> None:
    code, out, _ = tune("--frozen", "--m", "640", "--n", "384")
    assert code == 1
    assert "0 of 1 workloads have a measured winner" in out


def test_without_a_device_it_says_so(run: Call) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a device here")
    code, out, err = run("tune", "--kernel", "gemm")
    assert (code, out) == (1, "")
    assert "no GPU found" in err
