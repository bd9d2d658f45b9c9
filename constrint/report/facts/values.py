"""Configurations in the values that their numbers stand for, as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping

from constrint.answers.facts import Value
from constrint.select import KernelSpec


def shown_config(spec: KernelSpec, config: Mapping[str, int]) -> dict[str, Value]:
    """A configuration in values; what is neither a number nor a text is written as a text."""
    decoded = {**config, **spec.values_of(config)}
    return {name: plain(decoded[name]) for name in config}


def shown_value(spec: KernelSpec, name: str, code: int) -> Value:
    """What one parameter's number stands for."""
    return shown_config(spec, {name: code})[name]


def plain(value: object) -> Value:
    """A value as JSON has it."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
