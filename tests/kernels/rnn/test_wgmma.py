"""The forward kernel for many sequences without a GPU: its space, what is compiled of it, and how a layer takes it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness.table import read_rows
from constrint.choose import Program, Request, decide
from constrint.errors import CompileError, InfeasibleError, UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels import registry
from constrint.kernels.registry import load_kernel, register
from constrint.kernels.rnn.candidates import (
    _first_kernel,
    _TimedLayer,
    choose_for,
    decide_layer,
    implementations_of,
)
from constrint.kernels.rnn.cells import BUILT_IN, CELLS
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, workload_of
from constrint.kernels.rnn.wgmma.spec import SPECS as WGMMA_SPECS
from constrint.kernels.rnn.wgmma.spec import WgmmaBothSpec, WgmmaSpec, fitted, floor_clk
from constrint.kernels.rnn.wgmma_partial.spec import PartialSpec
from constrint.model import Var, const
from constrint.model.constraint import CERTAIN
from constrint.select import Workload, rank
from constrint.select.candidate import Config
from constrint.select.fingerprint import fingerprint_of
from constrint.select.limits import most_registers
from constrint.solve import enumerate_space
from constrint.tune.goals import goals_of
from tests.support.decisions import begin_anew
from tests.support.needs import needs_nvrtc, needs_torch
from tests.support.ranking import check_ranking

SPECS = {spec.operation: spec for spec in WGMMA_SPECS}
H200 = load_gpu("h200")
MEASURED = Path(__file__).parents[3] / "benchmarks/results/h200/rnn_wgmma.csv"
BACKWARD = MEASURED.with_name("rnn_wgmma_backward.csv")
#: Configurations that are compiled.
NUMBER = 5


def layer(dim: int, batch: int = 256, cell: str = "lstm", dtype: str = "bf16", heads: int = 1) -> Workload:
    return workload_of(cell, (batch, 1024, heads, dim), dtype)


def best(workload: Workload) -> Config:
    return choose_for(SPECS[workload.operation], H200, workload, 0).config


@needs_nvrtc
@needs_torch
def test_what_the_space_holds_compiles_within_what_is_predicted() -> None:
    rng = random.Random(1)
    for _ in range(NUMBER):
        workload = layer(
            rng.choice([64, 192, 384, 512, 768]), rng.choice([16, 100, 256]), rng.choice([*BUILT_IN]), heads=2
        )
        spec = SPECS[workload.operation]
        (config,) = enumerate_space(spec.problem(H200, workload)).sample(1, seed=rng.randrange(1000))
        use = spec.use(H200, workload, {name: Var(name) for name in config})
        compiled = spec.compile(H200, workload, dict(config))
        what = f"{workload} {dict(config)}"
        assert compiled.smem_bytes == use.smem_bytes.value(config) <= H200.sm.max_smem_bytes_per_block, what
        assert compiled.registers_per_thread <= most_registers(H200, use.warps).value(config), what
        assert use.least_registers is not None
        if not compiled.spill_bytes:
            assert compiled.registers_per_thread >= use.least_registers.value(config), what


@needs_nvrtc
@needs_torch
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"units": 96}, "columns"),
        ({"depth_groups": 2, "chunk": 1}, "whole_slices"),
        ({"chunk": 5}, "whole_chunks"),
        ({"tile_batch": 256, "depth_groups": 2}, "barriers"),
        ({"window": 4, "chunk": 3, "depth_groups": 1}, "chunks_ahead"),
    ],
)
def test_what_the_rules_refuse_the_source_refuses(change: dict[str, int], rule: str) -> None:
    workload = layer(192)
    spec, config = SPECS["lstm"], {**best(workload), **change}
    broken = [r for r in spec.problem(H200, workload).constraints if not r.holds(config)]
    assert rule in [r.name for r in broken if r.kind == CERTAIN]
    assert all(r.because for r in broken)
    with pytest.raises(CompileError, match="static assertion"):
        spec.compile(H200, workload, config)


@needs_torch
def test_groups_that_are_not_all_resident_are_launched_in_turn() -> None:
    """Ten groups of 32 blocks that wait for each other, of which an H200 holds four at a time."""
    import numpy as np

    from constrint.kernels.launch.cuda import CudaLaunch
    from constrint.kernels.launch.fill import FillLaunch

    workload, spec = layer(768, 600), SPECS["lstm"]
    config = {"units": 24, "tile_batch": 64, "depth_groups": 2, "window": 24, "chunk": 8, "probe": 1, "recompute": 1}
    inputs = spec.inputs(H200, workload)
    fill, *loops = spec.launches(H200, workload, config, inputs, spec.outputs(H200, workload, inputs))
    shape = spec.shape(workload, {name: const(value) for name, value in config.items()})
    assert isinstance(fill, FillLaunch)
    assert fill.num_words * 4 == 10 * shape.ring_bytes.value({})
    assert [loop.grid for loop in loops if isinstance(loop, CudaLaunch)] == [(128,), (128,), (64,)]
    for loop, first in zip(loops, (0, 4, 8), strict=True):
        assert isinstance(loop, CudaLaunch)
        assert loop.is_cooperative
        assert loop.block == (256,)
        assert [int(x) for x in loop.arguments if isinstance(x, np.int32)] == [600, 1024, 1, first]


@pytest.mark.parametrize("cell", BUILT_IN)
def test_the_ranking_is_the_predicted_times_in_order(cell: str) -> None:
    check_ranking(H200, rank(SPECS[cell], H200, layer(256, 64, cell)), {f"{cell}.wgmma": SPECS[cell]})


def test_a_prediction_is_never_below_what_no_code_could_do_without() -> None:
    clock = H200.device.max_clock_hz
    assert clock is not None
    for dim, batch in ((768, 256), (1024, 64), (64, 16)):
        workload = layer(dim, batch)
        for candidate in rank(SPECS["lstm"], H200, workload, top=200).candidates:
            floor = floor_clk(H200, CELLS["lstm"], workload, dict(candidate.config))
            assert candidate.cost.seconds * clock >= workload.sizes["time"] * max(floor.values())


def test_what_cannot_run_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="multiple of 64"):
        choose_for(SPECS["lstm"], H200, Workload("lstm", {**layer(64).sizes, "head_dim": 5000}, "bf16"), 0)
    with pytest.raises(InfeasibleError, match="shared memory"):
        best(layer(2048))
    for gpu, said in (("a100", "no wgmma"), ("mi300x", "no wgmma"), ("b200", "no wgmma")):
        with pytest.raises(UnsupportedError, match=said):
            SPECS["lstm"].check_workload(load_gpu(gpu), layer(64))


def test_heads_are_padded_and_batches_rounded_up() -> None:
    spec = SPECS["lstm"]
    assert spec.planned(layer(650, 100)).sizes == {"batch": 128, "time": 1024, "heads": 1, "head_dim": 704}
    assert [WGMMA_SPECS[0].planned_batch(batch) for batch in (1, 17, 4096)] == [16, 32, 1024]
    assert "650 to 704" in spec.note(layer(650), ("forward", "backward"))
    assert "backward pass is that of cuda" in spec.note(layer(64), ("forward", "backward"))


def test_a_change_of_the_cells_is_a_change_of_the_kernel() -> None:
    names = [path.name for path in SPECS["lstm"].device_files]
    assert {"forward.cu", "exchange.cuh", "instruction.py", "cells.cuh"} <= set(names)
    assert fingerprint_of(SPECS["lstm"]).source


def test_another_implementation_computes_the_backward_pass() -> None:
    """Who asks for it by its name gets its forward pass and the backward pass of the one that it names."""
    specs = implementations_of("lstm")["wgmma"]
    assert specs.keys() == SUFFIX.keys()
    assert [spec.full_name for spec in specs.values()] == ["lstm.wgmma", "lstm-backward.cuda"]
    workload = workload_of("lstm", (256, 1024, 1, 768), "bf16", "backward")
    choice = choose_for(specs["backward"], H200, workload, 0)
    assert choice.kernel == "lstm-backward.cuda"


def test_its_own_backward_pass_has_a_name_of_its_own_with_the_same_forward_pass() -> None:
    specs = implementations_of("lstm")["wgmma_both"]
    assert [specs[direction].full_name for direction in SUFFIX] == ["lstm.wgmma", "lstm-backward.wgmma_both"]
    named = decide(Request("lstm", layer(768), H200, kernel="wgmma_both", directions=tuple(SUFFIX))).program
    assert [step.kernel for step in named.steps] == ["lstm.wgmma", "lstm-backward.wgmma_both"]
    names = [program.name for program in decide_layer(layer(768), H200, ("forward",)).programs]
    assert "wgmma" in names
    assert "wgmma_both" not in names  # without a backward pass it would be the same once more


def test_a_backward_loop_that_nobody_measured_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)
    for spec in (WgmmaBothSpec, PartialSpec):
        monkeypatch.setattr(spec, "uncalibrated", lambda _: "nobody measured it")
    plan = decide_layer(layer(768), H200, ("forward", "backward"))
    for name in ("wgmma_both", "wgmma_partial"):
        assert plan.program_of(name).refusal == "nobody measured it"
    assert plan.program.name == "wgmma"


@pytest.mark.parametrize(("cell", "dim"), [("lstm", 768), ("gru", 512), ("slstm", 256)])
def test_what_the_model_prefers_backward_is_not_expected_to_spill(cell: str, dim: int) -> None:
    workload = workload_of(cell, (256, 1024, 1, dim), "bf16", "backward")
    spec = SPECS[workload.operation]
    config = choose_for(spec, H200, workload, 0).config
    use = spec.use(H200, workload, {name: Var(name) for name in config})
    assert use.registers_per_thread.value(config) <= most_registers(H200, use.warps).value(config)


def test_its_own_backward_pass_is_taken_where_it_is_faster_by_more_than_its_model_is_off() -> None:
    """256 sequences of 768 units: 19.1 ms by partial sums, 21.8 by both of its loops, 26.4 with `cuda`'s (rows.csv)."""
    for projected in (True, False):
        plan = decide_layer(layer(768), H200, ("forward", "backward"), projected=projected)
        assert plan.program.name == "wgmma_partial"
        assert "9% for the error of its model" in plan.program.why
        assert "of cuda" not in plan.program.note
        assert plan.program.table == "wgmma/measured/h200-sxm.csv"
        assert plan.program.band is not None
        assert plan.program.band.median == fitted("partial").left_out.median  # type: ignore[union-attr]
        both, one = (plan.program_of(name).seconds for name in ("wgmma_both", "wgmma"))
        assert both * (1 + fitted("backward").left_out.median) < one  # type: ignore[operator, union-attr]
    assert decide_layer(layer(768, 64), H200).program.name == "cuda"  # 8.8 ms, by partial sums 10.3, both loops 12.6


