"""`constrint why` and `constrint.why`: the decision, its evidence, what was passed over, and refused configurations."""

from __future__ import annotations

import json
from typing import Any

import pytest

import constrint
from constrint.choose import decide
from constrint.choose.rendering import WIDTH
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import request_of
from tests.support.gemm import product

PRODUCT = ("--gpu", "a100", "--m", "512", "--n", "1024", "--k", "2048", "--dtype", "bf16")
VALID = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_warps": 4, "num_stages": 3, "split_k": 1, "persistent": 0}


def test_it_says_what_runs_on_which_evidence_and_what_was_passed_over(run: Any) -> None:
    code, out, _ = run("why", "matmul", *PRODUCT, "--activation", "gelu", "--bias")
    assert code == 0
    lines = out.splitlines()
    decision = decide(request_of(load_gpu("a100"), product(512, 1024, 2048, bias=1)))
    assert lines[0].startswith("decision    gemm m=512 n=1024 k=2048 bias=1 bf16 on A100")
    assert out.startswith(lines[0])
    assert f"runs        {decision.kernel}" in out
    for label in ("evidence", "error", "answered", "passed over", "force"):
        assert any(line.startswith(label) for line in lines), label
    assert "gemm.library" in out
    assert "no epilogue that ends in this activation" in " ".join(out.split())
    assert 'kernel="' in out
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    "words",
    [
        ("--gpu", "a100", "lstm", "--inference"),
        ("--inference", "lstm", "--gpu=a100"),
        ("--dtype", "fp16", "--inference", "--gpu", "a100", "lstm"),
    ],
)
def test_options_may_come_before_the_operation(run: Any, words: tuple[str, ...]) -> None:
    code, out, err = run("why", *words)
    assert code == 0, err
    assert out.startswith("decision    lstm ")


@pytest.mark.parametrize("words", [("matmul", "lstm"), ("matmul", "--kernel", "lstm")])
def test_one_operation_is_named(run: Any, words: tuple[str, ...]) -> None:
    code, _, err = run("why", "--gpu", "a100", *words)
    assert code == 2
    assert "unexpected extra argument" in err


def test_json_has_the_same(run: Any) -> None:
    code, out, _ = run("why", "matmul", *PRODUCT, "--json")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "constrint.why/1")
    decision = decide(request_of(load_gpu("a100"), product(512, 1024, 2048)))
    assert document["program"]["name"] == decision.program.name
    assert document["program"]["seconds"] == decision.seconds
    assert document["program"]["steps"][0]["config"] == dict(decision.config)
    refused = {program["name"]: program["refusal"] for program in document["passed_over"] if program["refusal"]}
    assert "sm_80 has no TMA unit" in refused["gemm.descriptor"]


def test_a_library_that_others_measured_says_so_with_its_source_and_error(run: Any) -> None:
    """On a GPU without a table of the project's own; the other GPUs say that nothing was measured."""
    code, out, _ = run("why", "matmul", *PRODUCT, "--json")
    document = json.loads(out)
    library = next(p for p in (document["program"], *document["passed_over"]) if p["name"] == "gemm.library")
    assert (code, library["evidence"]) == (0, "measured elsewhere")
    assert library["table"] == "gemm/library/elsewhere/a100-sxm4-80gb.csv"
    assert "cuBLAS" in library["note"]
    assert "aiconfigurator-core 0.12.0" in library["note"]
    assert 0.0 < library["band"]["median"] < library["band"]["nine_in_ten"] < 0.3
    code, out, _ = run("why", "matmul", "--gpu", "a30", "--json")
    refused = {program["name"]: program["refusal"] for program in json.loads(out)["passed_over"]}
    assert "was not measured on A30" in refused["gemm.library"]


def test_one_implementation_and_kernels_of_files(run: Any) -> None:
    code, out, _ = run("why", "gemm.pointer", *PRODUCT)
    assert code == 0
    assert "runs        gemm.pointer" in out
    code, out, _ = run("why", "--kernel", "examples/softmax/softmax.py:SPEC", "--gpu", "h200")
    assert "examples/softmax/softmax.py:SPEC lists" in " ".join(out.partition("force")[2].split()), "how it is named"
    assert code == 0
    assert "runs        softmax" in out
    assert "passed over softmax" in out


def test_a_named_configuration_runs_or_is_refused_with_every_broken_rule(run: Any) -> None:
    sizes: Any = {"m": 512, "n": 1024, "k": 2048}
    decision = constrint.why("gemm.pointer", "a100", dtype="bf16", config={**VALID, "group_m": 4}, **sizes)
    assert decision.config == {**VALID, "group_m": 4}
    assert decision.seconds > 0
    broken = r"not valid on A100(?s:.*)because one block fits the register file(?s:.*)fits if tile_m <= 64"
    wide = {**VALID, "group_m": 4, "tile_m": 256, "tile_n": 256}
    with pytest.raises(UsageError, match=broken):
        constrint.why("gemm.pointer", "a100", dtype="bf16", config=wide, **sizes)
    with pytest.raises(UsageError, match=r"has the parameters tile_m(?s:.*)missing group_m; unknown tile_q"):
        constrint.why("gemm.pointer", "a100", config={**VALID, "tile_q": 1}, **sizes)
    code, _, err = run("why", "gemm.pointer", *PRODUCT, "--config", "tile_m=64", "--config", "tile_n")
    assert code == 2
    assert "NAME=VALUE" in err
    with pytest.raises(UsageError, match="needs the implementation"):
        constrint.why("lstm-backward", "a100", config={"num_warps": 4})


def test_what_it_cannot_answer(run: Any) -> None:
    assert run("why", "matmul")[0] == 2
    with pytest.raises(UnknownNameError, match="relux"):
        constrint.why("matmul", "a100", activation="relux")
    with pytest.raises(UsageError, match="takes no activation"):
        constrint.why("lstm", "a100", activation="relu")


def test_a_layer_is_one_request_of_both_directions() -> None:
    decision = constrint.why("lstm", "h200", batch=16, head_dim=512, heads=1)
    assert [step.role for step in decision.program.steps] == ["forward", "backward"]
    assert [step.role for step in constrint.why("lstm", "h200", directions=("forward",)).program.steps] == ["forward"]
