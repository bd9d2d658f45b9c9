"""What is done when a choice spills, does not compile or does not fit after all, and which model a device has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.decisions import begin_anew
from tests.support.gemm import gemm
from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from triton.errors import TritonError
from triton.runtime.errors import OutOfResources

from constrint.choose import REGISTERS, Decision, Evidence, Program, Refusal, Request, Step, decide, refuse
from constrint.errors import RESIDENT, CompileError, DoesNotFitError, InfeasibleError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.hwmodels.detection import DetectedDevice
from constrint.kernels.launch import device as devices
from constrint.kernels.launch import policy
from constrint.kernels.launch.cuda.source_spec import CompiledCuda
from constrint.kernels.launch.look import SpilledError, look
from constrint.kernels.launch.policy import MOST_NEXT, PASS_FAILED, launch_what_fits
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.spec import workload_of
from constrint.model import const
from constrint.select import BlockUse, Workload
from constrint.select.candidate import CompiledKernel
from constrint.select.compiled import recall
from constrint.select.toolchain import triton_version

H200 = load_gpu("h200")
#: Choices of a kernel by their number of stages, in the order in which they are made.
CONFIG = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "num_warps": 4, "split_k": 1, "persistent": 0, "group_m": 8}
ASKED, POINTER = gemm(4096, 4096, 4096), "gemm.pointer"


def choice(
    stages: int, workload: Workload = ASKED, gpu: GpuModel | None = H200, evidence: Evidence = Evidence.MODELLED
) -> Decision:
    return decision("gemm.pointer", {**CONFIG, "num_stages": stages}, workload, gpu, evidence)


def decision(
    kernel: str,
    config: Mapping[str, int],
    workload: Workload,
    gpu: GpuModel | None = H200,
    evidence: Evidence = Evidence.MODELLED,
) -> Decision:
    step = Step("product", kernel, config, workload, evidence=evidence)
    return Decision(Request.of(gpu, workload), Program(kernel, (step,)))


def compiled(spill_bytes: int) -> CompiledKernel:
    return CompiledKernel("sm_90", triton_version(), 65_536, 255, 0, spill_bytes, "wgmma")


class Device:
    """Stands for a device whose kernels are compiled as they are told to be; counts what it is asked to do.

    Args:
        spills: Bytes that the kernel of so many stages spills, or what is raised when it is compiled.
    """

    def __init__(self, spills: Mapping[int, int | Exception]) -> None:
        self.spills = spills
        self.compiled: list[int] = []
        self.launched: list[int] = []
        self.refused: list[tuple[int, Refusal]] = []

    def launch(self, chosen: Decision, /, *, may_spill: bool) -> None:
        stages = chosen.config["num_stages"]
        self.compiled.append(stages)
        result = self.spills.get(stages, 0)
        if isinstance(result, Exception):
            raise result
        if result and not may_spill:
            raise SpilledError(compiled(result))
        self.launched.append(stages)

    def refuse(self, refused: Decision, refusal: Refusal) -> Decision:
        """The next choice has one stage more, up to ten."""
        stages = refused.config["num_stages"]
        self.refused.append((stages, refusal))
        if stages == 10:
            raise InfeasibleError(str(refusal))
        return decision(
            refused.kernel, {**refused.config, "num_stages": stages + 1}, refused.workload or ASKED, refused.gpu
        )

    def run(self, first: Decision, *given: str) -> int:
        """The stages of what is launched for a choice, without a word."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return launch_what_fits(first, self.launch, self.refuse, given).config["num_stages"]


