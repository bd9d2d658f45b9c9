"""Tables are carried over to device code with the same machine code, and to no other. No GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import constrint
from benchmarks.remake import tables
from benchmarks.remake.same import carry, stale
from benchmarks.remake.same.carry import Verdict, carry_over, difference, write
from benchmarks.remake.same.machine import differences, facts_that_differ
from benchmarks.remake.same.stale import job_of, sampled, stale_of
from benchmarks.remake.same.trees import Compiled, Tree, base_of, compile_in
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda.nvrtc import CudaSource, compile_cuda
from constrint.select import Workload
from constrint.select.winners import SHIPPED, TunedTable, read_tuned, tuned_path, write_tuned
from tests.support.needs import missing_packages, needs_nvrtc

GPU = load_gpu("h200")
PACKAGE = Path(constrint.__file__).parent
SOFTMAX = PACKAGE.parent / "examples" / "softmax" / "softmax.py"
needs_triton = pytest.mark.skipif(bool(missing_packages("torch", "triton")), reason="needs the extra [torch]")

KERNEL = """
constexpr int kTwo = 2;
__device__ int table[4] = {1, 2, 3, 4};
__device__ __forceinline__ float changed(float x) {
#if SQUARES
  return x * x;
#endif
  return x * kTwo;
}
extern "C" __global__ void scale(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = changed(x[i]);
}
"""


def cubin(text: str, **macros: int) -> tuple[bytes, str]:
    binary = compile_cuda(GPU, CudaSource(text, "scale", {"SQUARES": 0, **macros}))
    return binary.cubin, binary.symbol


def compared(old: tuple[bytes, str], new: tuple[bytes, str]) -> list[str]:
    return differences(old[0], new[0], "cubin", (old[1], new[1]))


@needs_nvrtc
def test_text_that_no_instruction_comes_from_is_no_difference() -> None:
    dead = "constexpr int kUnread = 7;\n__device__ float dead[2] = {1, 2};\n__device__ float f(float x) { return x; }\n"
    branch = KERNEL.replace("#endif", "#endif\n  if constexpr (SQUARES == 2) return x + 1;")
    before = cubin(KERNEL)
    for text in ("// a comment\n\n" + KERNEL, dead + KERNEL, branch, KERNEL.replace("scale", "renamed")):
        symbol = "renamed" if "renamed" in text else "scale"
        binary = compile_cuda(GPU, CudaSource(text, symbol, {"SQUARES": 0}))
        assert compared(before, (binary.cubin, binary.symbol)) == [], text
    assert before[0] != cubin(dead + KERNEL)[0], "else the test shows nothing"


@needs_nvrtc
def test_other_instructions_data_and_parameters_are_differences() -> None:
    before = cubin(KERNEL)
    assert any("machine code" in one for one in compared(before, cubin(KERNEL, SQUARES=1)))
    assert any("machine code" in one for one in compared(before, cubin(KERNEL.replace("kTwo = 2", "kTwo = 3"))))
    parameters = compared(before, cubin(KERNEL.replace("int n)", "int n, int unread)")))
    assert any(".nv.info" in one for one in parameters)
    reads = KERNEL.replace("x * kTwo", "x * table[static_cast<int>(x) & 3]")
    assert any("nv.global" in one for one in compared(cubin(reads), cubin(reads.replace("{1, 2", "{5, 2"))))
    bounded = KERNEL.replace("__global__ void", "__global__ void __launch_bounds__(64)")
    assert compared(before, cubin(bounded)), "what the launcher is told counts"


def test_assembly_of_amd_is_compared_without_comments_and_lines() -> None:
    old = b"f:\n\t.loc 1 2 3 ; f.py:2\n\tv_add_f32 v0, v1, v2 ; a\n\t.size f\n"
    assert differences(old, b"g:\n\t.loc 1 9 3\n\tv_add_f32 v0, v1, v2\n\t.size g\n", "amdgcn", ("f", "g")) == []
    assert differences(old, old.replace(b"add", b"sub"), "amdgcn", ("f", "f")) == ["the assembly"]


def test_what_python_decides_of_a_launch_counts(tmp_path: Path) -> None:
    (tmp_path / "k.cubin").write_bytes(b"code")
    one = {"kind": "CudaLaunch", "code": "k.cubin", "symbol": "k", "metadata": {}, "facts": {"grid": ["8"]}}
    old = Compiled(launches={"a": [one]})
    assert difference("a", old, Compiled(launches={"a": [one]}), tmp_path) == ""
    wider = Compiled(launches={"a": [{**one, "facts": {"grid": ["9"]}}]})
    assert difference("a", old, wider, tmp_path) == "grid (['8'], now ['9'])"
    more = Compiled(launches={"a": [one, one]})
    assert difference("a", old, more, tmp_path) == "1 launches, now 2"
    assert "does not compile it: KeyError" in difference("a", old, Compiled(errors={"a": "KeyError: 'x'"}), tmp_path)
    assert facts_that_differ({"a": 1}, {"b": "x" * 99}) == ["a (1, now None)", "b"]


# Whole checkouts.


def tree(folder: Path, change: Callable[[str], str] = str) -> Tree:
    """A checkout with this package and a kernel of its own."""
    folder.mkdir()
    (folder / "constrint").symlink_to(PACKAGE)
    (folder / "kernels.py").write_text(change(SOFTMAX.read_text(encoding="utf-8")), encoding="utf-8")
    return Tree(folder, folder.name)


@pytest.mark.slow
@needs_triton
def test_a_comment_and_an_untaken_branch_are_the_same_code_and_another_function_is_not(tmp_path: Path) -> None:
    def reworded(text: str) -> str:
        branch = "    weights = tl.exp(values)\n    if tile_m == 3:\n        weights = tl.sigmoid(values)\n"
        text = text.replace("@triton.jit\n", "# A comment.\n\n\n@triton.jit\n")
        return text.replace("    weights = tl.exp(", f"{branch}    weights = tl.exp(")

    def another(text: str) -> str:
        return text.replace("weights = tl.exp(", "weights = tl.exp2(")

    def wider(text: str) -> str:
        return text.replace('triton.cdiv(workload.sizes["m"]', 'triton.cdiv(workload.sizes["m"] + 1')

    changes: tuple[Callable[[str], str], ...] = (str, reworded, another, wider)
    trees = [tree(tmp_path / f"tree{at}", change) for at, change in enumerate(changes)]
    workload = Workload("softmax", {"m": 4096, "n": 1024}, "bf16")
    jobs = [job_of("kernels.py:SPEC", "h200", workload, {"tile_m": 1, "tile_n": 1024, "num_warps": 4})]
    said: list[str] = []
    old, *others = compile_in(trees, ["kernels.py:SPEC", "kernels.py:NONE"], jobs, tmp_path / "work", said.append)
    reasons = [difference(jobs[0]["id"], old, new, tmp_path / "work" / "code") for new in others]
    assert reasons[0] == ""
    assert "machine code" in reasons[1]
    assert "grid" in reasons[2]
    assert old.hashes["kernels.py:SPEC"] != others[0].hashes["kernels.py:SPEC"]
    assert old.hashes["kernels.py:NONE"] == ""
    assert len(list((tmp_path / "work" / "code").glob("*.cubin"))) == 3, "the same text is compiled once"
    assert any("1 of 1 configurations" in line for line in said)


def test_a_base_is_a_commit_or_a_checkout(tmp_path: Path) -> None:
    own = tree(tmp_path / "older")
    with base_of(str(own.folder)) as base:
        assert base.folder == own.folder.resolve()
        assert base.name.startswith("older")
    for wrong in ("no-such-commit", "--help", str(tmp_path)):
        with pytest.raises(UsageError, match="neither a commit"), base_of(wrong):
            pass


def test_a_checkout_that_cannot_be_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "constrint").mkdir()
    (tmp_path / "constrint" / "__init__.py").write_text("raise RuntimeError('torn')\n")
    with pytest.raises(ConstrintError, match="RuntimeError: torn"):
        compile_in([Tree(tmp_path, "torn")], [], [], tmp_path / "work", print)


# Tables.


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of three winners, the first two stale, and evidence of one stale table of corrections."""
    path, name = tmp_path / "winners.json", "corrections-fp8"
    of_tables = tables.path_of
    monkeypatch.setattr(tables, "path_of", lambda name, gpu: path if name == "winners" else of_tables(name, gpu))
    monkeypatch.setattr(tables, "EVIDENCE", tmp_path / "evidence.json")
    found = [e for e in read_tuned(tuned_path(SHIPPED, GPU.name)).entries if e.kernel == "gemm.cuda"][:3]
    now = tables.hashes_of({"gemm.cuda"})["gemm.cuda"]
    entries = [
        msgspec.structs.replace(e, source_hash="a" * 16 if at < 2 else now, same_code_as=msgspec.UNSET)
        for at, e in enumerate(found)
    ]
    write_tuned(TunedTable(GPU.name, tuple(entries)), path)
    kernels = {**tables.hashes_of(tables.kernels_of(name, GPU.name)), "gemm.pointer": "b" * 16}
    tables.EVIDENCE.write_text(json.dumps({f"{tables.slug(GPU.name)}/{name}": {"kernels": kernels}}))
    return path


