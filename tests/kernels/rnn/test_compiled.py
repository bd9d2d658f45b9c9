"""The recurrent kernels compiled for six targets without a GPU, and how often they are compiled on one."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from benchmarks.resources.rnn import SAMPLE, TARGETS
from constrint.choose import REGISTERS
from constrint.cli.limits import HEAD_DIMS
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.policy import MOST_NEXT
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.spec import FusedSpec, workload_of
from constrint.kernels.rnn.triton.spec import REGISTER_MODELS
from constrint.model import Var
from constrint.select.toolchain import rules_of, triton_version
from tests.support.compiled import Compiler
from tests.support.decisions import begin_anew, choose_kernel, refuse_step
from tests.support.fresh import check_fair_rows, check_most_fit, compiled_rows, fresh_rows, seed_of
from tests.support.needs import needs_gpu, needs_triton


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "instruction", "direction"),
    # Either direction of one GPU for each instruction, one of its neighbours.
    [
        ("a100-sxm4-80gb", "mma.sync m16n8k16", "forward"),
        ("h200", "mma.sync m16n8k16", "forward"),
        ("h200", "mma.sync m16n8k16", "backward"),
        ("b200", "mma.sync m16n8k16", "backward"),
        ("mi210", "v_mfma_f32_16x16x16", "backward"),
        ("mi300x", "v_mfma_f32_16x16x16", "forward"),
        ("mi300x", "v_mfma_f32_16x16x16", "backward"),
        ("mi355x", "v_mfma_f32_16x16x32", "forward"),
        ("mi355x", "v_mfma_f32_16x16x32", "backward"),
    ],
)
def test_what_is_launched_compiles_clean_within_what_was_predicted(
    name: str, instruction: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice that spills is passed over before its launch, as the library does it: at most three times."""
    begin_anew(monkeypatch)
    gpu = load_gpu(name)
    workload = workload_of("lstm", (16, 1024, 12, 64), "bf16", direction)
    spec = load_spec(f"{workload.operation}.triton")
    choice = choose_kernel(spec, gpu, workload)
    for _ in range(1 + MOST_NEXT):
        config = choice.config
        compiled = spec.compile(gpu, workload, config)
        if not compiled.spill_bytes:
            break
        choice = refuse_step(choice, REGISTERS, compiled.spill_bytes, 0)
    use = spec.use(gpu, workload, {name: Var(name) for name in config})
    assert use is not None
    assert compiled.instruction.startswith(instruction)
    stated = use.smem_stated.value(config)
    assert use.smem_needed.value(config) <= compiled.smem_bytes <= stated <= gpu.sm.max_smem_bytes_per_block
    if not (rules_of(triton_version()).reads_weights_again and gpu.traits.has_async_copies):
        assert compiled.smem_bytes == stated
    assert compiled.spill_bytes == 0
    # One estimate in ten is off by more than its band.
    assert use.spilling is not None
    band = use.spilling.error_percent
    percent = band if isinstance(band, int) else band.value(config)
    assert percent <= 40
    estimate = use.registers_per_thread.value(config)
    assert compiled.registers_per_thread == pytest.approx(estimate, rel=1.5 * percent / 100)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dim", "direction"),
    [("h200", 768, "forward"), ("h200", 768, "backward"), ("mi300x", 768, "backward"), ("b200", 256, "forward")],
)
def test_a_split_head_compiles_with_its_barrier(name: str, dim: int, direction: str) -> None:
    gpu, workload = load_gpu(name), workload_of("lstm", (16, 1024, 1, dim), "bf16", direction)
    spec = load_spec(f"{workload.operation}.triton")
    config = choose_kernel(spec, gpu, workload).config
    assert config["row_split"] > 1
    compiled = spec.compile(gpu, workload, config)
    assert compiled.smem_bytes <= gpu.sm.max_smem_bytes_per_block
    assert compiled.spill_bytes <= 32


#: Tests that a target's fresh sample is spread over, so that processes share it out.
PARTS = 2
NUM_FAIR = 6
#: Of the part of a test, those that are compiled.
FEW = 1
#: Files, below the package, that decide what is compiled and what is said of it.
SOURCES = (
    *(f"kernels/rnn/{name}.py" for name in ("cells", "equations", "generated/*", "spec")),
    *(f"kernels/rnn/triton/{name}.py" for name in ("kernel*", "launch", "layer", "spec")),
    "select/limits.py",
)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS)
def test_fresh_configs_are_excluded_if_they_cannot_run_and_spill_as_often_as_is_said(
    compiler: Compiler, target: str, part: int
) -> None:
    """Configurations of layers drawn at random, valid and excluded ones alike: others whenever the rules change."""
    drawn = fresh_rows(SAMPLE, target, NUM_FAIR, seed_of(SOURCES, REGISTER_MODELS))
    check_most_fit(SAMPLE, drawn)
    rows = list(compiled_rows(compiler, SAMPLE, drawn[part::PARTS][:FEW]))
    check_fair_rows(SAMPLE, rows)
    for row in rows:
        if not row["error"]:
            gpu, spec, workload, config = SAMPLE.request(row)
            use = spec.use(gpu, workload, {name: Var(name) for name in config})
            assert use is not None
            assert use.smem_stated.value(config) >= int(row["smem_bytes"]), row