def new_process() -> None:
    """Forget what a process knows."""
    policy._LOOKED_AT.clear()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for what is kept on disk, and a process that knows nothing."""
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    new_process()
    yield tmp_path
    new_process()


def test_what_is_clean_is_launched_once_without_a_word_and_leaves_nothing_on_disk(folder: Path) -> None:
    device = Device({})
    assert device.run(choice(1)) == 1
    assert (device.compiled, device.launched, device.refused) == ([1], [1], [])
    assert not [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("num_spilling", range(MOST_NEXT + 1))
def test_the_first_clean_one_of_the_choice_and_three_further_ones_is_launched(num_spilling: int) -> None:
    device = Device({1 + number: 64 for number in range(num_spilling)})
    assert device.run(choice(1)) == 1 + num_spilling
    assert device.launched == [1 + num_spilling]
    assert device.compiled == list(range(1, 2 + num_spilling))
    assert device.refused == [
        (1 + number, Refusal(POINTER, choice(1 + number).config, REGISTERS, 64, 0)) for number in range(num_spilling)
    ]


@pytest.mark.parametrize(("bytes_", "least"), [((40, 80, 16, 24), 3), ((4, 80, 16, 24), 1), ((8, 8, 8, 4), 4)])
def test_where_all_four_spill_the_one_that_spills_least_is_launched(bytes_: tuple[int, ...], least: int) -> None:
    """The fifth choice would be clean: nobody waits for a fifth compilation."""
    device = Device(dict(enumerate(bytes_, start=1)))
    assert device.run(choice(1)) == least
    assert device.launched == [least]
    assert sorted({*device.compiled}) == [1, 2, 3, 4]


def test_a_measured_winner_is_launched_although_it_spills() -> None:
    assert Device({1: 64}).run(choice(1)) == 2  # which keeps on disk that it spills
    new_process()
    device = Device({1: 64})
    winner = choice(1, evidence=Evidence.MEASURED)
    assert device.run(winner) == device.run(winner) == 1
    assert (device.launched, device.refused) == ([1, 1], [])


def test_a_winner_that_another_device_does_not_hold_is_followed_by_the_next_choice() -> None:
    winner, device = choice(1, evidence=Evidence.MEASURED), Device({})
    assert device.run(winner) == 1
    device.spills = {1: DoesNotFitError("a slice holds 16 blocks", name=RESIDENT, required=32, limit=16)}
    with pytest.warns(RuntimeWarning, match="a slice holds 16 blocks. From now on"):
        assert launch_what_fits(winner, device.launch, device.refuse).config["num_stages"] == 2
    assert device.refused == [(1, Refusal(POINTER, winner.config, RESIDENT, 32, 16))]


def test_what_spills_least_and_is_not_held_by_a_part_of_a_device_is_followed_by_the_next_choice() -> None:
    class Part(Device):
        def launch(self, chosen: Decision, /, *, may_spill: bool) -> None:
            if may_spill and chosen.config["num_stages"] < 5:
                raise DoesNotFitError("a slice holds 16 blocks", name=RESIDENT, required=32, limit=16)
            super().launch(chosen, may_spill=may_spill)

    device = Part(dict.fromkeys(range(1, 5), 40) | {3: 16})
    with pytest.warns(RuntimeWarning, match="a slice holds 16 blocks. From now on"):
        assert launch_what_fits(choice(1), device.launch, device.refuse).config["num_stages"] == 5
    assert device.launched == [5]
    assert (3, Refusal(POINTER, choice(3).config, RESIDENT, 32, 16)) in device.refused


def test_what_spills_is_launched_where_there_is_no_other_choice() -> None:
    device = Device({9: 16, 10: 32})
    assert device.run(choice(9)) == 9
    assert device.launched == [9]


def test_what_spills_is_launched_where_no_other_one_runs() -> None:
    """A kernel that does not fit is no reason to give up one that runs, if slowly."""
    device = Device({9: 16, 10: OutOfResources(300, 200, "shared memory")})
    assert device.run(choice(9)) == 9
    assert device.launched == [9]


def test_later_launches_of_what_spills_are_not_looked_at_again() -> None:
    """Each call would otherwise compile another three choices."""
    device = Device(dict.fromkeys(range(1, 11), 16) | {3: 4})
    assert device.run(choice(1)) == 3
    device.compiled.clear()
    # The last choice that was tried is the one that nothing was said against: it is what is chosen from now on.
    last = device.refused[-1][0] + 1
    for _ in range(3):
        assert device.run(choice(last)) == 3
    assert device.compiled == [3, 3, 3]


def test_later_launches_of_what_is_clean_read_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device({})
    device.run(choice(1))
    with monkeypatch.context() as patch:
        patch.setattr(policy, "recall", lambda *_: pytest.fail("it was looked at in this process"))
        assert device.run(choice(1)) == 1
        with pytest.raises(pytest.fail.Exception):
            device.run(choice(1), "relu")
        with pytest.raises(pytest.fail.Exception):
            device.run(choice(1, gemm(4096, 4096, 4096, bias=1)))


def test_a_later_process_does_not_compile_what_is_known_to_spill() -> None:
    Device({1: 64, 2: 8}).run(choice(1))
    new_process()
    later = Device({1: 64, 2: 8})
    assert later.run(choice(1)) == 3
    assert later.compiled == [3]
    assert [(stages, refusal.required) for stages, refusal in later.refused] == [(1, 64), (2, 8)]


def test_a_later_process_compiles_one_kernel_alone_where_all_spill() -> None:
    Device(dict.fromkeys(range(1, 11), 16) | {2: 4}).run(choice(1))
    new_process()
    later = Device(dict.fromkeys(range(1, 11), 16) | {2: 4})
    assert later.run(choice(1)) == 2
    assert later.compiled == [2]


ALIKE = [
    # Sizes decide by what they are multiples of alone.
    (gemm(4096, 4096, 4096), gemm(8192, 1024, 512), True),
    (gemm(4096, 4096, 4096), gemm(8192, 1024, 513), False),
    (gemm(4097, 4096, 4096), gemm(1025, 1024, 512), True),
    (gemm(1, 4096, 4096), gemm(17, 4096, 4096), False),
    # Addresses of more than 32 bits are another kernel.
    (gemm(4096, 4096, 4096), gemm(65536, 4096, 65536), False),
    (gemm(4096, 4096, 4096), gemm(4096, 4096, 4096, "fp16"), False),
    (gemm(4096, 4096, 4096), gemm(4096, 4096, 4096, bias=1), False),
]


@pytest.mark.parametrize(("one", "other", "is_known"), ALIKE, ids=str)
def test_what_spills_is_known_of_all_workloads_that_are_compiled_alike(
    one: Workload, other: Workload, is_known: bool
) -> None:
    Device({1: 64}).run(choice(1, one))
    new_process()
    later = Device({1: 64})
    assert later.run(choice(1, other)) == 2
    assert later.compiled == ([2] if is_known else [1, 2])


def test_what_spills_on_one_gpu_or_with_one_end_is_not_known_of_others() -> None:
    Device({1: 64}).run(choice(1), "relu")
    new_process()
    for other, given in ((choice(1), ()), (choice(1), ("gelu",)), (choice(1, gpu=load_gpu("b200")), ("relu",))):
        later = Device({1: 64})
        later.run(other, *given)
        assert later.compiled == [1, 2]


def test_what_spills_harmlessly_is_launched_and_nothing_slower_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(load_spec("gemm.pointer")), "harmless_spill_bytes", 32)
    first = Device({1: 64, 2: 32})
    assert [first.run(choice(1)), first.run(choice(1))] == [2, 2]
    assert {stages for stages, _ in first.refused} == {1}
    new_process()
    later = Device({1: 64, 2: 32})
    assert later.run(choice(2)) == 2
    assert later.refused == []


def test_a_layer_of_another_length_is_compiled_alike() -> None:
    spec, config = load_spec("lstm.triton"), {"tile_batch": 16, "num_warps": 4, "num_stages": 1}
    one, other, wider = (
        workload_of("lstm", (16, time, 12, dim), "bf16") for time, dim in ((256, 64), (512, 64), (256, 96))
    )
    Device({1: 64}).run(decision(spec.full_name, config, one))
    assert isinstance(recall(H200, spec, one, config), CompiledKernel)
    assert recall(H200, spec, other, config) == recall(H200, spec, one, config) == compiled(64)
    assert recall(H200, spec, wider, config) is None


def test_nothing_is_kept_where_nothing_may_be(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("CONSTRINT_CACHE", "0")
    for _ in range(2):
        device = Device({1: 64, 2: 8})
        assert device.run(choice(1)) == 3
        assert device.compiled == [1, 2, 3]
        new_process()
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_torn_facts_are_asked_for_again(folder: Path) -> None:
    Device({1: 64}).run(choice(1))
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-3])
    new_process()
    later = Device({1: 64})
    assert later.run(choice(1)) == 2
    assert later.compiled == [1, 2]


def test_a_choice_without_a_model_is_launched_although_it_spills() -> None:
    """Nothing else can be chosen, and nothing is kept."""
    device = Device({10: 64})
    for _ in range(2):
        assert device.run(choice(10, gpu=None)) == 10
    assert device.launched == [10, 10]


SMALL = DoesNotFitError("132 blocks wait, 16 are there.", name=RESIDENT, required=132, limit=16)
THREADS = DoesNotFitError("a block of 512 threads is too large.", name="threads", required=512, limit=256)
FAILURES = [
    (SMALL, "132 blocks wait, 16 are there", RESIDENT),
    (THREADS, "a block of 512 threads is too large", "threads"),
    (CompileError("nvrtc 13.0 refuses the kernel"), "nvrtc 13.0 refuses the kernel", "the compiler's patience"),
    (OutOfResources(300, 200, "shared memory"), "it takes 300 of shared memory, the limit is 200", "shared memory"),
    (TritonError("ptxas fatal: no registers"), "ptxas fatal: no registers", "the compiler's patience"),
    (RuntimeError(f"{PASS_FAILED}"), PASS_FAILED, "the compiler's patience"),
]


@pytest.mark.parametrize(
    ("failure", "text", "what"), FAILURES, ids=["blocks", "threads", "nvrtc", "memory", "assembler", "pass"]
)
def test_what_does_not_run_is_replaced_and_every_change_is_told(failure: Exception, text: str, what: str) -> None:
    device = Device({1: failure, 2: failure})
    with pytest.warns(RuntimeWarning, match="does not fit H200-SXM after all") as told:
        assert launch_what_fits(choice(1), device.launch, device.refuse) == choice(3)
    assert device.launched == [3]
    assert [(stages, refusal.what) for stages, refusal in device.refused] == [(1, what), (2, what)]
    assert len(told) == 2
    said = str(told[0].message)
    assert f"{text}. From now on gemm.pointer {dict(choice(2).config)}" in said
    # A device that is a part of one is no fault of the estimates.
    assert ("Please report" in said) == (what != RESIDENT)


@pytest.mark.parametrize(("failure", "is_asked_again"), [(SMALL, True), (CompileError("no"), False)])
def test_what_a_compiler_refuses_is_kept_for_later_processes_and_what_a_device_refuses_is_not(
    failure: Exception, is_asked_again: bool
) -> None:
    with pytest.warns(RuntimeWarning, match="does not fit"):
        launch_what_fits(choice(1), Device({1: failure}).launch, Device({}).refuse)
    new_process()
    later = Device({1: failure})
    with pytest.warns(RuntimeWarning, match="does not fit") if is_asked_again else nullcontext():
        launch_what_fits(choice(1), later.launch, later.refuse)
    assert later.compiled == ([1, 2] if is_asked_again else [2])


def test_what_was_doubted_is_replaced_without_a_word() -> None:
    """An estimated rule speaks against it: the sums leave no registers for the matrix to add."""
    asked = gemm(4096, 4096, 4096, source=1)
    doubted = decision("gemm.pointer", {**CONFIG, "num_stages": 1, "tile_m": 256}, asked)
    assert [
        rule.name for rule in load_spec(doubted.kernel).problem(H200, asked).estimates if not rule.holds(doubted.config)
    ]
    device = Device({1: OutOfResources(300, 200, "shared memory")})
    assert device.run(doubted) == 2


def test_what_spills_and_what_does_not_run_may_take_turns() -> None:
    """Only what spills counts towards the three further ones: what does not run was not to be expected."""
    device = Device({1: 64, 2: TritonError("no"), 3: 32, 4: TritonError("no"), 5: 8, 6: 16, 7: 4})
    with pytest.warns(RuntimeWarning, match="does not fit") as told:
        assert launch_what_fits(choice(1), device.launch, device.refuse) == choice(5)
    assert len(told) == 2
    assert device.launched == [5]
    assert max(device.compiled) == 6


def test_where_there_is_no_other_choice_its_error_is_raised() -> None:
    device = Device({10: OutOfResources(300, 200, "threads")})
    with pytest.raises(InfeasibleError, match="300 of threads required, the limit is 200"):
        device.run(choice(10))


@pytest.mark.parametrize(
    "error", [RuntimeError("the device is gone"), ValueError("a fault"), KeyboardInterrupt("by hand")]
)
def test_other_errors_are_the_callers(error: BaseException) -> None:
    def launch(_: Decision, /, *, may_spill: bool) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        launch_what_fits(choice(1), launch, lambda *_: pytest.fail("this is no refusal"))


class Looked:
    """A launch whose kernel is compiled, and says what it spills."""

    def __init__(self, n_spills: int) -> None:
        target = SimpleNamespace(backend="cuda", arch=90)
        self.kernel = SimpleNamespace(
            n_spills=n_spills, n_regs=255, metadata=SimpleNamespace(target=target, shared=1024)
        )

    def compiled(self) -> Any:
        return self.kernel


def test_a_look_at_cuda_kernels_tells_what_spills_and_what_would_wait_for_ever() -> None:
    stated = CompiledKernel("sm_90a", "nvrtc 13.0", 200_000, 168, 0, 12, "")
    with pytest.raises(SpilledError, match="12 bytes of a thread") as spilled:
        look([SimpleNamespace(compiled=lambda: CompiledCuda(stated))])
    assert spilled.value.compiled == stated
    clean = CompiledCuda(replace(stated, spill_bytes=0))
    assert (clean.n_regs, clean.n_spills, clean.metadata.shared) == (168, 0, 200_000)
    asked: list[str] = []
    look([SimpleNamespace(compiled=lambda: clean, check_resident=lambda: asked.append("is it resident"))])
    assert asked == ["is it resident"]
    spilling = SimpleNamespace(compiled=lambda: CompiledCuda(stated), check_resident=lambda: asked.append("again"))
    look([spilling], may_spill=True)
    assert asked == ["is it resident", "again"]


def test_a_look_raises_for_the_first_kernel_that_spills_any_register() -> None:
    look([Looked(0), Looked(0), SimpleNamespace(run=lambda: None)])
    with pytest.raises(SpilledError, match="4 bytes of a thread's registers go to memory") as spilled:
        look([Looked(0), Looked(1), Looked(9)])
    found = spilled.value.compiled
    assert (found.target, found.spill_bytes, found.registers_per_thread, found.smem_bytes) == ("sm_90", 4, 255, 1024)


@pytest.fixture
def _unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions and refusals of this test alone."""
    begin_anew(monkeypatch)


