"""The program that times `matmul` as it is used: what is left to a later run, and what is measured again."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

from benchmarks.gemm.used import cases_of, number_done, parsed, summarise
from benchmarks.gemm.used_cases import KINDS
from benchmarks.gemm.used_hidden import hide
from benchmarks.harness.timing import ATTEMPTS, DISTURBED, quiet
from constrint.choose import decide
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import correction
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.gemm.library import cost, estimate
from constrint.kernels.gemm.library.spec import LIBRARY
from constrint.select import winners
from tests.support.decisions import begin_anew
from tests.support.gemm import product


def test_kinds_take_turns_and_a_run_goes_on_where_another_one_ended() -> None:
    args = parsed(["--kinds", "plain", "fp8", "--count", "3", "--seed", "5"])
    cases = list(cases_of(args))
    assert [case.kind for case in cases] == ["plain", "fp8"] * 3
    assert [case.name for case in cases] == [case.name for case in cases_of(args)], "the same for the same seed"
    names = [(case.kind, case.name) for case in cases]
    assert number_done(cases, set()) == 0
    assert number_done(cases, {names[0], names[1], names[4]}) == 2
    assert number_done(cases, set(names)) == 6
    more = parsed(["--kinds", "plain", "fp8", "--count", "4", "--seed", "5"])
    assert [(case.kind, case.name) for case in cases_of(more)][:6] == names


def test_every_kind_is_drawn() -> None:
    assert len(list(cases_of(parsed(["--count", "2"])))) == 2 * len(KINDS)


def test_a_disturbed_measurement_is_made_again_and_the_quietest_counts() -> None:
    spreads = iter([0.5, 0.2, 0.4, 0.0])

    def figures() -> dict[str, tuple[float, float]]:
        spread = next(spreads)
        return {"torch": (2.0, 0.0), "ours": (1.0, spread)}

    assert DISTURBED < 0.2
    assert quiet(figures)["ours"][1] == 0.2
    assert ATTEMPTS == 3, "of four measurements three were made"
    assert quiet(figures)["ours"][1] == 0.0


def test_a_summary_names_what_was_disturbed(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"kind": "tf32", "case": "4x6704x88", "how": "cold", "outcome": "ok", "program": "a kernel"}
    rows = [
        {**row, "who": "torch", "median_us": "25.7", "spread_us": "38.8", "ratio": "1"},
        {**row, "who": "ours", "median_us": "91.2", "spread_us": "0.5", "ratio": "0.28"},
    ]
    summarise(rows)
    printed = capsys.readouterr().out
    assert "disturbed: tf32 4x6704x88 cold of torch: 25.7 +- 38.8 us" in printed
    assert "of ours" not in printed.replace("ours / ", "")


def test_without_its_tables_a_gpu_is_decided_by_models_and_the_library_is_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = load_gpu("h100-sxm5")
    for module, names in {cost: ("answering",), correction: ("correctors",), estimate: ("_reference",)}.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(winners, "toolchain", dict)
    begin_anew(monkeypatch)
    request = request_of(gpu, product(4096, 4096, 4096), device="cuda:0")
    assert "interpolated" in decide(request).program_of(LIBRARY).note
    begin_anew(monkeypatch)
    hide(gpu.name)
    hidden = decide(request)
    assert hidden.program.name != LIBRARY
    assert hidden.program.band is None, "its model's error was not measured"
    assert hidden.program_of(LIBRARY).note.startswith("estimated")
    other = decide(request_of(load_gpu("h200"), product(4096, 4096, 4096)))
    assert "interpolated" in other.program_of(LIBRARY).note, "other GPUs keep theirs"