@needs_triton
def test_sizes_of_the_batch_and_of_time_are_no_part_of_a_kernel() -> None:
    """Triton compiles again for a size of 1, and for one that is a multiple of 16, unless it is told not to."""
    from constrint.kernels.rnn.triton.kernel_backward import backward_kernel
    from constrint.kernels.rnn.triton.kernel_forward import forward_kernel

    for kernel in (forward_kernel, backward_kernel):
        free = {p.name for p in kernel.params if p.do_not_specialize}
        assert {"batch", "time", "num_heads", "first_group"} <= free


@pytest.mark.gpu
@needs_gpu
def test_batch_sizes_1_to_64_compile_each_kernel_once_per_plan() -> None:
    import torch

    from constrint.flashrnn import rnn
    from constrint.kernels.rnn import plans as known_plans
    from constrint.kernels.rnn.triton.kernel_backward import backward_kernel
    from constrint.kernels.rnn.triton.kernel_forward import forward_kernel

    for thread in list(known_plans._AHEAD):
        thread.join()  # What earlier layers still compile is not counted.

    def compiled() -> list[int]:
        return [len(k.device_caches[torch.cuda.current_device()][0]) for k in (forward_kernel, backward_kernel)]

    def run(batch: int, time: int) -> None:
        wx = torch.randn((batch, time, 4, 3, 48), device="cuda", dtype=torch.bfloat16)
        r = torch.randn((4, 3, 48, 48), device="cuda", dtype=torch.bfloat16) / 7
        states, _ = rnn(wx.requires_grad_(), r, backend="triton", recompute=False)
        states[0].sum().backward()  # type: ignore[no-untyped-call]

    before = compiled()
    for batch in range(1, 65):
        run(batch, 1 + batch % 5)
    spec = load_spec("lstm.triton")
    assert isinstance(spec, FusedSpec)
    plans = len({spec.planned_batch(batch) for batch in range(1, 65)})
    assert all(after - start <= plans for start, after in zip(before, compiled(), strict=True))


def run_command(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    from constrint.cli.app import main

    monkeypatch.setattr(sys, "argv", ["constrint", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


SIZES = ("--heads", "12", "--head-dim", "64", "--batch", "16", "--time", "1024", "--dtype", "bf16")


@pytest.mark.parametrize("kernel", ["lstm", "gru-backward", "slstm", "elman-backward"])
def test_solve_ranks_recurrent_kernels_for_a_named_gpu(
    kernel: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run_command(
        "solve", "--gpu", "mi300x", "--kernel", kernel, *SIZES, "--top", "3", "--json", monkeypatch=monkeypatch
    )
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["sizes"] == {"batch": 16, "time": 1024, "heads": 12, "head_dim": 64}
    assert result["figures"] == "modelled"
    assert len(result["candidates"]) == 3
    assert result["candidates"][0]["config"]["row_split"] >= 1


def test_other_commands_take_recurrent_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--gpu", "h200", "--kernel", "lstm", *SIZES)
    assert not run_command("count", *chosen, monkeypatch=monkeypatch)
    assert not run_command("sample", *chosen, "--count", "2", "--seed", "1", monkeypatch=monkeypatch)
    assert not run_command("explain", *chosen, monkeypatch=monkeypatch)
    assert "every column of a head belongs to one program" in capsys.readouterr().out
    config = "tile_batch=8 tile_out=64 row_split=1 num_warps=16 num_stages=3 split_depth=0 recompute=0"
    assert not run_command("why-not", *chosen, *config.split(), monkeypatch=monkeypatch)
    assert "fits if num_warps <= 8" in capsys.readouterr().out


def test_limits_says_how_large_a_head_may_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run_command("limits", "--gpu", "h200", monkeypatch=monkeypatch)
    printed = dict(re.findall(r"head_dim, bf16, (\w+) +([\d,]+)", capsys.readouterr().out))
    largest = {direction: int(size.replace(",", "")) for direction, size in printed.items()}
    # Forward as far as the kernels go; backward as far as no estimate of registers speaks against.
    assert largest["forward"] == 8192 == HEAD_DIMS[0]
    assert 4096 <= largest["backward"] < 8192


@needs_triton
@pytest.mark.slow
def test_verify_compiles_the_first_choices(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run_command(
        "verify", "--gpu", "h200", "--kernel", "gru", "--top", "1", "--json", monkeypatch=monkeypatch
    )
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["compiled"]["smem_bytes_per_block"] <= result["modelled"]["smem_bytes_per_block"]
    assert result["compiled"]["blocks_per_sm"] >= 1