def test_no_backward_pass_is_taken_that_was_measured_to_be_slower() -> None:
    rows: dict[tuple[str, int, int, str], dict[str, list[float]]] = {}
    for row in read_rows(BACKWARD):
        shape = row["cell"], int(row["dim"]), int(row["batch"]), row["dtype"]
        rows.setdefault(shape, {}).setdefault(row["kind"], []).append(float(row["ms"]))
    assert len(rows) == 12
    for (cell, dim, batch, dtype), ms in rows.items():
        if min(ms["loop"]) > ms["cuda"][0]:
            plan = decide_layer(layer(dim, batch, cell, dtype), H200)
            assert plan.program.name != "wgmma_both", (cell, dim, batch, dtype)


def test_an_error_counts_until_a_loop_is_a_measured_winner() -> None:
    sure = _TimedLayer(Program("sure"), modelled={"backward": 1.0})
    wary = _TimedLayer(Program("wary"), modelled={"backward": 0.95}, errors={"backward": 0.1})
    assert _first_kernel([sure, wary], ()) is sure
    faster = replace(wary, modelled={"backward": 0.9})
    assert _first_kernel([sure, faster], ()) is faster
    tuned = replace(sure, by_loop={"backward": 1.0})
    assert _first_kernel([tuned, faster], {"backward"}) is tuned  # most likely the other one was tuned, too, and lost
    winner = replace(wary, by_loop={"backward": 0.99})
    assert not winner.is_wary
    assert _first_kernel([sure, winner], {"backward"}) is winner
    assert _first_kernel([wary], ()) is wary


