"""PyTorch calls around a backward time loop.

Before it: recomputation of pre-activations that the forward pass did not store. After it: the gradients of wx, r and b
from the gradients of the slots of all steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.interface import RnnGradients, RnnInputs
from constrint.kernels.rnn.products import exact_sum

#: Tiles of a product that fill a device, and rows and columns of a tile.
FULL_TILES, TILE = 256, 128


def gradients_of(
    inputs: RnnInputs,
    slots: Tensor,  # (B, T, slots, N, D)
    before: Tensor,  # (B, T, N, D)
    initial: Tensor | None,  # (S, B, N, D)
    params: Tensor | None = None,  # (P, B, N, D)
    *,
    sums_by_sequence: bool,
) -> RnnGradients:
    """The gradients of all inputs.

    Args:
        inputs: The inputs.
        slots: Gradients of the slots.
        before: The h that enters each step.
        initial: Gradient of the initial states.
        params: Gradients of the elementwise parameters by sequence.
        sums_by_sequence: That of `weight_gradient`.
    """
    kind = inputs.kind
    r = weight_gradient(slots, before, kind.recurrent_slots, sums_by_sequence=sums_by_sequence).to(inputs.r.dtype)
    b = None if inputs.b is None else bias_gradient(kind, slots, inputs.b)
    of_params = None if params is None else params.sum(1)
    return RnnGradients(wx=input_gradient(kind, slots), r=r, b=b, initial=initial, params=of_params)


def gradients_of_slots(
    kind: RecurrentCell,
    slots: Tensor,  # (B, T, slots, N, D)
    before: Tensor,  # (B, T, N, D)
    dtype: torch.dtype,
    needs_r: bool,
    b: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of wx, of r if `needs_r`, and of b if it is not None, on a GPU, without a synchronisation."""
    r = fused_weight_gradient(kind, slots, before).to(dtype) if needs_r else None
    return input_gradient(kind, slots), r, None if b is None else bias_gradient(kind, slots, b)


def stacked_ends(end_h: Tensor | None, end_rest: Tensor | None, states: Tensor) -> Tensor | None:
    """Gradients of the last states as one tensor in fp32."""
    if end_h is None and end_rest is None:
        return None
    whole = torch.zeros(
        (states.shape[0], states.shape[1], *states.shape[3:]), dtype=torch.float32, device=states.device
    )
    if end_h is not None:
        whole[0] = end_h
    if end_rest is not None:
        whole[1:] = end_rest
    return whole


def input_gradient(kind: RecurrentCell, slots: Tensor) -> Tensor:
    """The gradient of wx, (B, T, G, N, D): the slots themselves where no part of a gate is kept apart."""
    return slots[:, :, : kind.num_gates].contiguous() if kind.keeps_parts_apart else slots


def bias_gradient(kind: RecurrentCell, slots: Tensor, b: Tensor) -> Tensor:
    """The gradient of b, (G, N, D), in its dtype."""
    return recurrent_rows(kind, slots.sum((0, 1), dtype=torch.float32)).to(b.dtype)


def recurrent_rows(kind: RecurrentCell, of_slots: Tensor) -> Tensor:
    """The rows of the recurrent slots, from a tensor with a row per slot."""
    last = kind.num_gates - 1
    return torch.cat((of_slots[:last], of_slots[last + 1 :])) if kind.keeps_parts_apart else of_slots


def fused_weight_gradient(
    kind: RecurrentCell,
    slots: Tensor,  # (B, T, slots, N, D)
    before: Tensor,  # (B, T, N, D)
) -> Tensor:
    """Gradient of r, (G, N, D, D), with as few products as its layout allows; one for all slots where N = 1.

    As `weight_gradient` says, sums in fp32 are split by sequences.
    """
    batch, _, _, heads, dim = slots.shape
    rows = kind.num_slots * dim
    is_wide = slots.dtype == torch.float32
    if heads == 1 and not is_wide:
        product = torch.mm(slots.view(-1, rows).t(), before.view(-1, dim))
        return recurrent_rows(kind, product.view(kind.num_slots, 1, dim, dim))
    if heads == 1:
        whole = exact_sum(slots.view(-1, rows), before.view(-1, dim))
        if whole is not None:
            return recurrent_rows(kind, whole.view(kind.num_slots, 1, dim, dim))
        parts = _num_parts(batch, rows, dim)
        of_slots, of_states = slots.view(parts, -1, rows).transpose(1, 2), before.view(parts, -1, dim)
        product = torch.mm(of_slots[0], of_states[0]) if parts == 1 else torch.bmm(of_slots, of_states).sum(0)
        return recurrent_rows(kind, product.view(kind.num_slots, 1, dim, dim))
    if is_wide:
        return weight_gradient(slots, before, kind.recurrent_slots, sums_by_sequence=True)
    states = before.view(-1, heads, dim).transpose(0, 1)  # (N, B * T, D)
    flat = slots.flatten(0, 1).permute(1, 2, 3, 0)  # (slots, N, D, B * T)
    r = slots.new_empty((kind.num_gates, heads, dim, dim))
    for gate, slot in enumerate(kind.recurrent_slots):
        torch.bmm(flat[slot], states, out=r[gate])
    return r


