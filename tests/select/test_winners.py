"""A measured winner is chosen as long as its device code is today's; with other tools it is looked at first."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from constrint.choose import Evidence, forget
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import tables
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.product import Product
from constrint.kernels.launch.cuda import nvrtc
from constrint.kernels.registry import load_kernel, load_spec
from constrint.kernels.rnn.candidates import decide_layer
from constrint.select import Workload, rank, winners
from constrint.select.fingerprint import fingerprint_of, source_hash
from constrint.select.toolchain import differences, toolchain_of
from constrint.select.winners import TunedEntry, TunedTable, read_tuned, tuned_path, write_tuned
from tests.support.cuda_kernels import ROTATE
from tests.support.decisions import begin_anew, choose_kernel, refuse_step
from tests.support.shared import SharedResults, SharedTables

GPU = load_gpu("h200")
TOOLS = {"triton": "9.9", "torch": "9.9", "cuda": "99.0", "driver": "999.1.2"}
PRODUCT = Workload("gemm", {"m": 1024, "n": 768, "k": 512}, "bf16")
LAYER = Workload("lstm", {"batch": 16, "time": 1024, "heads": 12, "head_dim": 64}, "bf16")

Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_results: SharedResults) -> Iterator[Put]:
    """Writes the user's own table."""

    def forget() -> None:
        winners.reload()
        winners._say_once.cache_clear()

    def write(*entries: TunedEntry, gpu: GpuModel = GPU) -> None:
        write_tuned(TunedTable(gpu.name, entries), tuned_path(tmp_path, gpu.name))
        forget()

    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    # Winners are kept in a folder of the test's own, what the model chooses from is that of all tests.
    monkeypatch.setattr(tables, "cache", SharedTables(shared_results, always=True))
    monkeypatch.setattr(winners, "toolchain", lambda: TOOLS)
    monkeypatch.setattr(winners, "SHIPPED", tmp_path / "shipped")
    forget()
    yield write
    forget()


def entry(workload: Workload, place: int = 7, name: str = "", **changes: Any) -> TunedEntry:
    """An entry for the model's choice of some place, which is not its first one, among all kernels or of one."""
    operation = load_kernel(name or workload.operation)
    fixed = changes.get("fixed", {})
    candidates = rank(operation, GPU, workload, top=place + 30).candidates
    able = [c for c in candidates if all(c.config.get(name) == value for name, value in fixed.items())]
    chosen = able[place]
    fingerprint = fingerprint_of(operation.spec(chosen.kernel))
    facts: dict[str, Any] = {
        "kernel": chosen.kernel,
        "operation": workload.operation,
        "dtype": workload.dtype,
        "sizes": dict(workload.sizes),
        "options": dict(workload.options),
        "config": dict(chosen.config),
        "seconds": 1e-5,
        "source_hash": fingerprint.source,
        "spec_hash": fingerprint.spec,
        "toolchain": TOOLS,
        "run": "r",
        "created": 1.0,
    }
    return TunedEntry(**facts | changes)


def test_the_winner_is_what_matmul_launches(put: Put) -> None:
    before = decide_product(GPU, Product.of(PRODUCT))
    winner = entry(PRODUCT)
    assert winner.config != before.config
    put(winner)
    choice = decide_product(GPU, Product.of(PRODUCT))
    assert (choice.kernel, choice.config, choice.seconds) == (winner.kernel, winner.config, winner.seconds)
    # With an activation it is launched, too, but nothing of that was measured.
    ended = decide_product(GPU, replace(Product.of(PRODUCT), activation="gelu"))
    assert (ended.config, ended.program.evidence, ended.is_measured) == (winner.config, Evidence.MODELLED, False)
    # Another product, or another layout of the same one, is the model's.
    for other in (
        Workload("gemm", {"m": 1024, "n": 768, "k": 528}, "bf16"),
        Workload("gemm", PRODUCT.sizes, "fp16"),
        Workload("gemm", PRODUCT.sizes, "bf16", {"transpose_b": 1}),
        Workload("gemm", PRODUCT.sizes, "bf16", {"bias": 1}),
    ):
        assert decide_product(GPU, Product.of(other)).seconds != winner.seconds
    # What is stated as it is anyway makes no difference.
    stated = Workload("gemm", PRODUCT.sizes, "bf16", {"batch": 1, "transpose_b": 0})
    assert decide_product(GPU, Product.of(stated)).config == winner.config


