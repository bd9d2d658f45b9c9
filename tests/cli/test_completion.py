"""Completion in a shell: the words that fit, what bash splits, and silence where something is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from constrint.cli.app import COMMANDS, main
from constrint.hwmodels import list_gpus, load_gpu
from constrint.kernels import registry
from constrint.kernels.registry import list_kernels, load_kernel
from tests.support.clock import PATIENCE_S

TILES = str(Path(__file__).parents[2] / "examples" / "tiles.constrint")
Ask = Callable[..., list[str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The words that bash is given for the last of some words, in this process."""

    def asked(*words: str, shell: str = "bash") -> list[str]:
        monkeypatch.setattr(sys, "argv", ["constrint"])
        monkeypatch.setenv("_CONSTRINT_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", "\n".join(("constrint", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(("constrint", *words)))
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit):
            main()
        out, err = capsys.readouterr()
        assert err == ""
        return out.splitlines()

    return asked


def test_commands_and_options(ask: Ask) -> None:
    assert ask("") == list(COMMANDS)
    assert ask("wh") == ["why", "why-not"]
    assert {"--head-dim", "--dtype", "--set"} <= set(ask("solve", "--kernel", "lstm", "--"))
    assert "--head-dim" not in ask("solve", "--kernel", "gemm", "--h")
    assert "import" in ask("records", "")


def test_names(ask: Ask) -> None:
    gpus = [name.lower() for name in list_gpus()]
    for words in (("solve", "--gpu"), ("compare",), ("compare", "h200"), ("gpu",), ("limits", "--gpu")):
        assert ask(*words, "") == gpus
    assert ask("solve", "--gpu", "MI300x") == ["MI300x"]
    assert ask("solve", "--kernel", "") == list(list_kernels())
    assert ask("kernels", "gemm.po") == ["gemm.pointer"]
    assert ask("solve", "--kernel", "lstm", "--dtype", "f") == ["fp16", "fp32", "fp64"]
    assert ask("solve", "--format", "j") == ["json", "jsonl"]
    assert ask("count", "--backend", "na") == ["native"]
    assert ask("docs", "troub") == ["troubleshooting"]


def test_parameters_and_their_values(ask: Ask) -> None:
    asked = ("solve", "--gpu", "mi300x", "--kernel", "gemm.pointer", "--set")
    names = ask(*asked, "")
    assert {"tile_m=", "kpack=", "num_warps="} <= set(names)
    assert "kpack=" not in ask("solve", "--gpu", "h200", "--kernel", "gemm.pointer", "--set", "")
    assert ask(*asked, "kpa") == ["kpack=1", "kpack=2"]
    # bash makes words of their own of `=`, and keeps what stands before it.
    assert ask(*asked, "tile_m", "=") == ["4", "8", "16", "32", "64", "128", "256"]
    assert ask(*asked, "tile_m", "=", "1") == ["16", "128"]
    assert ask(*asked, "tile_m", "=", "16,3") == ["16,32"]
    assert ask("why-not", "--problem", TILES, "tile_n", "=", "16", "sta") == [f"stages={n}" for n in (1, 2, 3, 4)]
    assert ask(*asked, "tile_m=1", shell="fish") == ["tile_m=16", "tile_m=128"]


def test_other_shells(ask: Ask) -> None:
    assert ask("solve", "--gpu", "mi300x", shell="zsh") == ["_arguments '*: :((\"mi300x\"))'"]
    gpu, operation = load_gpu("h200"), load_kernel("gemm")
    params = operation.implementations[0].params(gpu, operation.default_workload(gpu))
    meaning = next(param.meaning for param in params if param.name == "tile_k")
    assert ask("solve", "--gpu", "h200", "--set", "tile_", shell="fish")[2] == f"tile_k=\t{meaning}"


@pytest.mark.parametrize(
    "words",
    [
        ("bogus", "--gpu", ""),
        ("solve", "--kernel", "bogus", "--set", ""),
        ("solve", "--kernel", "no/such.py", ":", "SPEC", "--set", ""),
        ("why-not", "--problem", "no_such_file", "t"),
        ("solve", "--gpu", "'"),
        ("solve", "--set", "x" * 10_000),
        ("solve", "--gpu", "\x1b[31m"),
        ("solve", "--gpu", "größe"),
        ("solve", "--gpu", "h200", "--gpu", "b200", "--m", "1", "--m", ""),
    ],
)
def test_whatever_is_typed_there_is_no_message(ask: Ask, words: tuple[str, ...]) -> None:
    assert all(word in COMMANDS or "=" in word for word in ask(*words))


def test_a_broken_package_gives_no_traceback(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        print("noise")
        raise RuntimeError("broken")

    monkeypatch.setattr(registry, "_read_packages", broken)
    assert ask("solve", "--kernel", "") == []


@pytest.mark.parametrize("value", ["complete_ksh", "x", "complete_bash"])
def test_questions_in_a_wrong_form_are_not_answered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["constrint"])
    monkeypatch.setenv("_CONSTRINT_COMPLETE", value)
    monkeypatch.setenv("COMP_WORDS", "constrint")
    monkeypatch.setenv("COMP_CWORD", "many")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "")


