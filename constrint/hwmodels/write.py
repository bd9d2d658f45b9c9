"""Writes a model as the YAML of a GPU's file, which loads back as the same model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from constrint.hwmodels.files import parse_yaml
from constrint.hwmodels.schema import GpuModel, MatrixInstruction

#: Text that needs no quotes: words of letters, digits and a few signs, the first a letter.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./()-]*( [A-Za-z0-9_./()-]+)*")
#: Least number of equal steps that are written as a progression, `[8, 16, ..., 256]`.
_PROGRESSION = 4


def yaml_of(model: GpuModel) -> str:
    """The whole model as YAML: `load_gpu` reads the same model from it. A base is written out."""
    document: dict[str, Any] = msgspec.to_builtins(model)
    document["sm"].pop("vendor")
    unknown = {entry.partition(":")[0].strip() for entry in model.unconfirmed}
    return "".join(f"{line}\n" for line in _mapping(document, "", unknown, 0))


def _mapping(value: Mapping[str, Any], path: str, unknown: set[str], depth: int) -> Iterator[str]:
    """The lines of a mapping; null is written where it is declared as unknown, and left out where it does not apply."""
    indent = "  " * depth
    for key, inner in value.items():
        where = f"{path}.{key}" if path else key
        if inner is None:
            if where in unknown:
                yield f"{indent}{key}: null"
        elif isinstance(inner, dict):
            yield f"{indent}{key}:" if inner else f"{indent}{key}: {{}}"
            yield from _mapping(inner, where, unknown, depth + 1)
        elif key == "instructions":
            yield f"{indent}{key}:" if inner else f"{indent}{key}: []"
            yield from (f"{indent}- {_instruction(row, f'{where}.cycles' in unknown)}" for row in inner)
        elif depth == 0 and isinstance(inner, list | tuple) and key != "aliases":
            yield f"{key}:" if inner else f"{key}: []"
            yield from (f"- {text_of(text)}" for text in inner)
        else:
            yield f"{indent}{key}: {_flow(inner)}"


def _instruction(row: dict[str, Any], is_unknown: bool) -> str:
    """One row; cycles are null where they are declared as unknown."""
    defaults = dict(zip(MatrixInstruction.__struct_fields__[-3:], MatrixInstruction.__struct_defaults__, strict=True))
    if is_unknown:
        defaults.pop("cycles")
    stated = {key: value for key, value in row.items() if key not in defaults or value != defaults[key]}
    parts = [f"{key}: {_sizes(value) if key in ('m', 'n') else _flow(value)}" for key, value in stated.items()]
    return f"{{{', '.join(parts)}}}"


def _sizes(sizes: list[int]) -> str:
    """Sizes of a matrix instruction; equal steps at the end are written as a progression."""
    start = len(sizes) - 1
    while start > 0 and (start == len(sizes) - 1 or sizes[start] - sizes[start - 1] == sizes[-1] - sizes[-2]):
        start -= 1
    if start and sizes[start + 1] - sizes[start] != sizes[-1] - sizes[-2]:
        start += 1
    if len(sizes) - start < _PROGRESSION:
        return _flow(sizes)
    return f"[{', '.join(map(str, sizes[: start + 2]))}, ..., {sizes[-1]}]"


def _flow(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = f"{value:.6g}"
        return short if float(short) == value else repr(value)
    return str(value) if isinstance(value, int) else text_of(value)


def text_of(text: str) -> str:
    """A text as YAML: plain where it cannot be read as anything else, otherwise in quotes."""
    if _PLAIN.fullmatch(text) and parse_yaml(text, "") == text:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return str(yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=False)).strip()
