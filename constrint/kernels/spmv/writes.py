"""Whether the values of a matrix were written, without reading them: torch's counters, and who holds the memory.

torch counts writes to a tensor, its views and its detached copies together. A matrix has two counters: its own, which
writes through `values()` raise, and that of the tensor that it was made of, which writes by that name raise. Both
together tell of every write as long as nothing else holds the memory: another matrix of the same values, an array of
another library, what `.data` returns. Who holds it is counted, too. What is not seen is a write by something that takes
hold of the memory and lets it go between two products; such code says so with
`torch.autograd.graph.increment_version(matrix)`, as for torch's own gradients. Needs torch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._python_dispatch import TorchDispatchMode


def version_of(tensor: Tensor) -> int:
    """torch's counter of writes; 0 for tensors of the inference mode, which have none."""
    return 0 if tensor.is_inference() else tensor._version


class Writes:
    """Writes to the values of a matrix.

    Args:
        matrix: The matrix, in CSR.
        values: Its values, detached: the one further tensor that holds the memory.
    """

    def __init__(self, matrix: Tensor, values: Tensor) -> None:
        self._holds: tuple[int, ...] | None = None
        self._given = None if matrix.is_inference() else _given_values(matrix)
        if self._given is None or self._given.is_inference() or self._given.data_ptr() != values.data_ptr():
            self._given = None
            return
        self._memory = values.untyped_storage()._cdata
        self._holds = _holds_alone()

    @property
    def number(self) -> int:
        """Counted writes to the tensor that the matrix was made of, by its own name."""
        return 0 if self._given is None else self._given._version

    def are_counted(self) -> bool:
        """Whether nothing else holds the memory, so that counters tell of every write."""
        return self._holds is not None and _holds(self._given, self._memory) == self._holds


def _holds(given: Any, memory: int) -> tuple[int, ...]:
    """How many hold a tensor in C++, and how many its memory; of the first, torch may say nothing."""
    uses = getattr(given, "_use_count", None)
    return (uses() if uses is not None else 0), torch._C._storage_Use_Count(memory)


@cache
def _holds_alone() -> tuple[int, ...] | None:
    """The counts of a matrix whose values nothing else holds; None where this torch does not say."""
    if not hasattr(torch._C, "_storage_Use_Count"):
        return None
    places = torch.tensor([0, 1]), torch.tensor([0])
    matrix = torch.sparse_csr_tensor(*places, torch.ones(1), (1, 1), check_invariants=False)
    values, given = matrix.values().detach(), _given_values(matrix)
    return None if given is None else _holds(given, values.untyped_storage()._cdata)


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the tensor of which an alias is made."""

    tensor: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator."""
        if func is torch.ops.aten.alias.default:
            self.tensor = args[0]
        return func(*args, **(kwargs or {}))


def _given_values(matrix: Tensor) -> Tensor | None:
    """The tensor that the matrix holds as its values; None where this torch does not show it.

    `values()` returns an alias of it that counts as the matrix does. The operator itself, called below what counts
    writes, makes its alias of the tensor in question.
    """
    seen = _Seen()  # type: ignore[no-untyped-call]
    key = DispatchKey.SparseCsrCUDA if matrix.is_cuda else DispatchKey.SparseCsrCPU
    try:
        with torch.no_grad(), seen:
            torch.ops.aten.values.default.redispatch(DispatchKeySet(key), matrix)
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return None
    return seen.tensor
