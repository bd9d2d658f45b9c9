"""Each placement of the recurrent CUDA kernels on the GPU of this machine: races, stray memory, stray barriers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import missing_packages, needs_gpu, needs_hopper, needs_nvrtc

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import compile_cuda
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cuda.shape import BLOCK, CLUSTER, GRID, RING, shape_of
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, workload_of
from constrint.tune.check import is_same
from tests.support.busy_gpu import HOLD
from tests.support.placed_layers import (
    BATCH,
    BROKEN,
    DIMS,
    HEADS,
    PLACEMENTS,
    TIME,
    PlacedLayer,
    config_in,
    gpu_here,
    streaming,
    usual_dims,
)

ROOT = Path(__file__).parents[3]
SANITIZER = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
needs_sanitizer = pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer, of the CUDA toolkit, is not there")
#: Exit status where the sanitizer has found something; and seconds for six small layers under it.
FOUND, LIMIT_S = 99, 300
REPEATS = 100


def sanitized(tool: str, *arguments: str) -> tuple[int, str]:
    """Status and output of `tests.support.placed_layers` under a tool of the sanitizer."""
    # Torch would put several tensors into one piece of memory, where a stray write hits another one.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    program = [sys.executable, "-m", "tests.support.placed_layers", *arguments]
    # Torch asks the driver for things that there are not, which is no error of a kernel's.
    options = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = [str(SANITIZER), "--tool", tool, *options, "--error-exitcode", str(FOUND), *program]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    return done.returncode, done.stdout + done.stderr


def test_the_model_puts_layers_into_every_placement() -> None:
    """What the tests on a GPU take for layers of each placement is there; needs no GPU."""
    assert set(usual_dims("h200")) == {BLOCK, CLUSTER, GRID}


@needs_nvrtc
def test_what_the_tests_on_a_gpu_launch_beside_the_layers_compiles() -> None:
    for source in (BROKEN, HOLD):
        assert compile_cuda(load_gpu("h200"), source).spill_bytes == 0


@needs_nvrtc
@pytest.mark.parametrize("direction", SUFFIX)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_layers_that_stream_weights_compile_with_some_in_every_memory(cell: str, direction: str) -> None:
    gpu, workload = load_gpu("h200"), workload_of(cell, (BATCH, TIME, HEADS, DIMS[GRID]), "bf16", direction)
    spec = load_spec(f"{workload.operation}.cuda")
    assert isinstance(spec, RnnSpec)
    config = streaming(config_in(gpu, spec, workload, GRID))
    assert shape_of(spec.cell, direction, DIMS[GRID], "bf16", config).shared_pairs.value({}) > 0
    assert spec.compile(gpu, workload, config).spill_bytes == 0


@pytest.mark.gpu
@needs_hopper
@needs_nvrtc
@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_the_sanitizer_finds_nothing_in_any_placement(tool: str) -> None:
    status, output = sanitized(tool)
    assert status == 0, output[-6000:]
    assert re.search(r"SUMMARY: 0 (errors|hazards)", output), output[-6000:]
    assert len(re.findall(r"error \d\.\d+ of the bound", output)) == len(PLACEMENTS) * len(SUFFIX)


@pytest.mark.gpu
@needs_gpu
@needs_nvrtc
@needs_sanitizer
def test_the_sanitizer_sees_kernels_that_are_loaded_as_ours_are() -> None:
    status, output = sanitized("memcheck", "broken")
    assert status == FOUND, output[-6000:]
    assert "past_the_end" in output


@pytest.mark.gpu
@needs_hopper
@needs_nvrtc
@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm"])
@pytest.mark.parametrize("direction", SUFFIX)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_results_are_right_and_do_not_change_over_a_hundred_repeats(placement: str, direction: str, cell: str) -> None:
    layer = PlacedLayer(cell, direction, PLACEMENTS[placement], gpu_here())
    first = {name: output.clone() for name, output in layer.run().items()}
    if cell != "slstm":  # whose c and n are in units of its rounded m
        assert layer.error() <= 1.0
    for repeat in range(1, REPEATS):
        for name, output in layer.run().items():
            assert is_same(first[name], output), (repeat, name)


@pytest.mark.gpu
@needs_hopper
@needs_nvrtc
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("direction", SUFFIX)
def test_words_of_the_ring_are_used_again_and_weights_are_read_from_global_memory(
    direction: str, cell: str, streams: bool
) -> None:
    layer = PlacedLayer(cell, direction, GRID, gpu_here(), time=2 * RING + 7, streams=streams)
    for _ in range(REPEATS // 10):
        layer.run()
        assert layer.error() <= 1.0
