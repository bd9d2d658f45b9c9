"""The CUDA kernels where others use the GPU, too, or where it is smaller than its model, or a program is interrupted.

Each test is a process of its own (`tests/support/busy_gpu.py`), which is ended where it hangs.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import Any

import pytest

from tests.support.needs import missing_packages, needs_gpu, needs_hopper, needs_nvrtc

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from tests.support.busy_gpu import ROUNDS, start

pytestmark = [pytest.mark.gpu, needs_gpu, needs_hopper, needs_nvrtc]

#: Seconds after which a program hangs: starting and compiling takes 10 to 20.
LIMIT_S = 120
#: Seconds that a program runs before it is interrupted, and how often that is done.
BEFORE_S, TURNS = 0.5, 6
#: The same layer on other blocks: sums in another order, rounded to bf16 step by step.
ALIKE = 0.1
#: Each of two launches may be off by as much as rounding explains, one up and the other down.
BOTH_ROUND = 2.0


def found_by(name: str, interrupts: int = 0) -> Any:
    """What a program found; it is interrupted each time it says that it is running."""
    process = start(name)
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        for _ in range(interrupts):
            while (line := process.stdout.readline()) not in ("running\n", ""):
                pass
            if not line:
                break
            time.sleep(BEFORE_S)
            process.send_signal(signal.SIGINT)
        out, error = process.communicate()
    finally:
        timer.cancel()
    assert process.returncode != -signal.SIGKILL, f"{name} hangs: it was ended after {LIMIT_S} s; {error[-2000:]}"
    assert process.returncode == 0, error[-4000:]
    return json.loads(out.splitlines()[-1])


def test_layers_of_all_placements_in_threads_on_streams_at_once() -> None:
    found = found_by("threads_on_streams")
    assert found["same"] == [ROUNDS] * len(found["same"])
    assert len(found["same"]) == 4, "one layer of each placement, and a second one of the grid"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_every_device_gives_the_same_and_the_tensors_say_which_one_it_is() -> None:
    found = found_by("devices")
    assert found["same"] == found["of"] > 0


@pytest.mark.parametrize("name", ["beside_a_stream", "beside_a_process"])
def test_layers_wait_for_sms_that_others_hold_and_are_right(name: str) -> None:
    found = found_by(name)
    print(found)
    assert found["same"] == found["of"] > 0


def test_on_a_slice_fewer_blocks_run_and_what_does_not_fit_goes_elsewhere() -> None:
    found = found_by("on_a_slice")
    assert found["error"] <= ALIKE
    assert found["finite"]
    print(found)
    assert any("does not fit" in each and "16 SMs here" in each for each in found["told"])
    assert "no config of" in found["refused"]


def test_in_a_green_context_nothing_hangs_and_nothing_is_wrong() -> None:
    try:
        from torch.cuda.green_contexts import SUPPORTED
    except ImportError:
        SUPPORTED = False  # noqa: N806
    if not SUPPORTED:
        pytest.skip("this torch has no green contexts")
    found = found_by("in_a_green_context")
    for each in found["outcomes"]:
        if "refused" in each:
            continue
        # Other blocks sum in another order; where nothing else was chosen, nothing is computed otherwise.
        assert each["same"] or each["inside"] != each["outside"], each
        assert each["over_bound"] <= BOTH_ROUND, each
    print(found)
    assert found["same_again"], "the device is as usable as before"


def test_an_interrupted_program_goes_on() -> None:
    found = found_by("interrupted", TURNS)
    assert found == {"caught": TURNS, "same": TURNS, "of": TURNS}
