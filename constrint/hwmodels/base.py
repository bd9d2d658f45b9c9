"""`base: NAME` in a GPU's file: blocks that describe the architecture are those of another GPU of the same one.

Inherited are `arch`, `sm`, `memory.l1` and `matrix`, key by key, with the sources and the unconfirmed entries that
belong to them. Whatever belongs to the device itself (`device`, `memory.l2`, `memory.dram`, `compute`) a file states.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from constrint.errors import HardwareModelError, UnknownNameError, shortened
from constrint.hwmodels import names

#: Paths of the blocks that a base gives.
INHERITED = ("arch", "sm", "memory.l1", "matrix")


def find_base(raw: Any, path: Path, above: tuple[Path, ...]) -> Path | None:
    """The file that `base` names; None where a file names none.

    Args:
        raw: The parsed file, from which the key is taken.
        path: The file.
        above: Files that name this one as their base.

    Raises:
        HardwareModelError: When there is no such GPU, or the file is its own base.
    """
    if not isinstance(raw, dict) or "base" not in raw:
        return None
    name = raw.pop("base")
    if not isinstance(name, str):
        raise HardwareModelError(f"{path}: base: must be the name of a GPU, in quotes; it is {name!r}.")
    try:
        base = names.find(name, shipped_first=True)
    except UnknownNameError as error:
        raise HardwareModelError(f"{path}: base: {error}") from None
    if base.resolve() in [file.resolve() for file in (path, *above)]:
        raise HardwareModelError(f"{path}: base: {shortened(name)} leads back to this file; name another GPU.")
    return base


def merge(raw: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    """The file with the base's blocks; a key that the file states stays as it is.

    Args:
        raw: The parsed file without `base`.
        base: The base's, which loads.
        path: The file, for messages.

    Raises:
        HardwareModelError: When the two are of different vendors, or one source key has two texts.
    """
    if raw.get("vendor") != base["vendor"]:
        raise HardwareModelError(
            f"{path}: base: {base['name']} is of the vendor {base['vendor']}; a base is of the file's own."
        )
    merged = dict(raw)
    used: dict[str, None] = {}
    taken: set[str] = set()
    for block in INHERITED:
        *outer, key = block.split(".")
        above, base_above = merged, base
        for step in outer:
            above[step] = dict(inner) if isinstance(inner := above.get(step, {}), dict) else inner
            above, base_above = above[step], base_above[step]
        own, other = (above.get(key, {}), base_above[key]) if isinstance(above, dict) else (None, {})
        if not isinstance(own, dict):
            continue  # the schema says what is wrong with it
        missing = {inner: value for inner, value in other.items() if inner not in own and inner != "sources"}
        if missing:
            used |= dict.fromkeys(other["sources"])
            taken |= set(_paths(missing, block))
            stated = own.get("sources", [])
            # What a file states may be anything: the schema says later what is no key of a source.
            more = [source for source in other["sources"] if source not in stated] if isinstance(stated, list) else []
            sources = [*stated, *more] if isinstance(stated, list) else stated
            above[key] = {**own, **missing, "sources": sources}
    _take_texts(merged, base, used, taken, path)
    notes = raw.get("notes", [])
    if isinstance(notes, list):
        merged["notes"] = [*notes, f"what this file does not state of {', '.join(INHERITED)} is that of {base['name']}"]
    return merged


def _take_texts(
    merged: dict[str, Any], base: dict[str, Any], used: dict[str, None], taken: set[str], path: Path
) -> None:
    """Add the texts of the sources that came with blocks, and the unconfirmed entries of inherited keys."""
    own = merged.get("sources", {})
    if isinstance(own, dict):
        for key in used:
            if own.get(key, base["sources"][key]) != base["sources"][key]:
                raise HardwareModelError(
                    f"{path}: sources.{key}: the base has another text for this key; give yours another name."
                )
        merged["sources"] = {**own, **{key: base["sources"][key] for key in used}}
    entries = merged.get("unconfirmed", [])
    if isinstance(entries, list):
        inherited = [entry for entry in base["unconfirmed"] if entry.partition(":")[0].strip() in taken]
        merged["unconfirmed"] = [*entries, *inherited]


def _paths(value: Any, path: str) -> Iterator[str]:
    """Paths of all keys below a block."""
    for key, inner in value.items():
        yield f"{path}.{key}"
        if isinstance(inner, dict):
            yield from _paths(inner, f"{path}.{key}")
