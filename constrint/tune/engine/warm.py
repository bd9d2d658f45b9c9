"""What every process that compiles or launches would do first, done once: before processes are forked from this one.

Importing it loads what torch loads for its first arithmetic without data, nearly a thousand modules, and lets Triton
hash its own files. It touches no GPU, of which a forked process could make nothing.
"""

from __future__ import annotations

import importlib
from contextlib import suppress

#: Where versions of Triton keep the hash of their own files, which is kept for the life of a process.
_KEYS = ("triton.runtime.cache", "triton.compiler.compiler")


def warm() -> None:
    """Do it; what is not installed, or is elsewhere in another version, is left to whoever needs it."""
    with suppress(Exception):
        import torch

        torch.empty(1, device="meta") * 2
    for name in _KEYS:
        with suppress(Exception):
            importlib.import_module(name).triton_key()


warm()
