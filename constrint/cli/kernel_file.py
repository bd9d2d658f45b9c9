"""A user's file of Triton kernels: imported as if a named GPU were here, and the configurations of its autotuner."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer

from constrint.answers.compiled import Setting
from constrint.cli.options import kernel_file_errors, one_line
from constrint.cli.source_file import import_file
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.tune.compile import require_triton
from constrint.tune.pool import as_if_here
from constrint.tune.signature import jitted_function, jitted_or_none

_INTERPRET = "TRITON_INTERPRET"
#: Most failed statements of a file that a note names.
_MOST_TOLD = 3


def load_function(named: str, gpu: GpuModel) -> Any:
    """The function that `FILE.py:FUNCTION` names, or the only triton.jit function of `FILE.py`.

    The file is run anew for each GPU, with its output on stderr. Triton's driver reports the GPU as present, tensors on
    it have no data, and `torch.cuda` has the GPU's capability, name and properties. Statements that fail outside the
    kernel are left out, and a note names them.

    Raises:
        UsageError: When the file or the function is missing, or is not defined since a statement failed; names the
            place and the reason.
    """
    path, _, name = named.rpartition(":")
    if not path or named.endswith(".py"):
        path, name = named, ""
    if not path.endswith(".py"):
        raise UsageError(f"{named}: a kernel is named FILE.py:FUNCTION.")
    with kernel_file_errors(f"{path}:{name}", ""), contextlib.redirect_stdout(sys.stderr), _compiled_not_interpreted():
        require_triton()
        with as_if_here(gpu):
            names, module = _names_of(Path(path), named, name)
    jitted = [one for one, value in names.items() if _is_jitted(value, module)]
    if name:
        if name not in names:
            raise UnknownNameError("function", name, jitted, f"Of {path}, those of triton.jit are known.")
        return names[name]
    if len(jitted) != 1:
        has = f"has several: {', '.join(jitted)}" if jitted else "has none"
        raise UsageError(f"{path}: name a function of triton.jit, {path}:NAME; the file {has}.")
    return names[jitted[0]]


@contextlib.contextmanager
def _compiled_not_interpreted() -> Iterator[None]:
    """Switch off Triton's interpreter, which the user may have on for other programs."""
    interpreter = os.environ.pop(_INTERPRET, None)
    try:
        yield
    finally:
        if interpreter is not None:
            os.environ[_INTERPRET] = interpreter


def _names_of(path: Path, named: str, kernel: str) -> tuple[Mapping[str, Any], str]:
    """The names that a file defines, and its module's name; a note says which of its statements failed.

    Raises:
        Exception: The failure of the kernel's own statement, else the first one, where the kernel is not defined.
    """
    module, failed = import_file(path, named, lambda names: jitted_or_none(names.get(kernel)) is not None)
    names, told = vars(module), [f"line {one.line}: {_told(one.error)}" for one in failed[:_MOST_TOLD]]
    if not failed:
        return names, module.__name__
    if kernel not in names if kernel else not any(_is_jitted(value, module.__name__) for value in names.values()):
        first = next((one for one in failed if kernel and one.defines == kernel), failed[0])
        if isinstance(first.error, SystemExit):
            guard = 'put what it runs under `if __name__ == "__main__":`'
            end = f"the file ended the program when it was imported ({first.error.code}), in line {first.line}"
            raise UsageError(f"{named}: {end}; {guard}.")
        if first is not failed[0]:
            raise UsageError(f"{named}: line {first.line}: {_told(first.error)}; before it, {told[0]}.")
        raise first.error
    more = f" and {len(failed) - _MOST_TOLD} more" if len(failed) > _MOST_TOLD else ""
    _note_once(f"note: {path} is taken without what failed in it: {'; '.join(told)}{more}")
    return names, module.__name__


@cache
def _note_once(text: str) -> None:
    """Print a note once: a file is run for each GPU."""
    typer.echo(text, err=True)


def _told(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}").removesuffix(".")


def _is_jitted(value: Any, module: str) -> bool:
    """Whether a value is a kernel that the module defines rather than imports."""
    while hasattr(value, "fn") and not hasattr(value, "params"):
        value = value.fn
    return hasattr(value, "params") and hasattr(value, "is_gluon") and getattr(value, "__module__", "") == module


def autotuned_configs(function: Any) -> tuple[Any, ...]:
    """The objects of `triton.Config` in the list of a kernel's `triton.autotune`; empty where it has none."""
    while function is not None and not hasattr(function, "configs"):
        function = getattr(function, "fn", None)
    return tuple(getattr(function, "configs", ()))


def setting_of(function: Any, config: Any) -> Setting:
    """A configuration's constants, which are arguments of the kernel, and its options of the compiler.

    On AMD options stand among the constants of a `triton.Config` (`matrix_instr_nonkdim`, `waves_per_eu`): what is no
    argument of the kernel is an option, as Triton's launch takes it.
    """
    arguments = {param.name for param in jitted_function(function).params}
    values = config.all_kwargs()
    return Setting(
        {name: value for name, value in values.items() if name in arguments},
        {name: value for name, value in values.items() if name not in arguments},
    )


def own_configs(function: Any, constants: Mapping[str, Any]) -> list[Setting]:
    """The configurations of a kernel's `triton.autotune`; none if the given constants set one of their parameters.

    Args:
        function: The kernel.
        constants: The given values.
    """
    settings = [setting_of(function, config) for config in autotuned_configs(function)]
    return [] if any(constants.keys() & one.constants.keys() for one in settings) else settings