def test_a_layer_of_many_sequences_is_left_to_it_with_the_backward_pass_of_another_one() -> None:
    for projected in (True, False):
        plan = decide_layer(layer(1024), H200, ("forward", "backward"), projected=projected)
        assert plan.program.name == "wgmma"
        kernels = {step.role: step.kernel for step in plan.program.steps}
        assert kernels == {"forward": "lstm.wgmma", "backward": "lstm-backward.cuda"}
        assert "the backward pass is that of cuda" in plan.program.note


def test_the_plan_takes_what_was_measured_to_be_faster() -> None:
    """Of public calls on projected inputs, in inference, by each name."""
    compared = 0
    for row in read_rows(MEASURED):
        if row["kind"] == "call":
            times = {name: json.loads(row["more"])[f"{name}_forward_ms"] for name in ("cuda", "wgmma")}
            plan = decide_layer(layer(int(row["dim"]), int(row["batch"])), H200, ("forward",), projected=True)
            assert plan.program.name == min(times, key=lambda name: times[name]), (row["dim"], row["batch"], times)
            compared += 1
    assert compared == 8


def test_what_is_chosen_is_near_the_fastest_loop_that_was_measured() -> None:
    for (dim, batch), times in loops().items():
        choice = choose_for(SPECS["lstm"], H200, layer(dim, batch), 1)
        seconds = times.get(tuple(sorted(choice.config.items())))
        assert choice.seconds == pytest.approx(min(times.values()), rel=0.1), (dim, batch)
        assert seconds is None or seconds <= 1.1 * min(times.values()), (dim, batch)