def winners_and_corrections(part: str) -> bool:
    return part in ("winners", "corrections")


def test_stale_entries_have_the_configurations_that_decide(shipped: Path) -> None:
    found = [one for one in stale_of([GPU.name], winners_and_corrections) if one.before]
    assert [(one.table, one.kernel) for one in found] == [
        ("winners", "gemm.cuda"),
        ("winners", "gemm.cuda"),
        ("corrections-fp8", "gemm.pointer"),
    ]
    first, entry = found[0].jobs[0], read_tuned(shipped).entries[0]
    assert (first["sizes"], first["config"], first["gpu"]) == (entry.sizes, entry.config, GPU.name)
    assert len(found[2].jobs) == stale.LEAST
    assert {job["kernel"] for job in found[2].jobs} == {"gemm.pointer"}


def test_a_sample_has_every_class_and_is_the_same_every_time() -> None:
    rows = [((str(at % 3),), {"id": f"{at * 7919 % 101:03}"}) for at in range(90)] + [(("rare",), {"id": "999"})]
    chosen = sampled(rows)
    assert len(chosen) == stale.LEAST
    kinds = {row[1]["id"]: row[0][0] for row in rows}
    assert {kinds[job["id"]] for job in chosen} == {"0", "1", "2", "rare"}
    assert sampled(rows[::-1]) == chosen
    assert len(sampled(rows[:1] * 20)) == 1