def test_the_winner_is_what_a_layer_launches_for_each_way(put: Put) -> None:
    (spec,) = [s for s in load_kernel("lstm").implementations if s.name == "triton"]
    ways = [
        entry(LAYER, place, "lstm.triton", fixed={"recompute": way}, seconds=1e-4) for way, place in ((0, 5), (1, 6))
    ]
    put(*ways)
    for way, of_way in enumerate(ways):
        choice = choose_kernel(spec, GPU, LAYER, fixed={"recompute": way})
        assert (choice.config, choice.seconds) == (of_way.config, of_way.seconds)
    assert choose_kernel(spec, GPU, LAYER).seconds != 1e-4


def test_training_stores_pre_activations_although_the_loop_alone_was_faster_without(put: Put) -> None:
    """What is measured of a backward pass is its loop: computing pre-activations again is no part of it."""
    both = LAYER, replace(LAYER, operation="lstm-backward")
    put(
        *(
            entry(layer, way, f"{layer.operation}.triton", fixed={"recompute": way}, seconds=(2 - way) * 1e-4)
            for layer in both
            for way in (0, 1)
        )
    )
    steps = decide_layer(LAYER, GPU, ("forward", "backward")).program_of("triton").steps
    assert [(step.fixed, step.evidence) for step in steps] == [({"recompute": 0}, Evidence.MEASURED)] * 2


def of_layer(kernel: str, dim: int, batch: int, seconds: float) -> TunedEntry:
    """A winner of a layer's forward pass without stored pre-activations."""
    sizes = {"batch": batch, "time": 1024, "heads": 1, "head_dim": dim}
    tools = toolchain_of(load_spec(kernel), TOOLS)
    layer = Workload("lstm", sizes, "bf16")
    return entry(layer, 0, kernel, fixed={"recompute": 1}, seconds=seconds, toolchain=tools)


@pytest.mark.parametrize(
    ("winners_of", "taken"),
    [
        ({}, "cuda"),  # as predicted: 2.2 and 2.6 ms
        ({"wgmma": 2.55e-3}, "wgmma"),  # nobody knows what `cuda` took, but it was tuned, too
        ({"wgmma": 3.2e-3}, "cuda"),  # now its prediction is clearly faster
        ({"cuda": 2.2e-3}, "cuda"),
        ({"cuda": 4e-3}, "wgmma"),  # a winner from before there was another kernel
        ({"cuda": 2.7e-3, "wgmma": 2.6e-3}, "wgmma"),
        ({"cuda": 2.5e-3, "wgmma": 2.6e-3}, "cuda"),
    ],
)
def test_a_layer_is_left_to_the_kernel_whose_winner_is_faster(
    put: Put, winners_of: dict[str, float], taken: str
) -> None:
    put(*(of_layer(f"lstm.{name}", 512, 128, seconds) for name, seconds in winners_of.items()))
    layer = Workload("lstm", {"batch": 128, "time": 1024, "heads": 1, "head_dim": 512}, "bf16")
    plan = decide_layer(layer, GPU, ("forward",), projected=True)
    assert plan.program.name == taken, plan
    for name, seconds in winners_of.items():
        assert f"by measured winners forward {1e3 * seconds:.3g} ms" in plan.program_of(name).note


