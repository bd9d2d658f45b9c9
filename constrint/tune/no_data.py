"""Tensors of a GPU that is not here: those that a file makes on `cuda` have shapes and types, and no data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class WithoutData(TorchFunctionMode):  # type: ignore[misc]
    """Inside this block the device `cuda` stands for `meta`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch with `meta` in the place of `cuda`."""
        if func is torch.Tensor.cuda:
            return args[0].to("meta")
        named = {name: _without_data(value) for name, value in (kwargs or {}).items()}
        return func(*(_without_data(value) for value in args), **named)


def _without_data(value: Any) -> Any:
    if isinstance(value, str):
        return "meta" if value.partition(":")[0] == "cuda" else value
    return torch.device("meta") if isinstance(value, torch.device) and value.type == "cuda" else value
