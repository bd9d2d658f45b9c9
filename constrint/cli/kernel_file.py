"""A user's file of Triton kernels: imported as if a named GPU were here, and the configurations of its autotuner."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from constrint.answers.compiled import Setting
from constrint.cli.options import kernel_file_errors
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.tune.compile import require_triton
from constrint.tune.pool import as_if_here
from constrint.tune.signature import jitted_function

_INTERPRET = "TRITON_INTERPRET"


def load_function(named: str, gpu: GpuModel) -> Any:
    """The function that `FILE.py:FUNCTION` names, or the only triton.jit function of `FILE.py`.

    The file is imported anew for each GPU, with its output on stderr. Triton's driver reports the GPU as present,
    tensors have no data, and `torch.cuda` has the GPU's capability, name and properties.

    Raises:
        UsageError: When the file or the function is missing, or the import fails; names the place and the reason.
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
    """Switch off Triton's interpreter, which the user may have on for other programs."""
    interpreter = os.environ.pop(_INTERPRET, None)
    try:
        yield
    finally:
        if interpreter is not None:
            os.environ[_INTERPRET] = interpreter


def _imported(path: Path, named: str) -> Any:
    from constrint.kernels.registry import load_file

    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # for the file's imports of its neighbours
    try:
        module = load_file(path, named)
        # The next GPU may have other configurations: the file asks for the GPU as it is imported.
        del sys.modules[module.__name__]
        return module
    except SystemExit as ended:
        guard = 'put what it runs under `if __name__ == "__main__":`'
        raise UsageError(f"{named}: the file ended the program when it was imported ({ended.code}); {guard}.") from None
    finally:
        sys.path.remove(folder)


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
