"""The rules of the kernel for many sequences: how a head is dealt to blocks, and a step to warpgroups."""

from __future__ import annotations

from collections.abc import Iterator

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.wgmma.shape import MOST_COLUMNS, SLICE_STEPS, WARP_ROWS, Shape
from constrint.model import any_of, divides
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.spec import Rule
from constrint.select.workload import Workload

#: Barriers of a block.
BARRIERS = 16


def rules_of(gpu: GpuModel, shape: Shape, workload: Workload) -> Iterator[Rule]:
    """Every rule beside the limits of a block."""
    v, steps = shape.v, shape.num_steps
    most = f"wgmma has at most {MOST_COLUMNS} columns: all gates of a block's units"
    yield Rule(shape.columns <= MOST_COLUMNS, "columns", because=most, kind=CERTAIN)
    fit = f"blocks that wait for each other run at once: {gpu.device.sm_count} fit, one on each {gpu.terms.sm}"
    yield Rule(shape.blocks <= gpu.device.sm_count, "co_resident", because=fit, kind=CERTAIN)
    halves = any_of(v["depth_groups"] == 1, divides(2 * SLICE_STEPS, steps))
    because = "warpgroups that share the depth have whole slices of weights each"
    yield Rule(halves, "whole_slices", because=because, kind=CERTAIN)
    met = any_of(v["depth_groups"] == 1, 4 * shape.row_groups < BARRIERS)
    because = f"two warps of the same sequences meet at a barrier of their own, and all at one; a block has {BARRIERS}"
    yield Rule(met, "barriers", because=because, kind=CERTAIN)
    because = "the depth of a warpgroup is made of whole chunks"
    yield Rule(divides(v["chunk"] * v["depth_groups"], steps), "whole_chunks", because=because, kind=CERTAIN)
    several = any_of(v["window"] >= 2 * v["chunk"], v["window"] >= shape.own_steps)
    because = "a chunk is asked for while another one is multiplied"
    yield Rule(several, "chunks_ahead", because=because, kind=CERTAIN)
    yield Rule(divides(v["chunk"], v["window"]), "whole_window", because="a window has whole chunks", kind=REDUNDANT)
    because = "a window larger than the depth holds nothing more"
    yield Rule(v["window"] < shape.own_steps + v["chunk"], "window_in_depth", because=because, kind=REDUNDANT)
    alone = any_of(v["probe"] == 0, v["chunk"] < shape.own_steps)
    yield Rule(alone, "others_to_ask_for", because="a chunk that is all there is waits alone anyway", kind=REDUNDANT)
    padding = "a larger tile would compute nothing but padding"
    rows = -(-workload.sizes["batch"] // WARP_ROWS) * WARP_ROWS
    if rows < 256:
        yield Rule(v["tile_batch"] <= max(rows, WARP_ROWS), "tile_in_batch", because=padding, kind=REDUNDANT)
