"""GPU names: which file a name stands for, without opening the files.

`data/index.json` maps every spelling to its file. It is derived from the files' `name` and `aliases`:
`load.write_index` writes it anew, and a test compares the two.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from constrint.errors import HardwareModelError, UnknownNameError
from constrint.hwmodels.schema import GpuModel

DATA = Path(__file__).parent / "data"
INDEX = DATA / "index.json"
#: Words of device names that do not tell one GPU from another.
_VENDOR_WORDS = re.compile(r"^(nvidia|amd|geforce|instinct|radeon|tesla)+")


class Index(msgspec.Struct, frozen=True):
    """`files`: canonical name to path below `data`; `names`: folded spelling to canonical name."""

    files: dict[str, str]
    names: dict[str, str]


def fold(name: str) -> str:
    """The form in which names are compared: letters and digits only, lower case, no vendor words."""
    folded = re.sub(r"[^a-z0-9]", "", name.lower())
    return _VENDOR_WORDS.sub("", folded) or folded


@functools.cache
def index() -> Index:
    """The committed index."""
    return msgspec.json.decode(INDEX.read_bytes(), type=Index)


def find(name: str) -> Path:
    """Path of the file that a name or alias stands for.

    Raises:
        UnknownNameError: When there is none; names the nearest spellings.
    """
    canonical = index().names.get(fold(name))
    if canonical is None:
        near = UnknownNameError("GPU", name, index().files, "`constrint gpus` lists them; a path names your own file.")
        raise near if near.nearest else _nearest_alias(name, near)
    return DATA / index().files[canonical]


def match_device_name(device_name: str) -> str | None:
    """Canonical name of the GPU that calls itself so; None when no alias is equal to it."""
    return index().names.get(fold(device_name))


def _nearest_alias(name: str, fallback: UnknownNameError) -> UnknownNameError:
    """The same error, but looking among the aliases too (`h20` is nearer to `h200` than to `H200-SXM`)."""
    import difflib

    close = difflib.get_close_matches(fold(name), index().names, n=5, cutoff=0.6)
    canonical = {index().names[match]: None for match in close}
    if not canonical:
        return fallback
    error = UnknownNameError("GPU", name, index().files)
    error.nearest = tuple(canonical)[:3]
    error.args = (f"unknown GPU {name!r}. Nearest: {', '.join(error.nearest)}. `constrint gpus` lists them.",)
    return error


def build_index(models: Iterable[tuple[str, GpuModel]]) -> Index:
    """Derive the index from (path below `data`, model) pairs.

    Raises:
        HardwareModelError: When two models share a name, or a file is not called after its model.
    """
    files: dict[str, str] = {}
    names: dict[str, str] = {}
    for path, model in sorted(models, key=lambda pair: pair[0]):
        if path != f"{model.vendor}/{model.name.lower()}.yaml":
            raise HardwareModelError(
                f"{path}: name: the file of {model.name!r} is {model.vendor}/{model.name.lower()}.yaml"
            )
        files[model.name] = path
        for spelling in (model.name, *model.aliases):
            owner = names.setdefault(fold(spelling), model.name)
            if owner != model.name:
                raise HardwareModelError(f"{path}: aliases: {spelling!r} already stands for {owner}")
    return Index(files, dict(sorted(names.items())))
