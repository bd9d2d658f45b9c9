"""NX-AI's `flashrnn`: its names, orders and configuration on top of `rnn`, so that one import changes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UnknownNameError
from constrint.flashrnn import checks
from constrint.flashrnn.functional import rnn
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.dispatch import AUTO

#: NX-AI's names of back-ends -> ours.
BACKENDS = {
    "vanilla": checks.REFERENCE,
    "vanilla_fwbw": "alternating",
    "cuda": "alternating",
    "cuda_fused": AUTO,
    "triton_fused": AUTO,
}
#: Our recurrent gate -> its place in NX-AI's R and b; the GRU's stand in the order n, r, z there.
GRU_GATES = (1, 2, 0)
#: Our orders of dimensions in NX-AI's letters: B, T, G gates, H heads, D units, P units before, S states.
LAYOUTS = {"input_shape": "BTGHD", "recurrent_shape": "GHDP", "bias_shape": "GHD", "output_shape": "SBTHD"}
#: Fields of a configuration that change results and are not supported, with the values that change nothing.
MISSING: dict[str, tuple[Any, ...]] = {
    "forward_clipval": (None,),
    "constants": (None, {}),
    "dtype_acc": (None, "float32"),
}
#: A limit that lets no gradient through.
NOTHING = torch.finfo(torch.float32).tiny


def flashrnn(
    Wx: Tensor,  # (B, T, G, N, D)  # noqa: N803
    R: Tensor,  # (G, N, D, D)  # noqa: N803
    b: Tensor,  # (G, N, D); GRU: (4, N, D)
    states: Tensor | None = None,  # (S, B, 1, N, D)
    function: str = "lstm",
    config: Any = None,
    backend: str = AUTO,
    dtype: str | None = "bfloat16",
) -> tuple[Tensor, Tensor]:
    """Run a recurrence under the names and orders of NX-AI's `flashrnn`, so that one import changes.

    | NX-AI | here |
    |---|---|
    | `Wx`, `R`, `b`, `function` | `wx`, `r`, `b`, `cell` of `rnn` |
    | GRU: `R` holds n, r, z; `b` holds n (recurrent), r, z, n (input) | r, z, n; the input's bias is part of `wx` |
    | LSTM, sLSTM: i, f, z, o | the same |
    | `dtype="bfloat16"`: inputs are converted to it | the inputs' own dtype; here as there, None keeps it |
    | `cuda_fused`, `triton_fused`; `cuda`; `vanilla` | `auto`; `alternating`; `reference` (ours are taken too) |

    A `config`, NX-AI's own object or a mapping of its fields, goes before `function`, `backend` and `dtype`, as there.
    Of its fields `function`, `backend`, `dtype`, `gradient_recurrent_clipval`, `gradient_recurrent_cut`,
    `initial_val`, `trainable_r`, `trainable_b` and the four shapes have the same meaning here. Fields that configure
    NX-AI's kernels have no effect: the solver chooses. `forward_clipval`, `constants` and `dtype_acc` are not there; a
    warning says so once where one is set.

    Returns:
        All states (S, B, T, N, D) and the last states (S, B, 1, N, D).
    """
    fields = {} if config is None else _fields_of(config)
    function, dtype = fields.get("function", function), fields.get("dtype", dtype)
    backend = fields.get("backend", backend)
    checks.check_cell(function)
    operand_dtype = _dtype(dtype)
    wx, r, b = (
        _laid_out(tensor, fields, name).to(operand_dtype)
        for tensor, name in ((Wx, "input_shape"), (R, "recurrent_shape"), (b, "bias_shape"))
    )
    r, b = (
        tensor if _trains(fields, name) else tensor.detach()
        for tensor, name in ((r, "trainable_r"), (b, "trainable_b"))
    )
    if states is None:
        states = _initial(fields.get("initial_val", 0.0), function, wx)
    else:
        states = _laid_out(states, fields, "output_shape").to(operand_dtype)
    if function == "gru":
        if b.shape[0] == 4:
            wx = torch.cat([wx[:, :, :2], wx[:, :, 2:] + b[3]], dim=2)
        order = list(GRU_GATES)
        r, b = r[order], b[order]
    clip = NOTHING if fields.get("gradient_recurrent_cut") else fields.get("gradient_recurrent_clipval")
    results = rnn(
        *(wx, r, b, states), cell=function, backend=BACKENDS.get(backend, backend), gradient_recurrent_clip=clip
    )
    shape = fields.get("output_shape", LAYOUTS["output_shape"])
    every, last = (tensor.permute([LAYOUTS["output_shape"].index(letter) for letter in shape]) for tensor in results)
    return every, last


def _fields_of(config: Any) -> Mapping[str, Any]:
    """The fields of a configuration; warns of those that are set and not supported.

    Raises:
        TypeError: When it is neither a mapping nor an object with the fields.
    """
    if isinstance(config, Mapping):
        fields = dict(config)
    elif hasattr(config, "__dict__") and not isinstance(config, type):
        fields = dict(vars(config))
    else:
        raise TypeError(f"config must be a FlashRNNConfig or a mapping of its fields, got {type(config).__name__}.")
    ignored = [name for name, idle in MISSING.items() if name in fields and fields[name] not in idle]
    # Gates that train beside others that do not.
    ignored += [name for name in ("trainable_r", "trainable_b") if len(set(_each(fields, name))) > 1]
    if ignored:
        _note(tuple(f"{name}={fields[name]}" for name in ignored))
    return fields


def _each(fields: Mapping[str, Any], name: str) -> tuple[bool, ...]:
    """Whether the weights of each gate train; one value where the configuration has one for all gates."""
    value = fields.get(name, True)
    return tuple(value) if isinstance(value, (list, tuple)) else (bool(value),)


def _trains(fields: Mapping[str, Any], name: str) -> bool:
    return any(_each(fields, name))


@lru_cache(maxsize=64)
def _note(ignored: tuple[str, ...]) -> None:
    """Warn once of fields of a configuration that have no effect."""
    warnings.warn(
        f"flashrnn: {', '.join(ignored)} of config has no effect here: the result is that without it.",
        UserWarning,
        stacklevel=4,
    )


def _dtype(name: str | None) -> torch.dtype | None:
    dtype: torch.dtype | None = None if name is None else getattr(torch, str(name), None)
    if name is not None and dtype not in checks.DTYPES:
        raise UnknownNameError("dtype", str(name), [str(one).removeprefix("torch.") for one in checks.DTYPES])
    return dtype


def _laid_out(tensor: Tensor, fields: Mapping[str, Any], name: str) -> Tensor:
    """A tensor in our order of dimensions.

    Raises:
        UnknownNameError: When the configuration states an order that is none of the same letters.
    """
    ours = LAYOUTS[name]
    theirs = fields.get(name, ours)
    if sorted(theirs) != sorted(ours):
        raise UnknownNameError(name, theirs, [ours])
    return tensor if theirs == ours else tensor.permute([theirs.index(letter) for letter in ours])


def _initial(values: Any, function: str, wx: Tensor) -> Tensor | None:
    """Initial states filled with `values`, one for all states or one for each; None for zeros."""
    number = CELLS[function].num_states
    each = tuple(values) if isinstance(values, (list, tuple)) else (values,) * number
    if not any(each):
        return None
    batch, _, _, heads, dim = wx.shape
    return torch.stack([wx.new_full((batch, heads, dim), float(value)) for value in each])
