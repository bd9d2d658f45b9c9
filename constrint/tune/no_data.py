"""Tensors of a GPU that is not here: those that a file makes on `cuda` have shapes and types, and no data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any


def without_data() -> AbstractContextManager[Any]:
    """A context in which the device `cuda` stands for `meta` in every call of torch."""
    import torch
    from torch.overrides import TorchFunctionMode

    def of(value: Any) -> Any:
        if isinstance(value, str):
            return "meta" if value.partition(":")[0] == "cuda" else value
        return torch.device("meta") if isinstance(value, torch.device) and value.type == "cuda" else value

    class WithoutData(TorchFunctionMode):
        """Calls torch's functions with `meta` in the place of `cuda`."""

        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            """Call a function."""
            if func is torch.Tensor.cuda:
                return args[0].to("meta")
            return func(*map(of, args), **{name: of(value) for name, value in (kwargs or {}).items()})

    return WithoutData()