def choose(kernel: str, workload: Workload, fixed: Mapping[str, int] | None = None) -> Decision:
    return decide(Request(kernel, workload, H200, fixed=fixed or {}))


def refused(chosen: Decision, what: str = REGISTERS, required: int = 8, limit: int = 0) -> Decision:
    return refuse(chosen, Refusal(chosen.kernel, chosen.config, what, required, limit))


@pytest.mark.usefixtures("_unchosen")
def test_a_refused_choice_of_one_kernel_is_excluded_for_good() -> None:
    workload = gemm(1234, 2345, 3456)
    first = choose("gemm.pointer", workload)
    assert choose("gemm.pointer", workload) is first
    second = refused(first, "threads", 2, 1)
    assert second.config["num_warps"] != first.config["num_warps"]
    assert choose("gemm.pointer", workload) == second
    assert choose("gemm.pointer", workload, {"num_warps": 8}).config["num_warps"] == 8


@pytest.mark.usefixtures("_unchosen")
def test_a_kernel_without_any_other_choice_says_what_was_refused() -> None:
    only = choose("gemm.pointer", gemm(1235, 2345, 3456), {"num_warps": 8})
    with pytest.raises(InfeasibleError, match=r"the device refused .*: 2 of threads required"):
        refused(only, "threads", 2, 1)


