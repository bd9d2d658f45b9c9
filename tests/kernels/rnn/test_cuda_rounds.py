"""How often a GPU is filled with clusters: a second block an SM counts where registers surely leave room for it."""

from __future__ import annotations

import numpy as np

from constrint.choose import Request, decide
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda.cost import rounds_and_sharing
from constrint.kernels.rnn.cuda.spec import SPECS
from constrint.kernels.rnn.spec import workload_of

H200 = load_gpu("h200")
NAMES = ("placement", "units", "tile_batch", "num_tiles", "warps_rows", "warps_depth", "register_pairs")
#: sLSTM of 4 heads x 192: 16 clusters, of which 15 fit at once with a block an SM.
WORKLOAD = workload_of("slstm", (16, 1024, 4, 192), "bf16", "backward")


def rounds(*values: int) -> float:
    config = dict(zip(NAMES, values, strict=True)) | {"streamed_pairs": 0, "prefetch": 3, "recompute": 0}
    columns = {name: np.array([value]) for name, value in config.items()}
    two = np.array([2])
    return float(rounds_and_sharing(H200, CELLS["slstm"], "backward", WORKLOAD, columns, two)[0][0])


def test_two_blocks_an_sm_are_no_promise_where_128_registers_are_estimated() -> None:
    assert rounds(1, 24, 4, 1, 1, 8, 3) == 2  # 256 threads: compiled, they have 136
    assert rounds(1, 24, 4, 1, 1, 4, 6) == 1  # 128 threads


def test_the_choice_runs_in_one_round() -> None:
    spec = next(each for each in SPECS if each.operation == WORKLOAD.operation)
    config = decide(Request(spec.full_name, WORKLOAD, H200, fixed={"recompute": 0})).program.steps[0].config
    assert rounds(*(config[name] for name in NAMES)) == 1