def loops() -> dict[tuple[int, int], dict[tuple[tuple[str, int], ...], float]]:
    """Seconds of the loops that were measured, by layer and configuration."""
    found: dict[tuple[int, int], dict[tuple[tuple[str, int], ...], float]] = {}
    for row in read_rows(MEASURED):
        if row["kind"] == "loop":
            values = (part.partition("=") for part in row["config"].split())
            config = tuple(sorted((name, int(value)) for name, _, value in values))
            found.setdefault((int(row["dim"]), int(row["batch"])), {})[config] = 1e-3 * float(row["ms"])
    return found


@pytest.mark.parametrize("name", ["a100", "b200", "rtx5090", "v100", "mi300x", "mi355x"])
def test_a_gpu_without_the_instruction_is_planned_for_as_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = load_gpu(name)
    workload = layer(256, 256, dtype="fp16")
    plan = decide_layer(workload, gpu, ("forward", "backward"))
    assert "no wgmma" in plan.program_of("wgmma").refusal
    begin_anew(monkeypatch)
    modules = {operation: tuple(m for m in of if "wgmma" not in m) for operation, of in registry._MODULES.items()}
    monkeypatch.setattr(registry, "_MODULES", modules)
    before = decide_layer(workload, gpu, ("forward", "backward"))
    assert before.programs == tuple(program for program in plan.programs if not program.name.startswith("wgmma"))


def test_without_the_one_that_it_names_it_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone(WgmmaSpec):
        name, backward_by = "alone", "nobody"

    before = {name: list(specs) for name, specs in registry._REGISTERED.items()}
    monkeypatch.setattr(registry, "_REGISTERED", before)
    register(Alone(CELLS["gru"], "forward"))
    assert isinstance(registry.load_spec("gru.alone"), RnnSpec)
    assert "alone" not in implementations_of("gru")


def test_the_figures_of_the_model_are_what_the_fit_gives() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.rnn.fit_wgmma import fit, loops_of

    every = loops_of(H200, read_rows(MEASURED))
    assert fit(every) == pytest.approx(dict(fitted().figures), rel=0.02)
    assert fitted().source.startswith("fitted: `python -m benchmarks.rnn.fit_wgmma benchmarks/results/h200/")


def test_the_backward_figures_and_their_error_are_what_the_fit_gives() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.rnn.fit_wgmma import fit, fits_without, left_out, loops_of

    every, told = loops_of(H200, read_rows(BACKWARD), direction="backward"), fitted("backward")
    assert fit(every, "backward") == pytest.approx(dict(told.figures), rel=0.02)
    assert left_out(every, fits_without(every, "backward")) == told.left_out
    assert told.source.startswith("fitted: `python -m benchmarks.rnn.fit_wgmma benchmarks/results/h200/")


def test_the_guide_says_what_the_file_says() -> None:
    text = (Path(__file__).parents[3] / "docs/figures.md").read_text(encoding="utf-8")
    table = text.partition("### Many sequences")[2].partition("\nTuned then")[0]
    fastest, seen = {layer: 1e3 * min(times.values()) for layer, times in loops().items()}, 0
    rows = {(row["kind"], int(row["dim"]), int(row["batch"])): row for row in read_rows(MEASURED)}
    for line in table.splitlines():
        if line.startswith("| LSTM"):
            name, *figures = (cell.strip() for cell in line.strip("|").split("|"))
            dim, batch = (int(part.split()[0].replace(",", "")) for part in name.removeprefix("LSTM, ").split(", "))
            call = json.loads(rows["call", dim, batch]["more"])
            calls = [f"{call[f'{of}_forward_ms']:.2f} / {call[f'{of}_both_ms']:.2f}" for of in ("cuda", "wgmma")]
            loop = f"{float(rows['cuda', dim, batch]['ms']):.2f}"
            assert figures == [loop, f"{fastest[dim, batch]:.2f}", *calls], line
            seen += 1
    assert seen == len(fastest)


def test_the_tuner_lets_it_compete() -> None:
    (goal, *_) = goals_of(load_kernel("lstm"), H200, [layer(768)])
    assert {"lstm.cuda", "lstm.wgmma"} <= {spec.full_name for spec in goal.operation.implementations}
    assert goal.workload == SPECS["lstm"].planned(layer(768))