def test_a_refusal_excludes_what_decides_how_many_blocks_wait_for_each_other() -> None:
    """The parameters that a kernel names decide, whatever else it has."""
    use = BlockUse(const(4), const(64), const(1024))
    config = {"placement": 2, "cluster": 16, "tile_batch": 8}
    others = [config | {"tile_batch": 16}, config | {"cluster": 8}, config | {"placement": 1}]

    def allowed(refusal: Refusal, *together: str) -> list[bool]:
        rule = refusal.rule(H200, use, together=together)
        return [rule.holds(point) for point in (config, *others)]

    resident = Refusal(POINTER, config, RESIDENT, 16, 8)
    assert allowed(resident, "placement", "cluster", "other") == [False, False, True, True]
    assert allowed(resident) == [False, True, True, True]
    assert allowed(Refusal(POINTER, config, "threads", 512, 256), "cluster") == [False, True, True, True]


def deciding(chosen: Decision) -> dict[str, int]:
    """The parameters that the registers of the kernel depend on."""
    from tests.support.gemm import use_of

    assert chosen.workload is not None
    spec = load_spec(chosen.kernel)
    use = use_of(spec, H200, chosen.workload, spec.problem(H200, chosen.workload))
    return {name: chosen.config[name] for name in sorted(use.registers_per_thread.variables & chosen.config.keys())}


