"""Copies of transposed batches by words of 16 bytes: the same elements, and a gradient."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra [torch]")

import torch

from constrint.flashrnn.sequences import contiguous, copied_by_words, has_words, time_first
from tests.support.needs import needs_gpu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_words_hold_the_same_elements(dtype: torch.dtype) -> None:
    whole = torch.randn(5, 7, 32).to(dtype)
    whole[1, 2, 3] = torch.nan
    for x in (whole.transpose(0, 1), whole[:, 1:, 16:].transpose(0, 1), whole[:1].expand(3, 7, 32)):
        assert has_words(x)
        copy = copied_by_words(x)
        assert copy.is_contiguous()
        assert torch.equal(copy.view(torch.uint8), x.contiguous().view(torch.uint8))


def test_what_has_no_words_is_told() -> None:
    whole = torch.randn(5, 7, 36).to(torch.bfloat16)
    odd = (
        whole,
        whole.transpose(0, 2),
        whole[..., :32],
        whole[..., 1:33],
        torch.ones(()),
        whole[:1, :1, :1].expand(2, 2, 8),
    )
    assert not any(map(has_words, odd))
    assert contiguous(whole[..., :32]).is_contiguous()


@pytest.mark.gpu
@needs_gpu
def test_large_batches_and_their_gradients_are_those_of_torch() -> None:
    x = torch.randn(300, 40, 768, device="cuda").to(torch.bfloat16)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    weight = torch.randn(40, 300, 768, device="cuda").to(torch.bfloat16)
    for leaf, swapped in ((ours, time_first(ours)), (theirs, theirs.transpose(0, 1).contiguous())):
        assert swapped.is_contiguous()
        (swapped * weight).sum().backward()  # type: ignore[no-untyped-call]
        assert torch.equal(swapped, leaf.transpose(0, 1))
    assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]
