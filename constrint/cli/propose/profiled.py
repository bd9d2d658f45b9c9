"""`python -m constrint.cli.propose.profiled JSON`: launches one candidate where Nsight Compute looks at it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune.measure import Timer, call_of


def main(arguments: list[str]) -> None:
    """Launch the candidate twice: first so that all is compiled, then where the profiler looks."""
    told: Mapping[str, Any] = json.loads(arguments[0])
    spec, gpu = load_spec(told["kernel"]), load_gpu(told["gpu"])
    workload = Workload(told["operation"], told["sizes"], told["dtype"], told["options"])
    inputs = spec.inputs(gpu, workload, device=told["device"])
    outputs = spec.outputs(gpu, workload, inputs)
    call = call_of(spec.launches(gpu, workload, told["config"], inputs, outputs))
    timer = Timer(told["device"])
    for shown in (nullcontext(), timer.shown_to_profiler()):
        with shown:
            call()
            timer.synchronize()


if __name__ == "__main__":
    main(sys.argv[1:])