@pytest.mark.usefixtures("_unchosen")
def test_after_one_that_spills_comes_another_one_and_then_one_that_is_all_but_sure_not_to() -> None:
    workload = gemm(4096, 4096, 4096, "fp8")
    first = choose("gemm.pointer", workload)
    second = refused(first)
    third = refused(second)
    assert len({tuple(deciding(chosen).items()) for chosen in (first, second, third)}) == 3
    # Times that differ by less are a tie.
    assert 0.999 * first.seconds <= second.seconds
    assert 0.999 * second.seconds <= third.seconds
    # The limit of one in ten is in whole percent of the registers.
    assert chance_of(third) <= 0.12
    assert choose("gemm.pointer", workload) == third
    # A quarter below where one in ten spills: one in twenty, by the flattest curve that there may be.
    fourth = refused(third)
    assert 0.999 * third.seconds <= fourth.seconds
    assert chance_of(fourth) < 0.05


@pytest.mark.usefixtures("_unchosen")
def test_after_two_that_spill_a_layer_hardly_spills() -> None:
    """Without care the third choice of this one would be all but sure to spill."""
    workload = workload_of("lstm", (64, 1024, 1, 1024), "bf16")
    chosen = choose("lstm.triton", workload)
    for _ in range(2):
        chosen = refused(chosen)
    assert chance_of(chosen) <= 0.12


