"""What the commands say of certain, redundant and estimated rules, and what compiling changes."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from typing import Any

import pytest

from constrint.cli.options import with_counts
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.select import Workload, rank
from constrint.select.candidate import CompiledKernel
from constrint.select.compiled import compile_cached, keep, recall
from tests.support.needs import needs_triton

#: The tile that AMD's own library picks: compiled it takes 240 registers and 64 KiB of LDS, and does not spill.
EXPERTS = {
    "tile_m": 256,
    "tile_n": 256,
    "tile_k": 64,
    "num_warps": 8,
    "num_stages": 2,
    "split_k": 1,
    "persistent": 0,
    "group_m": 8,
    "matrix_instr_nonkdim": 16,
    "waves_per_eu": 0,
    "kpack": 1,
    "xcd_chunk": 0,
}
PAIRS = [f"{name}={value}" for name, value in EXPERTS.items()]
SET = [word for pair in PAIRS for word in ("--set", pair)]


def document(run: Any, *arguments: object) -> Any:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_tile_of_experts_is_valid_and_what_speaks_against_it_is_said_to_be_estimated(run: Any) -> None:
    answer = document(run, "why-not", "--gpu", "mi300x", *PAIRS)
    assert answer["valid"] is True
    assert answer["broken"] == []
    assert 0.01 < answer["spill_chance"] < 0.7
    assert {doubt["kind"] for doubt in answer["doubts"]} <= {ESTIMATED}
    strict = document(run, "why-not", "--gpu", "mi300x", "--strict", *PAIRS)
    assert strict["valid"] is not bool(answer["doubts"])
    code, out, _ = run("why-not", "--gpu", "mi300x", *PAIRS)
    assert code == 0
    assert "constrint verify --gpu mi300x --set tile_m=256" in out


def test_a_certain_rule_says_that_it_is_certain(run: Any) -> None:
    broken = [pair for pair in PAIRS if not pair.startswith("tile_k")]
    answer = document(run, "why-not", "--gpu", "mi300x", *broken, "tile_k=128")
    assert answer["valid"] is False
    assert [(rule["name"], rule["kind"]) for rule in answer["broken"]] == [("smem", CERTAIN)]


def test_explain_says_the_kind_of_every_rule_and_estimates_leave_nothing_out(run: Any) -> None:
    result = document(run, "explain", "--gpu", "mi300x", "--set", "tile_m=256,128")["results"][0]
    by_name = {rule["name"]: rule for rule in result["rules"]}
    assert {rule["kind"] for rule in result["rules"]} == {CERTAIN, REDUNDANT, ESTIMATED, "yours"}
    assert by_name["set_tile_m"]["kind"] == "yours"
    assert all(rule["prunes"] is (rule["kind"] != ESTIMATED) for rule in result["rules"])
    assert {name for name, rule in by_name.items() if rule["kind"] == ESTIMATED} == {"spills", "waves_per_eu"}
    assert "%" in by_name["spills"]["because"]  # the error band
    strict = document(run, "explain", "--gpu", "mi300x", "--set", "tile_m=256,128", "--strict")["results"][0]
    kept_out = result["num_valid"] - strict["num_valid"]
    assert kept_out >= by_name["spills"]["removes_only"] > 0
    code, out, _ = run("explain", "--gpu", "mi300x")
    assert code == 0
    assert "estimated rules, which rank and leave nothing out" in out
    assert "certain: what breaks it cannot run" in out


def test_the_ranking_states_chances_errors_and_rates(run: Any) -> None:
    (ranking,) = document(run, "solve", "--gpu", "mi300x", "--top", 40)["results"]
    for candidate in ranking["candidates"]:
        assert 0 <= candidate["spill_chance"] <= 1
        assert 0 < candidate["registers_error_percent"] < 100
        assert candidate["compiled"] is None
        assert candidate["op_per_s"] == pytest.approx(2 * 4096**3 / candidate["predicted_s"])
        assert candidate["parts_s"]["spilling"] <= candidate["predicted_s"] * candidate["spill_chance"]
    times = [candidate["predicted_s"] for candidate in ranking["candidates"]]
    assert all(later >= 0.999 * sooner for sooner, later in pairwise(times))
    _, out, _ = run("solve", "--gpu", "mi300x", "--top", 2)
    assert "TFLOP/s" in out
    assert "spill" in out
    _, out, _ = run("solve", "--gpu", "mi300x", "--top", 2, "--m", 16)
    assert "GB/s" in out
    assert "TFLOP/s" not in out.partition("best:")[0]


def test_strict_prunes_by_estimates_and_is_for_kernels(run: Any) -> None:
    counts = [
        document(run, "count", "--gpu", "a100", *more)["results"][-1]["num_valid"] for more in ((), ("--strict",))
    ]
    assert counts[0] > counts[1] > 0
    gpu, workload = load_gpu("a100"), Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, "bf16")
    for candidate in rank(load_kernel("gemm"), gpu, workload, top=200, strict=True).candidates:
        if candidate.config:  # the library has none
            assert candidate.resources is not None
            assert candidate.resources.spill_chance <= 0.11
    code, _, err = run("count", "--problem", "examples/tiles.constrint", "--strict")
    assert code == 2
    assert "takes no --strict" in err


def test_the_hint_below_a_table_repeats_what_was_asked_and_can_be_pasted(run: Any) -> None:
    asked = ["--gpu", "h200", "--kernel", "lstm", "--head-dim", 128, "--dtype", "fp16", "--where", "num_warps <= 4"]
    code, out, _ = run("solve", *asked, "--top", 1)
    assert code == 0
    hint = next(line for line in out.splitlines() if "constrint verify" in line)
    words = shlex.split(hint.partition(": ")[2])
    assert words == ["constrint", "verify", *map(str, asked), "--top", "1"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["solve", "--compile"], ["solve", "--compile=10"]),
        (["solve", "--compile", "5"], ["solve", "--compile=5"]),
        (["solve", "--compile=7", "--json"], ["solve", "--compile=7", "--json"]),
        (["solve", "--compile", "--json"], ["solve", "--compile=10", "--json"]),
        (["solve", "--compile", "-3"], ["solve", "--compile=-3"]),
    ],
)
def test_compile_may_stand_without_a_number(given: list[str], meant: list[str]) -> None:
    assert with_counts(given, {"--compile": 10}) == meant


@pytest.mark.parametrize(
    "more", [["--compile=0", "--all"], ["--compile=5", "--all"], ["--compile=-1"], ["--compile=2000"]]
)
def test_bad_requests_to_compile_say_why(run: Any, more: list[str]) -> None:
    code, _, err = run("solve", "--gpu", "h200", *more)
    if more[0] == "--compile=0":
        assert code == 0
    else:
        assert code == 2
        assert "--compile" in err


POINTER = ("--kernel", "gemm.pointer")
WORKLOAD = Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, "bf16")


@pytest.fixture
def kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder for what is kept."""
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))


