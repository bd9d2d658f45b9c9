"""A decorated kernel's signature, and one call of it: its arguments by name, and the key that the choice depends on."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from constrint.errors import UnknownNameError, UsageError
from constrint.select.workload import Workload

Grid = tuple[int, ...] | Callable[..., tuple[int, ...]]
#: Names of operand types by torch's names of dtypes, where they are not the same.
DTYPE_NAMES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
}
#: Bits of the digest that stands for a text, or another value that is no number, in a workload.
_CODE_BITS = 31


class Signature:
    """The signature of a jitted function: its arguments, and which of them are compile-time constants.

    Args:
        function: A `triton.jit` function, also under `triton.heuristics`.

    Raises:
        UsageError: For anything else.
    """

    def __init__(self, function: Any) -> None:
        base = function
        while not inspect.isfunction(base) or base is function:
            if not hasattr(base, "fn") or not hasattr(function, "run"):
                raise UsageError(
                    f"constrint.autotune decorates a function of triton.jit, got {type(function).__name__}; "
                    "write @constrint.autotune(...) above @triton.jit."
                )
            base = base.fn
        self.function, self.base = function, base
        self.name: str = base.__name__
        parameters = inspect.signature(base).parameters
        self.names = tuple(parameters)
        self.constants = {name for name, p in parameters.items() if "constexpr" in str(p.annotation)}
        self.defaults = {n: p.default for n, p in parameters.items() if p.default is not inspect.Parameter.empty}

    @property
    def jitted(self) -> Any:
        """The function of `triton.jit` itself, below other decorators."""
        function = self.function
        while function.fn is not self.base:
            function = function.fn
        return function

    def computed(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments that `triton.heuristics` between the decorators computes from the others."""
        values: dict[str, Any] = {}
        function = self.function
        while function is not self.jitted:
            values |= {name: rule({**named, **values}) for name, rule in getattr(function, "values", {}).items()}
            function = function.fn
        return values

    def check_arguments(self, names: Iterable[str], what: str) -> tuple[str, ...]:
        """The names as a tuple, each checked to be an argument.

        Raises:
            UnknownNameError: For a name that is none.
        """
        if isinstance(names, str):
            raise UsageError(f"{self.name}: {what} takes a list of names, got the text {names!r}.")
        listed = tuple(names)
        for name in listed:
            if name not in self.names:
                raise UnknownNameError("argument", str(name), self.names, f"{what} of {self.name} names it.")
        return listed

    def check_params(self, params: Iterable[str]) -> None:
        """Raise for parameters that are neither compile-time arguments nor options of a launch.

        Raises:
            UsageError: For such a parameter; lists the possible ones.
        """
        for name in params:
            if name in self.constants:
                continue
            if name in self.names:
                raise UsageError(
                    f"{self.name}: the parameter {name!r} is an argument without a `tl.constexpr` annotation; "
                    "a configuration sets compile-time constants only."
                )
            if name not in launch_options():
                settable = [*sorted(self.constants), "num_warps", "num_stages", "num_ctas"]
                hint = f"A parameter of {self.name} is a `tl.constexpr` argument or an option of Triton's launch."
                raise UnknownNameError("parameter", name, settable, hint)


def launch_options() -> frozenset[str]:
    """Names of the options that a launch takes on any of Triton's back-ends."""
    import dataclasses
    from importlib import import_module

    names = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
    for vendor, options in (("nvidia", "CUDAOptions"), ("amd", "HIPOptions")):
        try:
            options_class = getattr(import_module(f"triton.backends.{vendor}.compiler"), options)
        except (ImportError, AttributeError):
            continue
        names |= {field.name for field in dataclasses.fields(options_class)}
    return frozenset(names)


@dataclass(frozen=True)
class Call:
    """One call of a decorated kernel.

    Args:
        signature: The kernel's signature.
        args: Positional arguments.
        kwargs: Arguments by name, options of the launch among them.
        grid: Blocks along each grid dimension, or a function that computes them.
        key: Names of the arguments that the choice depends on.
    """

    signature: Signature
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    grid: Grid
    key: tuple[str, ...]

    @cached_property
    def named(self) -> dict[str, Any]:
        """Every argument of the caller, by name."""
        named = dict(zip(self.signature.names, self.args, strict=False))
        return named | {name: value for name, value in self.kwargs.items() if name in self.signature.names}

    @cached_property
    def all_named(self) -> dict[str, Any]:
        """Every argument by name, with defaults for those that the caller left out."""
        return self.signature.defaults | self.named

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """The tensors among the arguments, by name."""
        return {name: value for name, value in self.named.items() if hasattr(value, "data_ptr")}

    @property
    def compiled_in(self) -> list[tuple[str, Any]]:
        """Arguments of the caller that change the compiled code: constants outside of the key, and options."""
        names, constants = self.signature.names, self.signature.constants
        every = {**self.all_named, **self.kwargs}
        compiled = ((n, v) for n, v in every.items() if (n in constants or n not in names) and n not in self.key)
        return sorted(compiled, key=lambda one: one[0])

    @property
    def device(self) -> Any:
        """The device of the first tensor; None where there is none."""
        return next((tensor.device for tensor in self.tensors.values()), None)

    @property
    def choice_key(self) -> tuple[Any, ...]:
        """Key of the choice: values of the key's arguments, then the types of all tensors."""
        values = [self.all_named.get(name) for name in self.key]
        return (*values, *(str(value.dtype) for value in self.named.values() if hasattr(value, "dtype")))

    @property
    def dtype(self) -> str:
        """Type of the operands: of the tensors, those of several types joined in order."""
        names = (str(value.dtype).removeprefix("torch.") for value in self.tensors.values())
        return "+".join(dict.fromkeys(DTYPE_NAMES.get(name, name) for name in names)) or "none"

    @property
    def key_numbers(self) -> dict[str, int]:
        """The key's values as whole numbers; a digest stands for a value of another type.

        Raises:
            UsageError: For a tensor, which has no value that a choice could depend on.
        """
        return {name: self._number(name, self.all_named.get(name)) for name in self.key}

    def _number(self, name: str, value: Any) -> int:
        if hasattr(value, "data_ptr"):
            raise UsageError(
                f"{self.signature.name}: the key names the tensor {name!r}; name numbers, such as its sizes. "
                "The types of all tensors belong to the key already."
            )
        if hasattr(value, "__index__"):
            return int(value)
        return int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:4], "big") >> (32 - _CODE_BITS)

    def num_blocks(self, values: Mapping[str, Any]) -> int:
        """Blocks of the grid for a configuration's values."""
        grid = self.grid(self.all_named | dict(values)) if callable(self.grid) else self.grid
        whole = 1
        for blocks in grid:
            whole *= int(blocks)
        return whole

    def workload(self, operation: str, sizes: Sequence[str], options: Sequence[str]) -> Workload:
        """The workload of an operation whose sizes and options are arguments of the call.

        Raises:
            UsageError: Where a size is missing or no whole number.
        """
        values = self.all_named
        for name in sizes:
            if not hasattr(values.get(name), "__index__"):
                raise UsageError(
                    f"{self.signature.name}: the size {name!r} has to be a whole number, got {values.get(name)!r}."
                )
        numbers = {name: int(values[name]) for name in sizes}
        chosen = {name: self._number(name, values[name]) for name in options if name in values}
        return Workload(operation, numbers, self.dtype, chosen)
