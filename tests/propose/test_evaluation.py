"""Suggestions are scored as they were written: the committed set exactly, and by the rubric's definitions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml

import constrint
from constrint.errors import UnknownNameError, UsageError
from constrint.propose import GateSettings, find_sandbox, find_task
from constrint.propose.evaluation import Evaluation, PromptScore, Suggestion, evaluate
from constrint.propose.rubric import LEVELS, bootstrap, level_of, pass_at, wilson
from constrint.propose.score import Examined
from constrint.tune.search.llm.records import GateResult
from tests.support.forked_worker import ForkedWorker
from tests.support.needs import needs_gpu, needs_torch, needs_triton

SET = Path(__file__).parents[2] / "examples" / "suggestions"
EXPECTED = yaml.safe_load((SET / "expected.yaml").read_text())
KERNELS = ("axpy", "gemv", "gemm", "spmv", "jacobi", "cg")
#: Checked calls of a suggestion here; the command makes `values.ENOUGH_CALLS` for rare faults, which none here has.
CALLS = 8


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers that start at once, without a sandbox (`test_sandbox.py` is about it), and fewer repeated calls."""
    monkeypatch.setattr("constrint.propose.examination.SandboxWorker", ForkedWorker)
    monkeypatch.setattr("constrint.propose.examination.ENOUGH_CALLS", CALLS)
    return iter(())


def outcome(one: Suggestion) -> str:
    if one.refused_by:
        return f"fails {one.refused_by}"
    return "right" if one.is_right else "compiled"


def test_every_suggestion_of_the_set_is_labelled_and_every_kernel_has_a_right_a_wrong_and_a_cheating_one() -> None:
    files = {str(path.relative_to(SET)) for path in SET.glob("*/*/*")}
    assert files == set(EXPECTED)
    for kernel in KERNELS:
        for model in ("triton", "cuda"):
            written = {label["written_as"] for path, label in EXPECTED.items() if path.startswith(f"{kernel}/{model}/")}
            assert written == {"correct", "wrong", "cheat"}, (kernel, model)
    assert all((label["gpu"] == "right") <= (label["written_as"] == "correct") for label in EXPECTED.values())


@needs_triton
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("model", ["triton", "cuda"])
def test_the_set_is_scored_exactly_without_a_gpu(model: str) -> None:
    if model == "cuda":
        pytest.importorskip("cuda.bindings", reason="NVRTC is not installed (the extra [cuda])")
    settings = GateSettings(allow_unsandboxed=isinstance(find_sandbox(), str), device="cpu", seed=5)
    found = evaluate(SET, model=model, gpu="h200", settings=settings)
    assert [prompt.kernel for prompt in found.prompts] == list(KERNELS)
    outcomes = {f"{p.kernel}/{model}/{one.name}": outcome(one) for p in found.prompts for one in p.suggestions}
    assert outcomes == {path: label["cpu"] for path, label in EXPECTED.items() if f"/{model}/" in path}
    scores = {p.kernel: (*(level.score for level in p.levels), *p.num_right) for p in found.prompts}
    if model == "triton":
        # The folder of axpy has a suggestion for Numba, too.
        assert scores == dict.fromkeys(KERNELS, (0.5, 0.5, 1, 1)) | {"axpy": (0.25, 0.25, 1, 1)}
        assert found.mean(lambda one: one.pass_at(1)).least == pytest.approx((5 / 3 + 1 / 4) / 6)
    else:
        at_most = {
            kernel: sum(
                label["cpu"] == "compiled" for path, label in EXPECTED.items() if path.startswith(f"{kernel}/cuda/")
            )
            for kernel in KERNELS
        }
        assert scores == {kernel: (0.0, 0.5, 0, at_most[kernel]) for kernel in KERNELS}
    assert all(prompt.fast(1.0).least is None for prompt in found.prompts)
    assert "is not here" in found.conditions


