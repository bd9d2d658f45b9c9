"""The recurrent CUDA kernels without a GPU: the space is what the source takes, launches are what it reads."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.table import read_rows
from benchmarks.resources.rnn_cuda import KEYS, TARGETS, draw_workload, random_config
from constrint.choose import Refusal, Request, decide, refuse
from constrint.errors import RESIDENT, CompileError, InfeasibleError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn.cells import BUILT_IN, CELLS
from constrint.kernels.rnn.cuda.cost import fitted, floor_clk, step_clk
from constrint.kernels.rnn.cuda.shape import BLOCK, CLUSTER, GRID, RING, CudaLoop, shape_of
from constrint.kernels.rnn.cuda.spec import SOURCE, CudaRnnSpec
from constrint.kernels.rnn.cuda.spec import SPECS as CUDA_SPECS
from constrint.kernels.rnn.spec import workload_of
from constrint.model import Var, const
from constrint.model.constraint import CERTAIN
from constrint.select import Workload, rank
from constrint.select.candidate import Config
from constrint.select.fingerprint import fingerprint_of
from constrint.select.limits import BlockUse, most_registers
from constrint.solve import enumerate_space
from tests.support.decisions import begin_anew
from tests.support.needs import needs_nvrtc, needs_torch, needs_triton
from tests.support.ranking import check_ranking

SPECS = {spec.operation: spec for spec in CUDA_SPECS}
H200 = load_gpu("h200")


def lstm(dim: int, direction: str = "forward", dtype: str = "bf16", batch: int = 16, heads: int = 1) -> Workload:
    return workload_of("lstm", (batch, 1024, heads, dim), dtype, direction)


def use_of(gpu: GpuModel, workload: Workload) -> BlockUse:
    return SPECS[workload.operation].use(gpu, workload, {name: Var(name) for name in KEYS})


def best(gpu: GpuModel, workload: Workload, **fixed: int) -> Config:
    return decide(Request(SPECS[workload.operation].full_name, workload, gpu, fixed=fixed)).config


#: Configurations per target that are compiled: the first ones always, the others in slow runs.
FEW, MANY = 1, 3


def drawn(target: str) -> Iterator[tuple[Workload, Config]]:
    """Random valid configurations, without end."""
    gpu, rng = load_gpu(TARGETS[target]), random.Random(f"{target} 2")
    while True:
        workload = draw_workload(rng)
        config = random_config(gpu, workload, rng)
        if config is not None:
            yield workload, config


def check_compiled(target: str, first: int, end: int) -> None:
    """Random valid configurations compile: the source asserts their shared memory, registers are within the bound."""
    gpu = load_gpu(TARGETS[target])
    for workload, config in islice(drawn(target), first, end):
        use = use_of(gpu, workload)
        compiled = SPECS[workload.operation].compile(gpu, workload, config)
        what = f"{workload} {dict(config)}"
        assert compiled.smem_bytes == use.smem_bytes.value(config) <= gpu.sm.max_smem_bytes_per_block, what
        assert compiled.registers_per_thread <= most_registers(gpu, use.warps).value(config), what
        assert use.least_registers is not None
        if not compiled.spill_bytes:
            assert compiled.registers_per_thread >= use.least_registers.value(config), what


@needs_nvrtc
@needs_torch
@pytest.mark.parametrize("target", TARGETS)
def test_what_the_space_holds_compiles_within_what_is_predicted(target: str) -> None:
    check_compiled(target, 0, FEW)


@needs_nvrtc
@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_many_of_the_space_compile_within_what_is_predicted(target: str) -> None:
    check_compiled(target, FEW, MANY)


@needs_nvrtc
@needs_torch
@pytest.mark.parametrize(
    ("direction", "change", "rule"),
    [
        ("forward", {"placement": BLOCK, "units": 32}, "whole_head"),
        ("forward", {"units": 12}, "whole_tiles"),
        ("backward", {"units": 12, "warps_rows": 1}, "whole_tiles"),
        ("forward", {"warps_rows": 8, "warps_depth": 1}, "whole_units"),
    ],
)
def test_what_the_rules_refuse_the_source_refuses(direction: str, change: dict[str, int], rule: str) -> None:
    workload = lstm(96, direction)
    spec, config = SPECS[workload.operation], {**best(H200, workload, placement=CLUSTER, units=16), **change}
    broken = [r for r in spec.problem(H200, workload).constraints if not r.holds(config)]
    assert rule in [r.name for r in broken if r.kind == CERTAIN]
    assert all(r.because for r in broken)
    with pytest.raises(CompileError, match="static assertion"):
        spec.compile(H200, workload, config)


@needs_nvrtc
@needs_torch
def test_the_source_refuses_another_shared_memory_than_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    from constrint.kernels.rnn.cuda import launch

    def mistaken(*stated: Any) -> CudaLoop:
        shape = shape_of(*stated)
        vars(shape)["smem_bytes"] = const(4711)
        return shape

    launch.source_of.cache_clear()
    monkeypatch.setattr(launch, "shape_of", mistaken)
    with pytest.raises(CompileError, match="the host predicts the shared memory"):
        SPECS["lstm"].compile(H200, lstm(64), best(H200, lstm(64)))
    launch.source_of.cache_clear()


def test_clusters_are_where_the_gpu_has_them() -> None:
    places = {name: set(placements_of(load_gpu(name))) for name in ("a100", "h200", "b200", "rtx-5090")}
    assert places["a100"] == {BLOCK, GRID}
    assert places["h200"] == places["b200"] == places["rtx-5090"] == {BLOCK, CLUSTER, GRID}
    for name, most in (("h200", 16), ("rtx-5090", 8)):
        space = enumerate_space(SPECS["lstm"].problem(load_gpu(name), lstm(128)))
        assert max(128 // c["units"] for c in space if c["placement"] == CLUSTER) == most


def placements_of(gpu: GpuModel) -> list[int]:
    space = enumerate_space(SPECS["lstm"].problem(gpu, lstm(64, heads=12)))
    return sorted({config["placement"] for config in space})


@pytest.mark.parametrize("name", ["a100", "h200", "b200", "rtx-5090"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_candidate_satisfies_every_rule_and_fits_the_gpu(name: str, dtype: str) -> None:
    gpu = load_gpu(name)
    for cell in BUILT_IN:
        for direction in ("forward", "backward"):
            workload = workload_of(cell, (16, 1024, 2, 128), dtype, direction)
            spec = SPECS[workload.operation]
            ranking = rank(spec, gpu, workload, top=4)
            check_ranking(gpu, ranking, {spec.full_name: spec})
            for candidate in ranking.candidates:
                config = candidate.config
                if config["placement"] == GRID:
                    assert 128 // config["units"] <= gpu.device.sm_count


@pytest.mark.parametrize(
    ("gpu", "workload", "error", "text"),
    [
        ("h200", lstm(100), UsageError, r"a multiple of 32 for bf16, up to 8192, got 100. Pad each head to 128"),
        ("h200", lstm(40, dtype="fp32"), UsageError, "a multiple of 16 for fp32.*Pad each head to 48"),
        ("t4", lstm(64, dtype="fp16"), UnsupportedError, "has no mma.sync for fp16"),
        ("mi300x", lstm(64), UnsupportedError, "has no mma.sync for bf16"),
        (
            "h200",
            lstm(8224),
            UsageError,
            "up to 8192, got 8224. Split it into several heads, or use the back-end 'alternating'",
        ),
        (
            "h200",
            lstm(4384),
            InfeasibleError,
            "(?s)cannot hold together.*divisors of head_dim.*132 fit, one on each SM",
        ),
        (
            "l4",
            lstm(8192),
            InfeasibleError,
            "(?s)cannot hold together.*what the chip cannot hold.*58 fit, one on each SM",
        ),
    ],
)
def test_what_it_cannot_take_is_refused_with_the_reason(
    gpu: str, workload: Workload, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        rank(SPECS["lstm"], load_gpu(gpu), workload)


def test_the_largest_head_that_the_chip_holds_is_not_the_largest() -> None:
    for direction in ("forward", "backward"):
        spec = SPECS[lstm(64, direction).operation]
        for dim, holds in ((2112, True), (2144, False)):
            space = enumerate_space(spec.problem(H200, lstm(dim, direction)))
            assert any(config["streamed_pairs"] == 0 for config in space) == holds
            assert space.size
        # Estimates speak against none of these, and against every configuration of the largest one backward.
        for dim in (2688, 4096):
            assert enumerate_space(spec.problem(H200, lstm(dim, direction)).strict()).size
        assert enumerate_space(spec.problem(H200, lstm(8192, direction))).size
    assert not enumerate_space(SPECS["lstm-backward"].problem(H200, lstm(8192, "backward")).strict()).size


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_weights_are_read_again_in_every_step_only_where_shared_memory_is_full(direction: str) -> None:
    for name, dim in (("h200", 2112), ("h200", 2688), ("a100", 2048)):
        gpu, workload = load_gpu(name), lstm(dim, direction)
        spec = SPECS[workload.operation]
        seen = enumerate_space(spec.problem(gpu, workload)).sample(100, seed=1)
        streamed = [config for config in seen if config["streamed_pairs"]]
        assert len(streamed) > 10
        for config in streamed:
            shape = shape_of(spec.cell, direction, dim, "bf16", config)
            taken, one_more = (part.value({}) for part in (shape.smem_bytes, shape.pair_bytes))
            assert config["placement"] == GRID
            assert taken <= gpu.sm.max_smem_bytes_per_block < taken + one_more
            shared = shape.shared_pairs.value({})
            assert shared + config["register_pairs"] + config["streamed_pairs"] == shape.pairs.value({})
    # Where the chip has room for all weights there is no such choice.
    small = SPECS[workload.operation].problem(H200, lstm(1024, direction))
    assert {config["streamed_pairs"] for config in enumerate_space(small).sample(100, seed=1)} == {0}


def test_batch_sizes_share_few_plans() -> None:
    assert [SPECS["lstm"].planned_batch(b) for b in (1, 4, 5, 16, 17, 100, 10**6)] == [4, 4, 8, 16, 32, 128, 1024]


def test_the_device_code_is_part_of_what_a_choice_rests_on(tmp_path: Path) -> None:
    spec = SPECS["lstm"]
    assert {path.name for path in spec.device_files} == {path.name for path in SOURCE.iterdir()}
    before = fingerprint_of(spec)
    file = tmp_path / "shape.cuh"
    file.write_bytes((SOURCE / "shape.cuh").read_bytes() + b"constexpr int kChanged = 1;\n")

    class Changed(CudaRnnSpec):
        device_files = (*(path for path in spec.device_files if path.name != file.name), file)

    Changed.__module__ = CudaRnnSpec.__module__
    after = fingerprint_of(Changed(spec.cell, spec.direction))
    assert after.spec == before.spec
    assert after.source != before.source


# What is predicted.


def columns_of(config: Config) -> dict[str, Any]:
    return {name: np.array([value]) for name, value in config.items()}


def test_a_step_takes_no_less_than_its_parts_and_hides_one_tile_behind_another() -> None:
    figures = dict.fromkeys(fitted().figures["forward"], 1.0) | {"loads": 0.0}
    parts = {name: np.array([0.0]) for name in figures if name != "loads"}
    parts |= {"mma": np.array([100.0]), "grid": np.array([500.0])}
    for tiles, expected in ((1, 600.0), (2, 600.0), (8, 800.0)):
        clks = step_clk(parts, figures, {"num_tiles": np.array([tiles]), "prefetch": np.array([2])}, np.array([1.0]))
        assert clks["step"] == pytest.approx([expected])
    loads = figures | {"loads": 3000.0}
    for prefetch, expected in ((2, 3000.0), (3, 1500.0)):
        clks = step_clk(parts, loads, {"num_tiles": np.array([1]), "prefetch": np.array([prefetch])}, np.array([1.0]))
        assert clks["step"] == pytest.approx([expected], rel=0.01)


def test_the_floor_is_below_what_is_predicted_and_names_what_binds() -> None:
    for dim in (64, 256, 768, 1024, 2048):
        for direction in ("forward", "backward"):
            workload = lstm(dim, direction)
            config = best(H200, workload, recompute=1)
            floor = floor_clk(H200, SPECS[workload.operation].cell, direction, workload, config)
            assert set(floor) >= {"mma", "weights", "special", "exchange"}
            seconds = rank(SPECS[workload.operation], H200, workload, top=1).candidates[0].cost.seconds
            assert 0 < sum(floor.values()) / 1.98e9 * 1024 < seconds


TABLE = Path(__file__).resolve().parents[3] / "benchmarks/results/h200/rnn_cuda_space.csv"


def test_the_space_holds_what_was_measured_to_be_fastest() -> None:
    """Of every layer that was timed on an H200; the rules leave out what does the work of others alone."""
    fastest: dict[tuple[str, ...], dict[str, str]] = {}
    for row in read_rows(TABLE):
        layer = tuple(row[name] for name in ("cell", "batch", "heads", "head_dim", "dtype", "direction"))
        if float(row["loop_ms"]) < float(fastest.get(layer, {"loop_ms": "inf"})["loop_ms"]):
            fastest[layer] = row
    assert len(fastest) > 60
    for (cell, batch, heads, dim, dtype, direction), row in fastest.items():
        workload = workload_of(cell, (int(batch), 1024, int(heads), int(dim)), dtype, direction)
        config = {key: int(row[key]) for key in KEYS}
        broken = [r.name for r in SPECS[workload.operation].problem(H200, workload).constraints if not r.holds(config)]
        assert not broken, (workload, config, broken)


def test_figures_are_what_the_fit_gives_and_carry_to_sizes_that_no_fit_has_seen() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.rnn.fit_cuda import fitted as fit_all
    from benchmarks.rnn.fit_cuda import left_out, read_loops

    loops = read_loops(TABLE, H200)
    found = fit_all(loops)
    for each in loops:
        ours = fitted().figures[each.direction]
        assert each.predicted(found[each.direction]) == pytest.approx(each.predicted(ours), rel=0.02)
    judged = left_out(loops)
    assert len(judged) >= 15
    assert np.median([each.median_error for each in judged]) < 0.15
    shares = sorted(each.share for each in judged)
    assert np.exp(np.mean(np.log(shares))) > 0.93
    assert shares[0] > 0.6


# What is launched.


def signature(direction: str, *, has_parameters: bool = False) -> list[tuple[str, str]]:
    """Type and name of each argument of the kernel: `pointer`, `int`, `long long`, `float`."""
    text = re.sub(r"//[^\n]*", "", (SOURCE / f"{direction}.cu").read_text())
    kept = r"\1" if has_parameters else ""
    text = re.sub(r"#if CELL_PARAMS > 0\n(.*?)#endif\n", kept, text, count=1, flags=re.DOTALL)
    inside = text.partition(f"recurrent_{direction}(")[2].partition(") {")[0]
    found = []
    for argument in inside.split(","):
        kind, _, name = argument.strip().rpartition(" ")
        found.append(("pointer" if "*" in argument else kind.strip(), name.lstrip("*")))
    return found


def bytes_of(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


NUMBERS = {"int": np.int32, "long long": np.int64, "float": np.float32}


def made_inputs(direction: str, workload: Workload) -> tuple[CudaRnnSpec, dict[str, Any], dict[str, Any]]:
    spec = SPECS[workload.operation]
    inputs = spec.inputs(H200, workload)
    return spec, inputs, spec.outputs(H200, workload, inputs)


@needs_torch
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_arguments_stand_as_the_source_declares_them(direction: str) -> None:
    from constrint.kernels.rnn.cuda.launch import PARAMETERS, TENSORS

    pointers = [name for kind, name in signature(direction, has_parameters=True) if kind == "pointer"]
    # In the sources they have no prefix; in Triton a name of that kind is taken.
    assert pointers == [name.removeprefix("unit_") for name in (*TENSORS[direction], *PARAMETERS[direction])]
    workload = lstm(768, direction)
    spec, inputs, outputs = made_inputs(direction, workload)
    config = best(H200, workload, placement=GRID, recompute=0)
    launches: list[Any] = list(spec.launches(H200, workload, config, inputs, outputs))
    fill, launch = launches
    declared = signature(direction)
    assert [name for kind, name in declared if kind == "pointer"] == list(TENSORS[direction])
    assert len(launch.arguments) == len(declared)
    named = {name: value for (_, name), value in zip(declared, launch.arguments, strict=True)}
    taken = {"exchange": fill.tensor, "streamed": None}
    for kind, name in declared:
        if kind == "pointer":
            assert named[name] is {**inputs, **outputs, **taken}.get(name)
        else:
            assert type(named[name]) is NUMBERS[kind], name
    sizes = {"batch": 16, "time": 1024, "heads": 1, "first_group": 0, "wx_stride_t": 4 * 768}
    assert {name: int(named[name]) for name in sizes} == sizes
    # Blocks look for words in the ring alone: states, or the gradients of all gates, of 16 sequences.
    exchanged = 768 * (1 if direction == "forward" else 4)
    assert bytes_of(fill.tensor) == RING * 16 * exchanged * 2
    assert fill.value == 0xFFFFFFFF


@needs_torch
@pytest.mark.parametrize("placement", [BLOCK, CLUSTER, GRID])
def test_a_placement_is_launched_as_it_must_be(placement: int) -> None:
    workload = lstm(128, batch=64, heads=4)
    config = best(H200, workload, placement=placement)
    spec, inputs, outputs = made_inputs("forward", workload)
    launches: list[Any] = list(spec.launches(H200, workload, config, inputs, outputs))
    *before, launch = launches
    blocks = 128 // config["units"]
    assert [type(each).__name__ for each in before[:1]] == (["FillLaunch"] if placement == GRID else [])
    assert launch.is_cooperative == (placement == GRID)
    assert launch.cluster == (blocks if placement == CLUSTER else 1)
    assert launch.block == (32 * config["warps_rows"] * config["warps_depth"],)
    assert launch.smem_bytes == use_of(H200, workload).smem_bytes.value(config)
    groups = 4 * -(-64 // (config["tile_batch"] * config["num_tiles"]))
    loops = [each for each in (*before, launch) if hasattr(each, "grid")]
    assert sum(each.grid[0] for each in loops) == groups * blocks
    assert all(each.grid[0] <= 132 for each in loops if each.is_cooperative)


@needs_torch
@pytest.mark.parametrize(
    ("dim", "change"), [(1024, {"tile_batch": 8}), (2688, {"tile_batch": 16, "register_pairs": 3, "streamed_pairs": 6})]
)
def test_groups_that_are_not_resident_together_follow_each_other(dim: int, change: dict[str, int]) -> None:
    workload = lstm(dim, batch=256)
    config = {**best(H200, workload, placement=GRID), "num_tiles": 1, **change}
    spec, inputs, outputs = made_inputs("forward", workload)
    fill, *loops = list[Any](spec.launches(H200, workload, config, inputs, outputs))
    blocks, groups = dim // config["units"], 256 // config["tile_batch"]
    at_once = 132 // blocks
    assert len(loops) == -(-groups // at_once) > 1
    assert [int(each.arguments[-3]) for each in loops] == list(range(0, groups, at_once))
    # Each group has a ring of its own, and all are filled before the first one begins.
    assert bytes_of(fill.tensor) == groups * RING * config["tile_batch"] * dim * 2
    # Blocks lay their weights down where those of the launch before had theirs.
    (ring,), (weights,) = ({id(each.arguments[place]) for each in loops} for place in (9, 10))
    assert ring == id(fill.tensor)
    streamed = loops[0].arguments[10]
    assert weights == id(streamed)
    if config["streamed_pairs"]:
        rows = 4 * config["units"]
        pairs = config["warps_depth"] * config["streamed_pairs"]
        assert bytes_of(streamed) == at_once * blocks * rows * pairs * 32 * 2
    else:
        assert streamed is None


@needs_torch
@needs_triton
def test_planned_launches_take_tensors_as_they_are_or_say_what_is_in_the_way() -> None:
    from dataclasses import replace

    import torch

    from constrint.kernels.launch.plan.scratch import NotedScratch
    from constrint.kernels.launch.plan.shape import NotPlannedError
    from constrint.kernels.rnn.cuda.launch import CudaBackend
    from constrint.kernels.rnn.interface import BackwardTensors, ForwardOutputs, RnnInputs

    sizes = batch, time, heads, dim = 16, 8, 1, 768
    workload = workload_of("lstm", sizes, "bf16")

    def made(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    def inputs(wx: torch.Tensor, b: torch.Tensor | None = None) -> RnnInputs:
        return RnnInputs("lstm", wx, made(4, heads, dim, dim), b, None, None, None)

    wx, b = made(batch, time, 4, heads, dim), made(4, heads, dim)
    states = made(2, batch, time, heads, dim)
    out = ForwardOutputs(states, made(batch, time, 4, heads, dim), made(batch, heads, dim), made(1, batch, heads, dim))
    choice = decide(Request("lstm.cuda", workload, H200, fixed={"recompute": 0, "placement": GRID}))

    def launched(given: RnnInputs, into: ForwardOutputs) -> list[Any]:
        *launches, ends = CudaBackend().plan_forward(given, None, into, choice, NotedScratch())
        assert type(ends).__name__ == "TritonLaunch"
        return launches

    launches = launched(inputs(wx, b), out)
    assert [type(each).__name__ for each in launches] == ["FillLaunch", "CudaLaunch"]
    assert launches[1].arguments[5] is out.gates
    inference = replace(out, gates=None)
    assert launched(inputs(wx, b), inference)[1].arguments[5] is None
    time_major = made(time, batch, 4, heads, dim).transpose(0, 1)
    assert int(launched(inputs(time_major), out)[1].arguments[-2]) == 4 * heads * dim
    shifted = made(wx.numel() + 1)[1:].view(wx.shape)
    for bad, reason in (
        (inputs(shifted, b), "vector"),
        (inputs(wx, b.float()), "bias"),
        (inputs(wx[:0], b), "no step"),
    ):
        with pytest.raises(NotPlannedError, match=reason):
            CudaBackend().plan_forward(bad, None, out, choice, NotedScratch())
    slots, initial = made(batch, time, 4, heads, dim), made(2, batch, heads, dim, dtype=torch.float32)
    back = BackwardTensors(states, wx, (states[0], None), None, slots, initial, made(batch, time, heads, dim))
    fixed = {"recompute": 0, "placement": GRID}
    chosen = decide(Request("lstm-backward.cuda", lstm(768, "backward"), H200, fixed=fixed))
    scratch = NotedScratch()
    before, *launches = list[Any](CudaBackend().plan_backward(inputs(wx), back, chosen, scratch, clip=0.5, only_h=True))
    assert type(before).__name__ == "TritonLaunch"
    assert [type(each).__name__ for each in launches] == ["FillLaunch", "CudaLaunch"]
    assert [launches[0].tensor, launches[1].arguments[15]] == scratch.fresh * 2
    clip, shift_free = launches[1].arguments[17:19]
    assert (float(clip), int(shift_free)) == (0.5, 1)


def test_on_a_part_of_a_gpu_fewer_blocks_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)
    workload = lstm(768)
    first = decide(Request("lstm.cuda", workload, H200))
    needed = 768 // first.config["units"]
    assert first.config["placement"] == GRID
    following = refuse(first, Refusal(first.kernel, first.config, RESIDENT, needed, 16))
    assert 768 // following.config["units"] <= 16
    # Groups of a batch may be too many where a head's blocks are not, and of a cluster that does not fit nobody says
    # how many blocks there could be: what was refused is not chosen again.
    for required, limit in ((64, 16), (0, 0)):
        other = refuse(following, Refusal(following.kernel, following.config, RESIDENT, required, limit))
        assert any(other.config[name] != following.config[name] for name in SPECS["lstm"].resident_params)
        following = other


@needs_torch
def test_wx_that_cannot_be_read_by_vectors_is_copied() -> None:
    import torch

    from constrint.kernels.rnn.cuda.launch import CudaBackend
    from constrint.kernels.rnn.interface import RnnInputs

    whole = torch.zeros(3 * 5 * 4 * 32 + 4, dtype=torch.bfloat16)
    for wx, is_same in (
        (whole[: 3 * 5 * 4 * 32].view(3, 5, 4, 1, 32), True),
        (whole[1 : 1 + 3 * 5 * 4 * 32].view(3, 5, 4, 1, 32), False),
        (torch.zeros(3, 5 * 4 * 32 + 4, dtype=torch.bfloat16)[:, : 5 * 4 * 32].view(3, 5, 4, 1, 32), False),
    ):
        inputs = RnnInputs("lstm", wx, torch.zeros(4, 1, 32, 32), None, None, None, None)
        found = CudaBackend()._converted(inputs)[0].wx
        assert (found is wx) == is_same
        assert found.data_ptr() % 16 == 0
        assert torch.equal(found, wx)


@needs_nvrtc
@needs_torch
def test_macros_of_a_head_that_two_dtypes_share_differ() -> None:
    from constrint.kernels.rnn.cuda.launch import source_of

    config = tuple(best(H200, lstm(64)).items())
    macros = [
        source_of(CELLS["lstm"], "forward", 64, d, config).source.macros for d in ("bf16", "fp16", "tf32", "fp32")
    ]
    assert len({each["DTYPE"] for each in macros}) == 4
    assert [each["EXPECTED_SHARED_BYTES"] for each in macros] == sorted(
        int(each["EXPECTED_SHARED_BYTES"]) for each in macros
    )
