"""What a launch needs fits what was predicted, with every optional input; and what happens when it does not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from constrint.choose import Decision, Program, Refusal, Request, Step, decide, refuse
from constrint.errors import ConstrintError, InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn import candidates, dispatch
from constrint.kernels.rnn.cuda.spec import CudaRnnSpec
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.spec import SPECS as TRITON_SPECS
from constrint.model import Var
from tests.support.decisions import begin_anew
from tests.support.needs import needs_triton

SPECS = {spec.operation: spec for spec in TRITON_SPECS}
KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")


def predicted_smem(
    gpu: GpuModel, cell: str, sizes: tuple[int, int, int, int], dtype: str, direction: str, config: Any
) -> int:
    workload = workload_of(cell, sizes, dtype, direction)
    use = SPECS[workload.operation].use(gpu, workload, {key: Var(key) for key in KEYS})
    return use.smem_bytes.value(config)


@needs_triton
@pytest.mark.parametrize(
    ("cell", "dim", "dtype", "direction", "inputs"),
    [
        # Flags of eight bits gave the dots of the loop another layout: the weights were there twice.
        ("elman", 240, "fp16", "forward", ("rows", "lengths", "reset")),
        ("slstm", 64, "bf16", "backward", ("reset", "grad_last", "grad1", "grad2", "grad3")),
        # Two tf32 operands for each fp32 one.
        ("elman", 112, "fp32", "forward", ()),
        # An initial state in fp32 took twice the space of the others.
        ("elman", 400, "bf16", "forward", ("initial", "reset")),
    ],
)
def test_optional_inputs_take_no_more_shared_memory_than_predicted(
    cell: str, dim: int, dtype: str, direction: str, inputs: tuple[str, ...]
) -> None:
    gpu, sizes = load_gpu("h200"), (64, 1024, 1, dim)
    workload = workload_of(cell, sizes, dtype, direction)
    spec = SPECS[workload.operation]
    config = decide(Request(spec.full_name, workload, gpu)).config
    compiled = spec.compile(gpu, workload, config, inputs)
    assert compiled.smem_bytes <= predicted_smem(gpu, cell, sizes, dtype, direction, config)


@pytest.mark.parametrize(
    ("gpu", "cell", "dim", "dtype", "direction", "values", "smem_bytes"),
    [
        # Sixteen slices of the depth have more padding (first row: Triton 3.6, second: 3.9).
        ("a100-sxm4-80gb", "elman", 272, "fp32", "forward", (8, 32, 9, 16, 1, 1, 0), 131_072),
        ("mi210", "elman", 272, "fp32", "forward", (16, 64, 5, 16, 1, 1, 0), 131_072),
        # Flags of resets are copied ahead (Triton 3.9).
        ("h200", "elman", 80, "bf16", "backward", (64, 128, 1, 16, 4, 0, 0), 148_224),
        # Gradients of every state (Triton 3.9).
        ("b200", "slstm", 32, "fp16", "backward", (16, 32, 1, 2, 3, 0, 0), 32_896),
        # Weights that tcgen05 reads from shared memory, as two each.
        ("b200", "elman", 96, "fp32", "forward", (64, 64, 2, 4, 1, 0, 0), 53_248),
        # Flags of resets with one warp.
        ("a100-sxm4-80gb", "gru", 32, "fp16", "backward", (8, 32, 1, 1, 3, 0, 0), 8_320),
        # An initial state beside both parts of the weights.
        ("b200", "elman", 160, "bf16", "forward", (16, 32, 5, 4, 1, 1, 0), 18_432),
        ("a100-sxm4-80gb", "slstm", 544, "bf16", "forward", (16, 16, 34, 4, 1, 1, 0), 92_160),
    ],
)
def test_configurations_that_were_once_underpredicted(
    gpu: str, cell: str, dim: int, dtype: str, direction: str, values: tuple[int, ...], smem_bytes: int
) -> None:
    """What compilers took, with resets and initial states."""
    config = dict(zip(KEYS, values, strict=True))
    assert predicted_smem(load_gpu(gpu), cell, (64, 256, 2, dim), dtype, direction, config) >= smem_bytes


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Decisions and refusals of this test alone."""
    begin_anew(monkeypatch)
    dispatch.forget()
    yield
    dispatch.forget()


SIZES = (64, 1024, 1, 240)


def elman(gpu: GpuModel, direction: str) -> Decision:
    workload = workload_of("elman", SIZES, "fp16", direction)
    return decide(Request(SPECS[workload.operation].full_name, workload, gpu))


@pytest.mark.usefixtures("fresh")
def test_a_refused_choice_is_not_made_again_and_others_are_untouched() -> None:
    gpu = load_gpu("h200")
    first, backward = elman(gpu, "forward"), elman(gpu, "backward")
    limit = gpu.sm.max_smem_bytes_per_block
    second = refuse(first, Refusal(first.kernel, first.config, "shared memory", 262_144, limit))
    assert second.config != first.config
    before, after = (predicted_smem(gpu, "elman", SIZES, "fp16", "forward", c.config) for c in (first, second))
    assert after * 262_144 <= before * limit
    assert elman(gpu, "forward") is second
    assert elman(gpu, "backward") is backward
    third = refuse(second, Refusal(second.kernel, second.config, "threads", 256, 128))
    assert third.config["num_warps"] != second.config["num_warps"]


