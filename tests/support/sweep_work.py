"""What the processes of a sweep do in tests: each layer's number of units says how it goes."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.rnn.entries import Entry, Job
from constrint.tune.measure import Measurement

CRASHES, NEVER_READY, NEVER_DONE = 128, 256, 512


def work(pipe: Any, job: Job) -> None:
    """Prepare and time nothing."""
    if job.sizes.dim == CRASHES:
        os._exit(3)
    if job.sizes.dim == NEVER_READY:
        time.sleep(1000)
    pipe.send("ready")
    pipe.recv()
    if job.sizes.dim == NEVER_DONE:
        time.sleep(1000)
    times = {"forward": Measurement(1e-3, 1e-6, 5), "both": Measurement(2e-3, 1e-6, 5)}
    pipe.send([Entry(dtype, name, times) for dtype in job.dtypes for name in ("torch.nn", "module auto")])