def test_the_file_of_a_kernel_is_not_run_while_somebody_types(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert ask("solve", "--gpu", "h200", "--kernel", f"{path}", ":", "SPEC", "--set", "t") == []
    assert not (tmp_path / "ran").exists()


def test_scripts(run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish", "powershell"):
        code, out, _ = run("--show-completion", shell)
        assert code == 0
        assert "_CONSTRINT_COMPLETE" in out
    code, _, err = run("--show-completion", "ksh")
    assert (code, err.startswith("error: unknown shell 'ksh'.")) == (2, True)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, out, _ = run("--install-completion", "bash")
    assert (code, str(tmp_path) in out) == (0, True)
    assert "constrint.sh" in (tmp_path / ".bashrc").read_text()
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    code, _, err = run("--install-completion", "zsh")
    assert code in (0, 2)
    assert "Traceback" not in err


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_itself(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    script = run("--show-completion", "bash")[1]
    command = tmp_path / "constrint"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m constrint "$@"\n')
    command.chmod(0o755)
    session = f"""{script}
COMP_WORDS=(constrint solve --gpu mi300x --set tile_m = 1); COMP_CWORD=7
_constrint_completion constrint; printf '%s ' "${{COMPREPLY[@]}}"
complete -p constrint
"""
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", session],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
        check=False,
    )
    assert re.fullmatch(r"16 128 complete .*-F _constrint_completion constrint\n", done.stdout), done
    assert done.stderr == ""


#: Commands that print a table at once, and those words that name it.
TABLES = [
    ("solve", "--gpu", "mi300x", "--kernel", "gemm.pointer", "--top", "1"),
    ("sample", "--gpu", "h200", "--kernel", "gemm.pointer"),
    ("explain", "--gpu", "h200", "--kernel", "gemm.pointer"),
    ("count", "--gpu", "h200", "--kernel", "gemm.pointer"),
    ("limits", "--gpu", "h200"),
    ("kernels",),
    ("gpus",),
    ("occupancy", "--gpu", "h200", "--threads", "256", "--registers", "64"),
    ("records", "list", "--all"),
    ("records", "proposals"),
    ("docs",),
]


@pytest.mark.parametrize("words", TABLES, ids=lambda words: " ".join(words[:2]))
def test_columns_are_those_that_are_printed(
    ask: Ask, run: Callable[..., tuple[int, str, str]], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    header = run(*words, "--format", "csv")[1].splitlines()[0].split(",")
    offered = ask(*words, "--columns", "")
    # A sample of one kernel names it above the table.
    assert [name for name in offered if name != "kernel" or "kernel" in header] == header
    assert f"{header[0]},{header[-1]}" in ask(*words, "--sort", f"{header[0]},{header[-1][:2]}")


def test_values_of_other_options(ask: Ask, tmp_path: Path) -> None:
    assert ask("tune", "--search", "r") == ["random"]
    assert "tpe" in ask("tune", "--search", "optuna", ":", "tp")
    assert ask("tune", "--search", "optuna:c", shell="fish") == ["optuna:cmaes"]
    assert ask("tune", "--engine", "lo") == ["local"]
    assert ask("tune", "--cache", "") == ["cold", "warm"]
    assert ask("tune", "--columns", "gai") == ["gain"]
    assert ask("records", "list", "--outcome", "timed") == ["timed_out"]
    assert ask("records", "export", "--format", "kern") == ["kernel-tuner"]
    assert ask("records", "list", "--dtype", "bf") == ["bf16"]
    assert ask("occupancy", "--gpu", "mi300x") == ["mi300x"]
    assert ask("compile", "x.py:k", "--asm", "amd") == ["amdgcn"]
    assert ask("why", "matmul", "--activation", "sil") == ["silu"]
    assert ask("report", "--gpu", "h200", "--kernel", "gemm.pointer", "--over", "tile_m,tile_n") == ["tile_m,tile_n"]
    assert ask("solve", "--gpu", "h200", "--kernel", "gemm.pointer", "--where", "num_w") == ["num_warps"]
    assert "ldmatrix" in ask("banks", "--gpu", "h200", "--access", "ldm")
    assert ask("propose", "--task", "softm") == ["softmax"]
    assert ask("compile", "x.py:k", "--gpu", "h200", "--columns", "spill") == ["spill_bytes_per_thread"]


def test_kernels_of_a_file_are_read_and_not_run(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text("raise SystemExit\n@triton.jit\ndef mine(x): pass\ndef helper(): pass\n")
    assert ask("compile", str(tmp_path / "ker")) == [f"{file}:"]
    assert ask("compile", f"{file}:", shell="fish") == [f"{file}:mine"]
    assert ask("prune", str(file), ":", "m") == ["mine"]
    assert ask("compile", str(tmp_path / "none" / "x")) == []
