"""What is compiled: every combination of the constants and options that were given, or a kernel's own list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.tune.signature import option_names, read_value, split_commas

#: Compiling takes about a second each.
MOST = 256


@dataclass(frozen=True)
class Setting:
    """The constants and the options of one kernel to compile, by name."""

    constants: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """Both."""
        return {**self.constants, **self.options}


def read_values(texts: Sequence[str], option: str) -> dict[str, list[Any]]:
    """The values of each name, of texts such as `BLOCK_M=64,128,BLOCK_N=128`.

    Raises:
        UsageError: For a text that does not begin with a name.
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name = ""
        for part in split_commas(text):
            before, equals, after = part.partition("=")
            if equals and before.strip().isidentifier():
                name = before.strip()
                values[name] = []
            if not name:
                raise UsageError(f"{option} takes NAME=VALUE[,VALUE][,NAME=VALUE], got {text!r}.")
            values[name].append(read_value(after.strip() if equals else part))
    return values


def read_options(texts: Sequence[str], **numbers: str | None) -> dict[str, list[Any]]:
    """The values of each option of Triton's: `NAME=VALUE` texts, and those that have an option to themselves.

    Raises:
        UsageError: For a text that is no `NAME=VALUE`, and for a number of warps or stages that is none.
    """
    values: dict[str, list[Any]] = {}
    for name, text in numbers.items():
        if text is not None:
            values |= read_values([f"{name}={text}"], "--option")
            if not all(type(value) is int and value > 0 for value in values[name]):
                raise UsageError(
                    f"--{name.replace('_', '-')} takes a whole number from 1, or several: 4,8; got {text!r}."
                )
    return values | read_values(texts, "--option")


def combinations(constants: Mapping[str, list[Any]], options: Mapping[str, list[Any]]) -> list[Setting]:
    """Every combination of values, the last name's values varying first.

    Raises:
        UsageError: When there are too many.
    """
    names = [*constants, *options]
    number = 1
    for values in (*constants.values(), *options.values()):
        number *= len(values)
    if number > MOST:
        raise UsageError(f"these are {number:,} kernels to compile, about a second each; at most {MOST} are compiled.")
    every = product(*constants.values(), *options.values())
    return [
        Setting({n: v for n, v in chosen if n in constants}, {n: v for n, v in chosen if n in options})
        for chosen in (list(zip(names, values, strict=True)) for values in every)
    ]


def own_configs(function: Any, constants: Mapping[str, list[Any]]) -> Iterator[Setting]:
    """The configurations of `triton.autotune` above a kernel; none where the constants that were given set one of them.

    Args:
        function: The kernel.
        constants: The values that were given.
    """
    while function is not None and not hasattr(function, "configs"):
        function = getattr(function, "fn", None)
    for config in getattr(function, "configs", ()):
        options = {n: v for n, v in config.all_kwargs().items() if n not in config.kwargs}
        if constants.keys() & config.kwargs.keys():
            return
        yield Setting(dict(config.kwargs), options)


def options_of(gpu: GpuModel, gpus: Sequence[GpuModel], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a GPU's back-end has; one that only another GPU's has is left out.

    Raises:
        UnknownNameError: For an option that none of the GPUs has.
    """
    known = {one.name: option_names(one) for one in gpus}
    every = frozenset().union(*known.values())
    for name in options:
        if name not in every:
            backends = " and ".join(dict.fromkeys(str(one.maker.triton_backend) for one in gpus))
            raise UnknownNameError("option", name, every, f"Triton's back-end {backends} does not have it.")
    return {name: value for name, value in options.items() if name in known[gpu.name]}