def chance_of(chosen: Decision) -> float:
    from constrint.select.core_space import chance_of as chance
    from tests.support.gemm import use_of

    assert chosen.workload is not None
    spec = load_spec(chosen.kernel)
    problem = spec.problem(H200, chosen.workload)
    return chance(H200, use_of(spec, H200, chosen.workload, problem), problem.estimates, chosen.config)


@pytest.mark.usefixtures("_unchosen")
def test_where_everything_else_is_excluded_what_spills_stays_the_choice() -> None:
    """It runs, if slowly: a layer that was computed once must not be refused the next time."""
    workload = gemm(4096, 4096, 4096)
    fixed = deciding(choose("gemm.pointer", workload))
    only = choose("gemm.pointer", workload, fixed)
    with pytest.raises(InfeasibleError, match="spills 8 bytes a thread"):
        refused(only)
    assert choose("gemm.pointer", workload, fixed) == only
    device = Device({only.config["num_stages"]: 8})
    for _ in range(2):
        asked = choose("gemm.pointer", workload, fixed)
        assert launch_what_fits(asked, device.launch) == only


@pytest.fixture
def _anew() -> Iterator[None]:
    """Devices are looked up and warned about anew."""
    for cached in (devices.warn_once, devices._describe_index):
        cached.cache_clear()
    yield
    for cached in (devices.warn_once, devices._describe_index):
        cached.cache_clear()


@pytest.mark.usefixtures("_anew")
def test_a_device_without_a_model_is_warned_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def describe(index: int) -> DetectedDevice:
        asked.append(index)
        return DetectedDevice(index=index, source="torch", name="GPU of tomorrow", target="sm_190", sm_count=7)

    monkeypatch.setattr(devices, "describe_torch_device", describe)
    with pytest.warns(RuntimeWarning, match=r"no hardware model of GPU of tomorrow \(sm_190\)"):
        assert devices.gpu_of(torch.device("cuda", 0)) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert devices.gpu_of(torch.device("cuda", 0)) is None
        assert devices.gpu_of(torch.device("cuda", 1)) is None
    assert asked == [0, 1]


@pytest.mark.usefixtures("_anew")
def test_a_device_with_a_model_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = DetectedDevice(index=0, source="torch", name="NVIDIA H200", target="sm_90", model="h200")
    monkeypatch.setattr(devices, "describe_torch_device", lambda index: seen)
    assert devices.gpu_of(torch.device("cuda", 0)) is H200