def compiled(spill_bytes: int = 0, smem_bytes: int = 65536, registers: int = 240) -> CompiledKernel:
    return CompiledKernel("gfx942", "3.9.0", smem_bytes, registers, 128, spill_bytes, "v_mfma_f32_16x16x16_bf16")


@pytest.mark.usefixtures("kept")
def test_what_was_compiled_is_looked_up_for_sizes_that_make_no_difference() -> None:
    gpu, spec = load_gpu("mi300x"), load_spec("gemm.pointer")
    assert recall(gpu, spec, WORKLOAD, EXPERTS) is None
    keep(gpu, spec, WORKLOAD, EXPERTS, compiled())
    assert recall(gpu, spec, WORKLOAD, EXPERTS) == compiled()
    assert recall(gpu, spec, Workload("gemm", {"m": 8192, "n": 512, "k": 64}, "bf16"), EXPERTS) == compiled()
    assert recall(gpu, spec, Workload("gemm", {"m": 8192, "n": 500, "k": 64}, "bf16"), EXPERTS) is None
    assert recall(gpu, spec, Workload("gemm", WORKLOAD.sizes, "fp16"), EXPERTS) is None
    assert recall(gpu, spec, WORKLOAD, EXPERTS | {"kpack": 2}) is None
    assert recall(gpu, spec, WORKLOAD, EXPERTS, ["gelu"]) is None
    assert recall(load_gpu("mi325x"), spec, WORKLOAD, EXPERTS) is None
    keep(gpu, spec, WORKLOAD, EXPERTS, "the compiler refuses it")
    assert compile_cached(spec, gpu, WORKLOAD, EXPERTS) == "the compiler refuses it"