def test_what_is_carried_over_holds_and_says_so_and_the_rest_stays(shipped: Path) -> None:
    first, second, corrected = [one for one in stale_of([GPU.name], winners_and_corrections) if one.before]
    now = tables.hashes_of({"gemm.cuda", "gemm.pointer"})
    verdicts = [Verdict(first), Verdict(second, "machine code (8 bytes, now 16 bytes)"), Verdict(corrected)]
    paths = write(verdicts, now, "0123456789ab", {"triton": "3.9.0", "nvrtc": "13.5"})
    assert paths == [shipped, tables.EVIDENCE]
    a, b, c = read_tuned(shipped).entries
    note = f"{'a' * 16}, 0123456789ab, nvrtc 13.5, triton 3.9.0"
    assert (a.source_hash, a.same_code_as) == (now["gemm.cuda"], (note,))
    assert b == second.entry
    assert c.same_code_as is msgspec.UNSET
    recorded = tables.evidence()[f"{tables.slug(GPU.name)}/corrections-fp8"]
    assert recorded["kernels"]["gemm.pointer"] == now["gemm.pointer"]
    assert recorded["same_code_as"]["gemm.pointer"][0].startswith(f"{'b' * 16}, 0123456789ab")
    # Carried over once more, the first step stays; measured anew, no step is left.
    again = replace(first, entry=a, before=a.source_hash)
    write([Verdict(again)], {"gemm.cuda": "c" * 16}, "new", {})
    steps = read_tuned(shipped).entries[0].same_code_as
    assert steps == (note, f"{now['gemm.cuda']}, new, ")
    tables.note(GPU.name, "corrections-fp8")
    assert "same_code_as" not in tables.evidence()[f"{tables.slug(GPU.name)}/corrections-fp8"]


@pytest.mark.parametrize("writes", [False, True])
def test_a_base_with_other_code_carries_nothing_over(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], writes: bool
) -> None:
    before = shipped.read_bytes()

    def compiled(trees: Any, kernels: Any, jobs: Any, *_: Any) -> list[Compiled]:
        assert not jobs, "an entry that was measured with other code needs no compilation"
        return [Compiled(dict.fromkeys(kernels, "d" * 16)), Compiled()]

    monkeypatch.setattr(carry, "compile_in", compiled)
    entries = list(stale_of([GPU.name], lambda part: part == "winners"))
    assert carry_over(entries, Tree(tmp_path, "old"), tmp_path, print, writes=writes) == 1
    shown = capsys.readouterr().out
    assert "0 of 2 winners carried over" in shown
    assert f"it was measured with {'a' * 16}, and the code of old is {'d' * 16}" in shown
    assert shipped.read_bytes() == before


def test_fresh_tables_need_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert carry_over([], Tree(tmp_path, "old"), tmp_path, print, writes=True) == 0
    assert "nothing to carry over" in capsys.readouterr().out
