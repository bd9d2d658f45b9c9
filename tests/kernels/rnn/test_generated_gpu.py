"""Kernels with generated steps on a GPU: values and gradients by every back-end, against autograd in fp64."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from constrint.kernels.rnn.generated.backend import BACKENDS
from tests.support.defined_cells import OWN, SAME, draw_call, worst

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]
CELLS = OWN | {f"my_{name}": SAME[name] for name in ("lstm", "gru", "slstm")}


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("name", CELLS)
def test_values_and_gradients_equal_autograd(name: str, dtype: torch.dtype, backend: object) -> None:
    for sizes, optional in (((5, 33, 2, 64), True), ((16, 40, 1, 96), False)):
        call, upstream = draw_call(CELLS[name], sizes, dtype, 1, optional=optional, device="cuda")
        if name == "every_operation" and dtype == torch.bfloat16:
            pytest.skip("its comparisons change sides by a rounding")
        refusal = backend.refusal(call)  # type: ignore[attr-defined]
        if refusal or (backend.name.startswith("wgmma") and dtype == torch.float32):  # type: ignore[attr-defined]
            pytest.skip(refusal or f"{backend.name} takes 16 bits")  # type: ignore[attr-defined]
        if name == "my_slstm":
            # Its m jumps where the maximum changes sides, which a rounding can do: h alone has gradients.
            upstream = upstream[0], None, None  # type: ignore[assignment]
            if call.initial is not None:
                call.initial[2] = call.initial[2].abs() + 1.5
        made = backend.forward(call, saves=True)  # type: ignore[attr-defined]
        found = backend.backward(call, made, *upstream)  # type: ignore[attr-defined]
        values, gradients = worst(call, upstream, made, found)
        if name != "my_slstm":  # its c, n and m are in units of exp(m), which is rounded
            assert values <= 1.0
        assert gradients <= 1.0
        for _ in range(20):
            again = backend.forward(call, saves=True)  # type: ignore[attr-defined]
            assert torch.equal(again.hidden, made.hidden)
