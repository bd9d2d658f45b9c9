"""torch.jit.script: the module of `torch.nn` that is compiled in the place of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from constrint.errors import UnsupportedError
from constrint.kernels.rnn.dispatch import AUTO

if TYPE_CHECKING:
    from constrint.flashrnn.parameters import RecurrentParameters

#: The class of `torch.nn` for each cell.
_CLASSES: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN, "elman_relu": nn.RNN}


def torch_module(module: RecurrentParameters) -> nn.Module:
    """A module of `torch.nn` with the same parameters: the tensors themselves, no copies.

    Raises:
        UnsupportedError: When `torch.nn` has no module that computes the same.
    """
    refusal = _refusal(module)
    if refusal:
        raise UnsupportedError(
            f"torch.jit.script and as_torch take the module of torch.nn that computes the same as a "
            f"{type(module).__name__}, and there is none {refusal}. Use torch.jit.trace, torch.export or "
            "torch.compile, which take every layer."
        )
    options: dict[str, Any] = {"proj_size": module.proj_size} if module.cell == "lstm" else {}
    if module.cell.startswith("elman"):
        options["nonlinearity"] = "tanh" if module.cell == "elman" else "relu"
    layer: Any = _CLASSES[module.cell](
        *(module.input_size, module.hidden_size, module.num_layers),
        bias=module.bias,
        batch_first=module.batch_first,
        dropout=module.dropout if module.num_layers > 1 else 0.0,
        bidirectional=module.bidirectional,
        device="meta",
        **options,
    )
    for name, weight in module.named_parameters():
        setattr(layer, name, weight)
    layer.flatten_parameters()
    layer.train(module.training)
    return layer  # type: ignore[no-any-return]


def _refusal(module: RecurrentParameters) -> str:
    """The option with which `torch.nn` has no such module; empty if it has one."""
    if module.cell not in _CLASSES:
        return f"for the cell {module.cell}"
    if module.num_heads > 1:
        return f"with num_heads={module.num_heads}"
    if module.gradient_recurrent_clip is not None:
        return f"with gradient_recurrent_clip={module.gradient_recurrent_clip}"
    if module.backend != AUTO:
        return f"with backend={module.backend!r}"
    if "parametrizations" in module._modules:
        return "with parametrizations: remove them first"
    return ""