@pytest.mark.usefixtures("fresh")
def test_when_the_device_refuses_everything_the_conflict_says_so() -> None:
    choice = elman(load_gpu("h200"), "forward")
    with pytest.raises(InfeasibleError, match="the device refused"):
        refuse(choice, Refusal(choice.kernel, choice.config, "shared memory", 10**9, 10))


@needs_triton
@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_launch_that_does_not_fit_falls_back_warns_and_remembers(
    direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from triton.runtime.errors import OutOfResources

    from constrint.kernels.launch.triton import TritonLaunch
    from constrint.kernels.rnn.interface import ForwardOutputs, RnnInputs, RnnUpstream
    from constrint.kernels.rnn.triton.launch import TritonBackend

    gpu, launched = load_gpu("h200"), []

    def run_on_a_small_device(self: TritonLaunch) -> None:
        """A device on which whole heads take twice what was predicted."""
        assert set(self.arguments) == set(self.function.arg_names)
        launched.append(self.arguments["row_split"])
        if self.arguments["row_split"] == 1:
            raise OutOfResources(262_144, 232_448, "shared memory")

    monkeypatch.setattr(TritonLaunch, "run", run_on_a_small_device)
    wx, r = torch.zeros(33, 5, 1, 1, 240, dtype=torch.float16), torch.zeros(1, 1, 240, 240, dtype=torch.float16)
    initial, reset = torch.zeros(1, 33, 1, 240), torch.zeros(33, 5, dtype=torch.bool)
    inputs = RnnInputs("elman", wx, r, None, initial, None, reset)

    def run(choice: Decision) -> None:
        if direction == "forward":
            TritonBackend().forward(inputs, choice, save_gates=True)
        else:
            states = torch.zeros(1, 33, 5, 1, 240, dtype=torch.float16)
            upstream = RnnUpstream((states[0],), (None,))
            TritonBackend().backward(inputs, ForwardOutputs(states, wx), upstream, choice, clip=0.0)

    with pytest.warns(RuntimeWarning, match=r"'row_split': 1.* takes 262144 of shared memory, the limit is 232448"):
        run(elman(gpu, direction))
    refused, *used = launched
    assert refused == 1 < used[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(elman(gpu, direction))
    assert launched[1 + len(used) :] == used
    # Who names a configuration is told that it does not fit.
    workload = workload_of("elman", SIZES, "fp16", direction)
    kernel = f"{workload.operation}.triton"
    step = Step(direction, kernel, WHOLE, workload)
    named = Decision(Request(kernel, workload, None), Program(kernel, (step,)))
    with pytest.raises(ConstrintError, match="the device refused"):
        run(named)


WHOLE = dict(zip(KEYS, (16, 256, 1, 8, 1, 0, 0), strict=True))


@pytest.mark.usefixtures("fresh")
def test_decisions_follow_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both operators launch is looked up in one place, and made again after a refusal."""
    torch = pytest.importorskip("torch", reason="needs the extra [torch]")
    from constrint.kernels.launch import device

    class Elsewhere:
        """Inputs on a GPU that is not here."""

        shape, dtype, device = (64, 1024, 4, 12, 64), torch.bfloat16, torch.device("cuda", 0)

        def numel(self) -> int:
            return math.prod(self.shape)

        def element_size(self) -> int:
            return 2

    gpu = load_gpu("h200")
    monkeypatch.setattr(device, "gpu_of", lambda _: gpu)
    monkeypatch.setattr(dispatch, "gpu_of", lambda _: gpu)
    monkeypatch.setattr(CudaRnnSpec, "refusal_on", lambda *_: "")
    wx: Any = Elsewhere()
    forward, backward = (dispatch.decide_for("lstm", wx, "auto", d, recompute=False) for d in ("forward", "backward"))
    assert dispatch.saves_gates("lstm", wx, "auto")
    planned = candidates.decide_layer(workload_of("lstm", (64, 1024, 12, 64), "bf16"), gpu).program
    assert planned.steps == (forward.choice.step, backward.choice.step)
    assert dispatch.decide_for("lstm", wx, "auto", "forward", recompute=False) is forward
    again = dispatch.decide_for("lstm", wx, "triton", "forward", recompute=True)
    assert (again.choice.kernel, again.choice.config["recompute"]) == ("lstm.triton", 1)
    assert dispatch.decide_for("lstm", wx, "alternating", "forward", recompute=True).choice.config == {}
    name = forward.choice.kernel.partition(".")[2]
    following = dispatch.refuse(
        forward.choice, Refusal(forward.choice.kernel, forward.choice.config, "threads", 256, 128)
    )
    assert dispatch.decide_for("lstm", wx, name, "forward", recompute=False).choice.config == following.config
    Elsewhere.device = torch.device("cpu")
    with pytest.raises(UnsupportedError, match="backend 'triton': the fused kernels need a GPU, the device is cpu"):
        dispatch.decide_for("lstm", wx, "triton", "forward", recompute=False)


def test_a_layers_kernels_warn_once_of_an_unknown_version_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    from constrint.kernels.launch import device
    from constrint.kernels.rnn.triton import launch

    class StopError(Exception):
        """Raised where the launch would be made."""

    def stop(choice: Any) -> Any:
        raise StopError

    device.warn_once.cache_clear()
    monkeypatch.setattr(launch, "triton_version", lambda: "4.0.1")
    monkeypatch.setattr(launch, "workload_of_choice", stop)
    anything: Any = None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            with pytest.raises(StopError):
                launch.TritonBackend().loop("forward", anything, {}, anything, anything)
    assert len(seen) == 1
    assert "not with 4.0.1" in str(seen[0].message)
