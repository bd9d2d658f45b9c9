"""What a launch needs fits what was predicted, with every optional input; and what happens when it does not."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn import spec as rnn_spec
from constrint.kernels.rnn.spec import SPECS, Refusal, best_config, refuse, workload_of

KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="needs the extra [torch]: torch or triton is not installed",
)


def predicted_smem(
    gpu: GpuModel, cell: str, sizes: tuple[int, int, int, int], dtype: str, direction: str, config: Any
) -> int:
    workload = workload_of(cell, sizes, dtype, direction)
    spec = SPECS[workload.kernel]
    return spec.use(gpu, workload, spec.problem(gpu, workload)).smem_bytes.value(config)


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
    from constrint.kernels.rnn.build import compile_config

    gpu, sizes = load_gpu("h200"), (64, 1024, 1, dim)
    config = best_config(gpu, cell, sizes, dtype, direction)
    compiled = compile_config(gpu, workload_of(cell, sizes, dtype, direction), config, inputs)
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
def fresh() -> Iterator[None]:
    """Choices and refusals of this test alone."""
    kept = dict(rnn_spec._BEST), dict(rnn_spec._REFUSED)
    rnn_spec._BEST.clear()
    yield
    for memory, before in zip((rnn_spec._BEST, rnn_spec._REFUSED), kept, strict=True):
        memory.clear()
        memory.update(before)  # type: ignore[arg-type]


SIZES = (64, 1024, 1, 240)


@pytest.mark.usefixtures("fresh")
def test_a_refused_choice_is_not_made_again_and_others_are_untouched() -> None:
    gpu = load_gpu("h200")
    first = best_config(gpu, "elman", SIZES, "fp16", "forward")
    backward = best_config(gpu, "elman", SIZES, "fp16", "backward")
    limit = gpu.sm.max_smem_bytes_per_block
    second = refuse(gpu, "elman", SIZES, "fp16", "forward", refusal=Refusal(first, "shared memory", 262_144, limit))
    assert second != first
    before, after = (predicted_smem(gpu, "elman", SIZES, "fp16", "forward", c) for c in (first, second))
    assert after * 262_144 <= before * limit
    assert best_config(gpu, "elman", SIZES, "fp16", "forward") is second
    assert best_config(gpu, "elman", SIZES, "fp16", "backward") is backward
    third = refuse(gpu, "elman", SIZES, "fp16", "forward", refusal=Refusal(second, "threads", 256, 128))
    assert third["num_warps"] != second["num_warps"]


@pytest.mark.usefixtures("fresh")
def test_when_the_device_refuses_everything_the_conflict_says_so() -> None:
    gpu = load_gpu("h200")
    config = best_config(gpu, "elman", SIZES, "fp16", "forward")
    with pytest.raises(InfeasibleError, match="the device refused"):
        refuse(gpu, "elman", SIZES, "fp16", "forward", refusal=Refusal(config, "shared memory", 10**9, 10))


@needs_triton
@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_launch_that_does_not_fit_falls_back_warns_and_remembers(
    direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from triton.runtime.errors import OutOfResources

    from constrint.kernels.rnn import launch

    gpu, launched = load_gpu("h200"), []

    def small_device(
        kernel: Any, arguments: tuple[Any, ...], shape: Any, config: dict[str, int], constants: dict[str, Any]
    ) -> None:
        """A device on which whole heads take twice what was predicted."""
        assert len(arguments) + len(constants) == len(kernel.arg_names) - 1  # `first_group` is the launcher's
        assert constants["row_split"] == config["row_split"]
        launched.append(config)
        if config["row_split"] == 1:
            raise OutOfResources(262_144, 232_448, "shared memory")

    monkeypatch.setattr(launch, "device_model", lambda device: gpu)
    monkeypatch.setattr(launch, "_launch", small_device)
    wx, r = torch.zeros(33, 5, 1, 1, 240, dtype=torch.float16), torch.zeros(1, 1, 240, 240, dtype=torch.float16)
    initial, reset = torch.zeros(1, 33, 1, 240), torch.zeros(33, 5, dtype=torch.bool)

    def run(config: dict[str, int] | None = None) -> None:
        if direction == "forward":
            launch.forward("elman", wx, r, None, initial, reset=reset, config=config)
        else:
            states = torch.zeros(1, 33, 5, 1, 240, dtype=torch.float16)
            launch.backward("elman", states, None, wx, r, None, initial, states, wx, reset=reset, config=config)

    with pytest.warns(RuntimeWarning, match=r"'row_split': 1.* takes 262144 of shared memory, the limit is 232448"):
        run()
    refused, used = launched
    assert refused["row_split"] == 1 < used["row_split"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()
    assert launched[2:] == [used]
    # Who names a configuration is told that it does not fit.
    with pytest.raises(OutOfResources):
        run(refused)