def test_an_old_winner_of_one_kernel_keeps_no_layer_from_a_faster_one(put: Put) -> None:
    """What ships was tuned when there was no kernel for many sequences; half as many steps take half the time."""
    put(of_layer("lstm.cuda", 768, 256, 9.672e-3))
    for time in (1024, 512):
        layer = Workload("lstm", {"batch": 256, "time": time, "heads": 1, "head_dim": 768}, "bf16")
        plan = decide_layer(layer, GPU, ("forward",), projected=True)
        assert plan.program.name == "wgmma"
        said = re.search(r"by measured winners forward ([\d.]+) ms", plan.program_of("cuda").note)
        assert said is not None
        assert float(said.group(1)) == pytest.approx(9.672 * time / 1024, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source_hash": "0" * 16}, "the device code of gemm"),
        ({"config": {}}, "takes no measured configuration"),
        ({"toolchain": {"rocm": "7.0", "triton": "9.9"}}, "rocm 7.0, now none"),
        ({"toolchain": TOOLS | {"nvrtc": "13.0"}}, "nvrtc 13.0, now none"),
    ],
)
def test_a_stale_or_foreign_winner_is_said_once_and_not_used(put: Put, changes: dict[str, Any], told: str) -> None:
    put()
    before = decide_product(GPU, Product.of(PRODUCT))
    others = [Workload("gemm", {**PRODUCT.sizes, "m": m}, "bf16") for m in (2048, 4096)]
    put(*(entry(workload, **changes) for workload in (PRODUCT, *others)))
    with pytest.warns(winners.StaleTableWarning, match=told) as heard:
        choice, *_ = [decide_product(GPU, Product.of(each)) for each in (PRODUCT, *others)]
    assert len(heard) == 1
    assert "constrint tune" in str(heard[0].message)
    assert (choice.kernel, choice.config) == (before.kernel, before.config)


def shipped_of_each_kernel() -> list[TunedEntry]:
    """A shipped winner of each kernel: of products, and of layers and their backward passes."""
    table = read_tuned(tuned_path(winners.SHIPPED, GPU.name))
    return list({entry.kernel: entry for entry in table.entries}.values())