@pytest.mark.gpu
@needs_gpu
@needs_triton
@pytest.mark.parametrize("kernel", KERNELS)
def test_suggestions_in_cuda_are_scored_exactly_on_a_gpu(kernel: str) -> None:
    settings = GateSettings(allow_unsandboxed=isinstance(find_sandbox(), str))
    found = evaluate(SET / kernel / "cuda", kernel=kernel, model="cuda", settings=settings)
    (prompt,) = found.prompts
    outcomes = {f"{kernel}/cuda/{one.name}": outcome(one) for one in prompt.suggestions}
    assert outcomes == {path: label["gpu"] for path, label in EXPECTED.items() if path.startswith(f"{kernel}/cuda/")}
    assert prompt.levels[0] == prompt.levels[1]
    assert prompt.levels[0].name == "learner"
    assert found.has_gpu
    speed_ups = [one.speed_up for one in prompt.suggestions if one.is_right]
    assert len(speed_ups) == 1
    assert speed_ups[0] is not None


@needs_torch
@pytest.mark.parametrize("kernel", KERNELS)
def test_plain_pytorch_is_within_the_bound_of_each_task(kernel: str) -> None:
    """On every style of values: else no candidate could pass; zeroes are not, or every candidate would."""
    from constrint.propose.tolerance import error_over_bound
    from constrint.propose.values import input_sets

    task = find_task(kernel)
    for inputs in input_sets(task.extents, task.dtypes, seed=7):
        values = task.draw(inputs.sizes, inputs.dtype, seed=inputs.seed, style=inputs.style)
        expected = task.reference({n: v.double() if v.is_floating_point() else v for n, v in values.items()})
        outputs = task.outputs(values)
        task.plain_into(*outputs.values(), *values.values())
        for name, output in outputs.items():
            assert error_over_bound(output, expected[name], task.num_terms(inputs.sizes)) <= 1, inputs.text
            if inputs.style == "plain":
                assert error_over_bound(output * 0, expected[name], task.num_terms(inputs.sizes)) > 100
    assert task.moved_bytes(task.timed_sizes, "fp32") > 1 << 27
    assert task.flops(task.timed_sizes) > 0


@needs_torch
def test_conjugate_gradients_of_a_zero_right_hand_side_are_zero_and_the_matrices_are_as_stated() -> None:
    import torch

    task = find_task("cg")
    values = task.draw({"s": 6, "n": 9}, "fp32", seed=1, style="equal")
    assert not values["b"][0].any()
    assert not task.plain(values["a"], values["b"])[0].any()
    assert torch.equal(values["a"], values["a"].mT)
    eigenvalues = torch.linalg.eigvalsh(values["a"].double())
    assert (eigenvalues[:, -1] <= 5 / 3 * eigenvalues[:, 0]).all()


def examined(*gates: tuple[str, bool], speed_up: float | None = None) -> Examined:
    results = tuple(GateResult(gate=gate, passed=passed, kernel="axpy") for gate, passed in gates)  # type: ignore[arg-type]
    return Examined(results, speed_up)


SOUND = tuple((gate, True) for gate in ("legal", "compiles", "right", "honest", "fast"))
RIGHT = Suggestion("right.py", "triton", examined(*SOUND, speed_up=1.5))
SLOW = Suggestion("slow.py", "triton", examined(*SOUND, speed_up=0.8))
WRONG = Suggestion("wrong.py", "triton", examined(*SOUND[:2], ("right", False)))
DISHONEST = Suggestion("cheat.py", "triton", examined(*SOUND[:3], ("honest", False)))
OPEN = Suggestion("open.cu", "cuda", examined(*SOUND[:2]))
OTHER = Suggestion("other.jl", "other", None)


def test_the_levels_are_those_of_the_study() -> None:
    for suggestions, name in (
        ([], "non-knowledge"),
        ([WRONG, DISHONEST], "non-knowledge"),
        ([OTHER], "non-knowledge"),
        ([RIGHT, OTHER], "novice"),
        ([RIGHT, WRONG, OTHER], "novice"),
        ([RIGHT, WRONG], "learner"),
        ([RIGHT, SLOW], "proficient"),
        ([RIGHT], "expert"),
    ):
        least, most = PromptScore("axpy", "triton", tuple(suggestions)).levels
        assert least == most
        assert least.name == name, suggestions
    assert [level.score for level in LEVELS] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert level_of(1, 1, 0).name == "expert"
    least, most = PromptScore("axpy", "cuda", (OPEN, OPEN)).levels
    assert (least.name, most.name) == ("non-knowledge", "proficient")


