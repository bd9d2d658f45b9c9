"""Finds a user's kernel in a file, which is imported, and says in one sentence why it cannot be had."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from constrint.cli.asked.kernel_options import kernel_file_errors
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.tune.compile import require_triton
from constrint.tune.pool import as_if_here

_INTERPRET = "TRITON_INTERPRET"


def load_function(named: str, gpu: GpuModel) -> Any:
    """The function that `FILE.py:FUNCTION` names, or the only one of triton.jit in `FILE.py`.

    The file's code is run, with its output on stderr. Triton's driver tells it that the GPU is here, and its tensors
    have no data.

    Raises:
        UsageError: When there is no such file or function, or the file cannot be imported; says what went wrong where.
    """
    path, _, name = named.rpartition(":")
    if not path or named.endswith(".py"):
        path, name = named, ""
    if not path.endswith(".py"):
        raise UsageError(f"{named}: a kernel is named FILE.py:FUNCTION.")
    with kernel_file_errors(f"{path}:{name}", ""), contextlib.redirect_stdout(sys.stderr), _compiled_not_interpreted():
        require_triton()
        with as_if_here(gpu):
            module = _imported(Path(path), named)
    jitted = [one for one, value in vars(module).items() if _is_jitted(value, module.__name__)]
    if name:
        if not hasattr(module, name):
            raise UnknownNameError("function", name, jitted, f"Of {path}, those of triton.jit are known.")
        return getattr(module, name)
    if len(jitted) != 1:
        has = f"has several: {', '.join(jitted)}" if jitted else "has none"
        raise UsageError(f"{path}: name a function of triton.jit, {path}:NAME; the file {has}.")
    return getattr(module, jitted[0])


@contextlib.contextmanager
def _compiled_not_interpreted() -> Iterator[None]:
    """Kernels are kernels meanwhile, though the user may have Triton's interpreter on for other programs."""
    asked = os.environ.pop(_INTERPRET, None)
    try:
        yield
    finally:
        if asked is not None:
            os.environ[_INTERPRET] = asked


def _imported(path: Path, named: str) -> Any:
    from constrint.kernels.registry import load_file

    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # where the file's own imports of its neighbours are looked for
    try:
        return load_file(path, named)
    except SystemExit as ended:
        guard = 'put what it runs under `if __name__ == "__main__":`'
        raise UsageError(f"{named}: the file ended the program when it was imported ({ended.code}); {guard}.") from None
    finally:
        sys.path.remove(folder)


def _is_jitted(value: Any, module: str) -> bool:
    """Whether it is a kernel of this file, and not one that the file imported."""
    while hasattr(value, "fn") and not hasattr(value, "params"):
        value = value.fn
    return hasattr(value, "params") and hasattr(value, "is_gluon") and getattr(value, "__module__", "") == module