def test_rows_that_may_not_fit_are_printed_after_all_that_fit(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # With Triton 3.8 none of these tiles fits.
    monkeypatch.setattr("constrint.kernels.gemm.descriptor.spec.triton_version", lambda: "3.9")
    limit = load_gpu("b200").sm.max_smem_bytes_per_block
    kernel = ("--kernel", "gemm.descriptor", "--set", "tile_m=256", "--set", "tile_n=256")
    sizes = ("--m", 4096, "--n", 4096, "--k", 4096, "--dtype", "int8")
    (found,) = document(run, "solve", "--gpu", "b200", *kernel, *sizes, "--top", 2000)["results"]
    exceeds = [row["smem_bytes_per_block"] > limit for row in found["candidates"]]
    assert exceeds == sorted(exceeds)
    assert any(exceeds)
    assert not exceeds[0]


@pytest.mark.usefixtures("kept")
def test_facts_take_the_place_of_estimates_and_the_order_follows(run: Any) -> None:
    """Without a compiler: what is on disk is enough."""
    gpu, spec = load_gpu("mi300x"), load_spec("gemm.pointer")
    first = rank(spec, gpu, WORKLOAD, top=4).candidates
    spilling, too_large, refused, clean = first
    keep(gpu, spec, WORKLOAD, spilling.config, compiled(spill_bytes=96))
    keep(gpu, spec, WORKLOAD, too_large.config, compiled(smem_bytes=70_000))
    keep(gpu, spec, WORKLOAD, refused.config, "triton 3.9.0 refuses the kernel: no")
    keep(gpu, spec, WORKLOAD, clean.config, compiled(smem_bytes=24_576, registers=100))
    ranking = rank(spec, gpu, WORKLOAD, top=4, compile=4)
    assert [c.config for c in ranking.candidates[:2]] == [clean.config, spilling.config]
    assert [c.problem[:6] for c in ranking.candidates[:2]] == ["", "spills"]
    # What cannot run comes last, in the order that it had.
    cannot = {c.problem[:6]: c.config for c in ranking.candidates[2:]}
    assert cannot == {"triton": refused.config, "takes ": too_large.config}
    known = ranking.candidates[0].resources
    assert known is not None
    assert (known.registers_per_thread, known.spill_chance) == (100, 0.0)
    assert known.compiled == compiled(smem_bytes=24_576, registers=100)
    second = ranking.candidates[1]
    assert second.cost.parts_s["spilling"] > 0
    (found,) = document(run, "solve", "--gpu", "mi300x", *POINTER, "--top", 4, "--compile=4")["results"]
    assert found["figures"] == "compiled"
    assert [c["problem"] for c in found["candidates"]] == [c.problem for c in ranking.candidates]
    assert found["candidates"][0]["compiled"]["registers_per_thread"] == 100
    _, out, _ = run("solve", "--gpu", "mi300x", *POINTER, "--top", 4, "--compile=4")
    assert "row 2 spills 96 bytes a thread" in out
    code, out, _ = run("verify", "--gpu", "mi300x", "--top", 4)
    assert code == 1
    assert "row 2: spills 96 bytes a thread" in out
    assert "3 with a problem" in out
    code, _, _ = run("verify", "--gpu", "mi300x", "--top", 4, "--where", "num_stages < 1")
    assert code == 1


@needs_triton
@pytest.mark.usefixtures("kept")
def test_verify_compiles_whatever_is_set_and_says_what_is_wrong(run: Any) -> None:
    code, out, _ = run("verify", "--gpu", "mi300x", *SET, "--json")
    (result,) = json.loads(out)["results"]
    assert code == 0
    assert result["problem"] == ""
    assert result["config"] == EXPERTS
    assert result["compiled"]["spill_bytes_per_thread"] == 0
    assert result["compiled"]["registers_per_thread"] <= 256
    # Twice the depth takes twice the LDS that there is.
    beyond = [word if word != "tile_k=64" else "tile_k=128" for word in SET]
    code, out, _ = run("verify", "--gpu", "mi300x", *beyond)
    assert code == 1
    assert "breaks smem: 131072 <= 65536 is false" in out
    assert "takes 131,072 bytes of LDS" in out