def test_pass_at_k_is_the_share_of_all_choices_of_k_with_a_right_one() -> None:
    for number, right, k in ((10, 3, 1), (10, 3, 4), (7, 2, 5), (10, 1, 10), (5, 0, 2)):
        choices = list(combinations(range(number), k))
        share = sum(any(one < right for one in chosen) for chosen in choices) / len(choices)
        assert pass_at(k, number, right) == pytest.approx(share)
    assert pass_at(10, 9, 9) is None


def test_intervals_are_those_of_their_sources() -> None:
    # Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert bootstrap([0.5, 0.5]) == (0.5, 0.5)
    low, high = bootstrap([0.0, 1.0] * 50)
    assert low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.02)
    assert high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.02)


def test_fast_p_counts_what_is_right_and_faster_and_undecided_suggestions_leave_a_range() -> None:
    prompt = PromptScore("axpy", "triton", (RIGHT, SLOW, WRONG, DISHONEST))
    assert [prompt.fast(p).least for p in (0.5, 1.0, 2.0)] == [0.5, 0.25, 0.0]
    assert prompt.pass_at(1).least == 0.5
    assert prompt.pass_at(1).interval == pytest.approx(wilson(2, 4))
    undecided = PromptScore("axpy", "cuda", (OPEN, WRONG))
    spread = undecided.pass_at(1)
    assert (spread.least, spread.most, spread.is_decided) == (0.0, 0.5, False)
    assert spread.interval == (wilson(0, 2)[0], wilson(1, 2)[1])
    assert undecided.fast(1.0).least is None
    both = Evaluation("H200-SXM", True, (prompt, PromptScore("gemv", "triton", (RIGHT,))))
    assert both.mean(lambda one: one.pass_at(1)).least == 0.75
    assert both.mean(lambda one: one.pass_at(10)).least is None
    assert not math.isnan(both.mean(lambda one: one.fast(1.0)).interval[0])


def test_what_is_no_set_of_suggestions_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    with pytest.raises(UsageError, match="the folder is not there"):
        evaluate(folder, kernel="axpy", model="triton")
    folder.mkdir()
    with pytest.raises(UsageError, match="has no files"):
        evaluate(folder, kernel="axpy", model="triton")
    with pytest.raises(UsageError, match="no folder KERNEL/MODEL"):
        evaluate(folder)
    with pytest.raises(UsageError, match="triton, cuda, got 'hip'"):
        evaluate(folder, kernel="axpy", model="hip")
    with pytest.raises(UsageError, match="name the programming model"):
        evaluate(folder, kernel="axpy")
    with pytest.raises(UnknownNameError, match="axpy"):
        evaluate(folder, kernel="axpi", model="triton")
    for number in range(11):
        (folder / f"{number}.py").write_text("import triton")
    with pytest.raises(UsageError, match="11 files; a prompt has at most 10"):
        evaluate(folder, kernel="axpy", model="triton")
    with pytest.raises(UsageError, match="is no folder"):
        evaluate(folder / "0.py", kernel="axpy", model="triton")


@needs_triton
def test_a_file_that_is_no_source_is_a_suggestion_that_is_not_legal(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"import triton\n\xff\xfe")
    (tmp_path / "empty.py").write_text("")
    with (tmp_path / "huge.py").open("w") as file:
        file.truncate(1 << 32)
    (tmp_path / "\x1b[31mred\n.py").write_text("import triton\n")
    (tmp_path / "numba.py").write_text("import numba\n")
    (tmp_path / ".hidden.py").write_text("import triton\n")
    (tmp_path / "folder").mkdir()
    found = constrint.evaluate(tmp_path, kernel="axpy", model="triton", gpu="h200")
    told = {one.name: (one.refused_by, one.message) for one in found.prompts[0].suggestions}
    assert told["bytes.py"] == ("legal", "the file is no UTF-8 text.")
    assert told["empty.py"] == ("legal", "the file is empty.")
    assert told["huge.py"][1].startswith("the file has more than 60,000 bytes")
    assert told["?[31mred .py"][0] == "legal"
    assert told["numba.py"][0] == "model"
    assert len(told) == 5
    assert found.prompts[0].levels[1].score == 0
