"""Which back-end runs a call of a cell: kernels that say they can, else PyTorch."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from constrint.errors import UnknownNameError, UnsupportedError
from constrint.kernels.rnn.language.backends import AUTO, TORCH, CellBackend, CellCall
from constrint.kernels.rnn.language.looped import TORCH_BACKEND

#: Modules that have `BACKENDS`, a sequence of back-ends; those ahead are asked first. They are loaded for GPUs.
PROVIDERS = ("constrint.kernels.rnn.generated.backend", "constrint.kernels.rnn.staged.backend")


@cache
def provided() -> tuple[CellBackend, ...]:
    """Back-ends with kernels, those asked first ahead."""
    found: list[CellBackend] = []
    for name in PROVIDERS:
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        found.extend(module.BACKENDS)
    return tuple(found)


def backend_of(call: CellCall, name: str) -> CellBackend:
    """The back-end that runs a call.

    Raises:
        UnknownNameError: When no back-end has this name.
        UnsupportedError: When the named one cannot run the call; says why.
    """
    if name == TORCH or (name == AUTO and not call.wx.is_cuda):
        return TORCH_BACKEND
    if name == AUTO:
        able = (each for each in provided() if not each.refusal(call))
        return next(able, TORCH_BACKEND)
    known = {each.name: each for each in provided()}
    if name not in known:
        raise UnknownNameError("backend", name, (AUTO, TORCH, *known))
    refusal = known[name].refusal(call)
    if refusal:
        raise UnsupportedError(f"backend {name!r} cannot run this cell: {refusal}.")
    return known[name]