@pytest.mark.parametrize("winner", shipped_of_each_kernel(), ids=lambda winner: str(winner.kernel))
def test_no_configuration_outside_a_kernels_space_is_taken(
    winner: TunedEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashes that match are no reason to launch: a table is a file that anything may have changed."""
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    monkeypatch.setattr(winners, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(winners, "toolchain", lambda: TOOLS)
    spec = load_spec(winner.kernel)
    workload = Workload(winner.operation, winner.sizes, winner.dtype, winner.options)
    facts = {"source_hash": source_hash(spec), "toolchain": dict(toolchain_of(spec, TOOLS))}

    def found(config: dict[str, Any]) -> winners.Winner | None:
        entry = msgspec.structs.replace(winner, config=config, **facts)
        write_tuned(TunedTable(GPU.name, (entry,)), tuned_path(tmp_path, GPU.name))
        winners.reload()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", winners.StaleTableWarning)
            return winners.winner((spec,), GPU, workload, winner.fixed)

    config = winner.config
    right = found(config)
    assert right is not None
    assert right.config == config
    name, *_ = config or ("none",)
    wrong: list[dict[str, Any]] = [config | {"more": 1}, config | {"\x1b[31m": 1}]
    if config:
        wrong += [{}, {key: value for key, value in config.items() if key != name}]
        number = int(str(config[name]))
        values = (-1, -number, 2**40, -(2**62), 2**63 - 1, 0.5, float(number), str(number), None, True)
        wrong += [config | {name: value} for value in values if repr(value) != repr(config[name])]
        wrong += [dict.fromkeys(config, 2**40), {key: str(value) for key, value in config.items()}]
    assert [one for one in wrong if found(one) is not None] == []
    winners.reload()


def test_the_space_and_the_costs_may_change_as_long_as_the_configuration_is_valid(put: Put) -> None:
    winner = entry(PRODUCT, spec_hash="0" * 16)
    put(winner)
    assert decide_product(GPU, Product.of(PRODUCT)).config == winner.config
    for changes, told in (({"tile_m": 100}, "tile_m"), ({"num_stages": 99}, "num_stages")):
        put(msgspec.structs.replace(winner, config=winner.config | changes))
        with pytest.warns(winners.StaleTableWarning, match=f"has no measured configuration: {told}"):
            assert decide_product(GPU, Product.of(PRODUCT)).seconds != winner.seconds


def test_a_winner_in_cuda_is_exact_for_its_nvrtc_and_needs_one(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    code = fingerprint_of(ROTATE)
    facts: dict[str, Any] = {"kernel": "rotate", "operation": "rotate", "dtype": "fp32", "options": {}, "seconds": 1e-5}
    facts |= {"source_hash": code.source, "spec_hash": code.spec, "run": "r", "created": 1.0}

    def found(tools: dict[str, str]) -> winners.Winner | None:
        put(TunedEntry(**facts, sizes={"n": 4096}, config={"THREADS": 128}, toolchain=TOOLS | tools))
        return winners.winner((ROTATE,), GPU, Workload("rotate", {"n": 4096}, "fp32"))

    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "nvrtc 13.5")
    for tools, changes in (
        ({"nvrtc": "13.5"}, ()),
        ({"nvrtc": "12.9"}, ("nvrtc 12.9, now 13.5",)),
        ({}, ("nvrtc none, now 13.5",)),
    ):
        now = found(tools)
        assert now is not None
        assert (now.config, now.changes) == ({"THREADS": 128}, changes)
        assert now.evidence == (winners.ELSEWHERE if changes else winners.MEASURED)
    monkeypatch.setattr(type(ROTATE), "compilers", {})
    with pytest.warns(winners.StaleTableWarning, match="nvrtc 13.5, now none"):
        assert found({"nvrtc": "13.5"}) is None


def of_product() -> winners.Winner:
    """The winner of the product."""
    found = winners.winner(load_kernel("gemm").implementations, GPU, PRODUCT)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("tools", "change"),
    [
        ({"triton": "9.8"}, "triton 9.8, now 9.9"),
        ({"cuda": "98.1"}, "cuda 98.1, now 99.0"),
        ({"driver": "998.0"}, "driver 998.0, now 999.1.2"),
    ],
)
def test_a_winner_of_other_tools_is_evidence_from_elsewhere(
    put: Put, tmp_path: Path, tools: dict[str, str], change: str
) -> None:
    """Whoever has a newer Triton than the shipped table profits from it; nothing is said."""
    shipped = entry(PRODUCT, toolchain=TOOLS | tools)
    write_tuned(TunedTable(GPU.name, (shipped,)), tuned_path(tmp_path / "shipped", GPU.name))
    put()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = of_product()
    assert (found.config, found.evidence, found.changes) == (shipped.config, "measured elsewhere", (change,))
    assert found.table == "tuned-h200-sxm.json, shipped"
    assert found.error == winners.ELSEWHERE_ERROR
    assert found.error_source.startswith("assumed: ")
    choice = decide_product(GPU, Product.of(PRODUCT))
    assert (choice.config, choice.seconds) == (shipped.config, shipped.seconds)
    # Its kernel is looked at: unlike a winner of these tools it may not spill.
    assert not choice.is_measured


def test_entries_of_these_tools_come_first_then_the_nearest_then_the_newest(put: Put, tmp_path: Path) -> None:
    def of(place: int, **changes: Any) -> TunedEntry:
        tools = TOOLS | changes.pop("tools", {})
        return entry(PRODUCT, place, toolchain=tools, **changes)

    far = of(3, tools={"triton": "9.7", "cuda": "98.0"}, seconds=1e-6, created=9.0)
    old = of(4, tools={"triton": "9.7"}, seconds=2e-6, created=2.0)
    new = of(5, tools={"triton": "9.8"}, seconds=5e-6, created=3.0)
    shipped_exact = of(6, seconds=9e-6)
    own_exact = of(7, seconds=1e-5)
    write_tuned(TunedTable(GPU.name, (shipped_exact,)), tuned_path(tmp_path / "shipped", GPU.name))
    put(far, old, new, own_exact)
    found = of_product()
    assert (found.config, found.evidence) == (own_exact.config, "measured here")
    assert found.table == "tuned-h200-sxm.json, own"
    put(far, old, new)
    assert of_product().config == shipped_exact.config
    (tmp_path / "shipped" / "tuned-h200-sxm.json").unlink()
    put(far, old, new)
    assert of_product().config == new.config
    put(far, old)
    assert of_product().config == old.config
    put(far)
    assert (of_product().config, len(of_product().changes)) == (far.config, 2)


def test_other_versions_of_torch_and_patches_of_the_driver_are_the_same_tools(put: Put) -> None:
    winner = entry(PRODUCT, toolchain=TOOLS | {"torch": "9.8", "driver": "999.5"})
    put(winner)
    assert decide_product(GPU, Product.of(PRODUCT)).config == winner.config
    assert not differences(winner.toolchain, TOOLS)


def test_a_refused_winner_gives_way(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)
    put(entry(PRODUCT))
    product = Product.of(PRODUCT)
    choice = decide_product(GPU, product)
    after = refuse_step(choice, "registers", 8, 0)
    assert after.config != choice.config
    assert after.seconds != choice.seconds


@pytest.mark.parametrize("text", ["", "{", '{"schema": "constrint.tuned/99", "gpu": "H200-SXM", "entries": []}', "[1]"])
def test_a_torn_table_is_said_and_left_aside(put: Put, tmp_path: Path, text: str) -> None:
    put()
    before = decide_product(GPU, Product.of(PRODUCT))
    tuned_path(tmp_path, GPU.name).write_text(text)
    winners.reload()
    forget()
    with pytest.warns(winners.StaleTableWarning, match="left aside"):
        after = decide_product(GPU, Product.of(PRODUCT))
    assert after == before


def test_the_users_own_table_comes_before_the_shipped_one(put: Put, tmp_path: Path) -> None:
    own, shipped = entry(PRODUCT, 5), entry(PRODUCT, 9, seconds=2e-5, created=9.0)
    write_tuned(TunedTable(GPU.name, (shipped,)), tuned_path(tmp_path / "shipped", GPU.name))
    put()
    assert decide_product(GPU, Product.of(PRODUCT)).config == shipped.config
    put(own)
    assert decide_product(GPU, Product.of(PRODUCT)).config == own.config
    # One that does not hold leaves the place to the other.
    put(msgspec.structs.replace(own, source_hash="0"))
    assert decide_product(GPU, Product.of(PRODUCT)).config == shipped.config


def test_of_winners_of_several_compilers_the_fastest_counts(put: Put) -> None:
    """A workload has one winner for each set of tools: what a newer measurement of other tools says changes nothing."""
    slow, fast = entry(PRODUCT, 5, seconds=2e-5, created=9.0), entry(PRODUCT, 9, seconds=1e-5)
    for both in ((slow, fast), (fast, slow)):
        put(*both)
        assert decide_product(GPU, Product.of(PRODUCT)).config == fast.config


def test_shipped_tables_of_other_code_are_left_in_silence(put: Put, tmp_path: Path) -> None:
    foreign = entry(PRODUCT, source_hash="0")
    write_tuned(TunedTable(GPU.name, (foreign,)), tuned_path(tmp_path / "shipped", GPU.name))
    put()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decide_product(GPU, Product.of(PRODUCT)).seconds != foreign.seconds


def test_choices_on_disk_hold_for_their_tables_alone(put: Put) -> None:
    put()
    without = winners.stamp(GPU)
    put(entry(PRODUCT))
    with_one = winners.stamp(GPU)
    put(entry(PRODUCT, created=2.0))
    assert len({without, with_one, winners.stamp(GPU)}) == 3


def test_fingerprints_are_the_same_in_every_process() -> None:
    specs = [spec for name in ("gemm", "lstm", "gru-backward") for spec in load_kernel(name).implementations]
    here = [tuple(fingerprint_of(spec)) for spec in specs]
    assert all(len(part) == 16 for pair in here for part in pair)
    text = (
        "from constrint.kernels.registry import load_kernel; from constrint.select.fingerprint import fingerprint_of\n"
        "specs = [s for n in ('gemm', 'lstm', 'gru-backward') for s in load_kernel(n).implementations]\n"
        "print([tuple(fingerprint_of(s)) for s in reversed(specs)][::-1])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(here)
    # Kernels of one operation with code of their own are told apart.
    assert len(set(here[:3])) == 3