def weight_gradient(
    slots: Tensor,  # (B, T, slots, N, D)
    before: Tensor,  # (B, T, N, D)
    recurrent: tuple[int, ...],
    *,
    sums_by_sequence: bool,
) -> Tensor:
    """Gradient of r, (G, N, D, D): one product per gate over all steps, batched over heads.

    With `sums_by_sequence` it is a product for each of some groups of sequences, enough to fill a device: cuBLAS does
    not split a long sum in fp32. Each group takes the memory of one result.
    """
    heads, dim = slots.shape[3:]
    if sums_by_sequence:
        num_parts = _num_parts(slots.shape[0], heads * dim, dim)
        states = before.reshape(num_parts, -1, heads, dim)
        of_slot = (slots[:, :, slot].reshape(num_parts, -1, heads, dim) for slot in recurrent)
        return torch.stack([torch.einsum("ptnd,ptne->pnde", each, states).sum(0) for each in of_slot])
    states = before.reshape(-1, heads, dim).transpose(0, 1)  # (N, B * T, D)
    flat = slots.flatten(0, 1)
    return torch.stack([torch.bmm(flat[:, slot].permute(1, 2, 0), states) for slot in recurrent])


def _num_parts(batch: int, rows: int, columns: int) -> int:
    """Groups of sequences whose products fill a device together: the fewest equal ones, else one sequence each."""
    tiles = -(-rows // TILE) * -(-columns // TILE)
    return next((parts for parts in range(1, batch) if batch % parts == 0 and parts * tiles >= FULL_TILES), batch)


def states_before(
    h: Tensor,  # (B, T, N, D)
    initial: Tensor | None,  # (S, B, N, D)
    reset: Tensor | None,  # (B, T)
) -> Tensor:
    """The h that enters each step, (B, T, N, D)."""
    before = torch.empty_like(h)
    before[:, 1:] = h[:, :-1]
    before[:, 0] = 0.0 if initial is None else initial[0].to(h.dtype)
    if reset is not None:
        before.masked_fill_(reset.bool()[:, :, None, None], 0.0)
    return before


def recompute_gates(
    kind: RecurrentCell,
    wx: Tensor,  # (B, T, G, N, D)
    r: Tensor,  # (G, N, D, D)
    b: Tensor | None,  # (G, N, D)
    before: Tensor,  # (B, T, N, D)
) -> Tensor:
    """Pre-activations of all steps from the stored states, one GEMM per gate, in the dtype of `wx`.

    For a gate whose parts are kept apart it is the recurrent part: `wx` has the other one.
    """
    batch, time, gates, heads, dim = wx.shape
    flat = before.reshape(batch * time, heads, dim).transpose(0, 1)  # (N, B * T, D)
    out = torch.empty((batch, time, gates, heads, dim), dtype=wx.dtype, device=wx.device)
    for gate, recurrent in enumerate(kind.recurrent_slots):
        added = None if b is None else b[gate].to(wx.dtype)[:, None, :]
        if gate == recurrent:  # else the input's part is another slot
            x = wx[:, :, gate].reshape(batch * time, heads, dim).transpose(0, 1)
            added = x if added is None else x + added
        weights = r[gate].transpose(1, 2)
        product = torch.bmm(flat, weights) if added is None else torch.baddbmm(added, flat, weights)
        out[:, :, gate] = product.transpose(0, 1).reshape(batch, time, heads, dim)
    return out
