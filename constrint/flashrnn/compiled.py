"""torch.compile of a layer by itself: it runs as it does without, since there is nothing to fuse it with.

Guards, AOTAutograd's runtime and Inductor's wrapper take the host longer than the plans of a small layer. A layer
within a compiled model, with `fullgraph=True` or in an export is one operator of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Outside:
    """The call of a layer that Dynamo does not trace; `run` is there once `is_alone` was asked.

    `layers` puts its class here, whose `forward` begins a graph and whose `_forward` is then run.
    """

    layer: Any = None
    run: Callable[..., Any] | None = None


def is_alone() -> bool:
    """Whether Dynamo begins a graph with the call of a layer, and may leave it out; called while it traces."""
    import torch._dynamo
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        translator: Any = InstructionTranslator.current_tx()
        begins = translator.f_code is Outside.layer.forward.__code__
        is_whole = translator.one_graph or translator.export or getattr(translator, "error_on_graph_break", False)
    except AttributeError:  # of another version: the layer is traced
        return False
    if Outside.run is None:
        Outside.run = torch._dynamo.disable(Outside.layer._forward)  # type: ignore[no-untyped-call]
    return begins and not is_whole


# Dynamo calls it once and takes its result as a constant; torch's decorator would import Dynamo here.
is_alone._dynamo_marked_constant = True  # type: ignore[attr-defined]
