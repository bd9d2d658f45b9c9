"""Index of GPU names and aliases, read from the first lines of the files.

A file is called `<vendor>/<name in lower case>.yaml` and begins with `schema`, `name`, `vendor` and `aliases`. Nothing
else lists the GPUs: a file that is put beside the others is found.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from constrint.errors import HardwareModelError, UnknownNameError
from constrint.hwmodels.parse import parse_yaml

DATA = Path(__file__).parent / "data"
#: End of a file's first lines: the first block of values.
_FIRST_BLOCK = re.compile(r"^(?!aliases:)\w+:[ \t]*(#.*)?\r?$", re.MULTILINE)
HEAD_BYTES = 4096
#: Words of device names that do not tell one GPU from another.
_VENDOR_WORDS = re.compile(r"^(nvidia|amd|geforce|instinct|radeon|tesla)+")


@dataclass(frozen=True)
class Index:
    """`files`: canonical name to path below `data`; `names`: folded spelling to the canonical names that claim it."""

    files: dict[str, str]
    names: dict[str, tuple[str, ...]]


def fold(name: str) -> str:
    """Normalise a name for comparison: letters and digits only, lower case, no vendor words."""
    folded = re.sub(r"[^a-z0-9]", "", name.lower())
    return _VENDOR_WORDS.sub("", folded) or folded


@functools.cache
def index() -> Index:
    """Index of the names of the files below `data`."""
    return index_of(DATA)


def index_of(folder: Path) -> Index:
    """Index of the names of the files in a folder that has one folder per vendor."""
    files: dict[str, str] = {}
    names: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.glob("*/*.yaml")):
        name, aliases = _spellings(path)
        files[name] = path.relative_to(folder).as_posix()
        for spelling in {fold(text): None for text in (name, *aliases)}:
            names[spelling] = (*names.get(spelling, ()), name)
    return Index(files, names)


def _spellings(path: Path) -> tuple[str, list[str]]:
    """A GPU's name and aliases; of a file that cannot be read its own name, so that loading it says what is wrong."""
    try:
        with path.open("rb") as file:
            text = file.read(HEAD_BYTES).decode("utf-8", "ignore")
        block = _FIRST_BLOCK.search(text)
        head = parse_yaml(text[: block.start()] if block else text, str(path))
    except (OSError, HardwareModelError):
        head = None
    name, aliases = (head.get("name"), head.get("aliases")) if isinstance(head, dict) else (None, None)
    if not isinstance(name, str) or name.lower() != path.stem:
        return path.stem, []
    return name, [text for text in aliases if isinstance(text, str)] if isinstance(aliases, list) else []


def find(name: str) -> Path:
    """Path of the file that a name or alias stands for.

    Raises:
        UnknownNameError: When there is none; names the nearest spellings.
        HardwareModelError: When several files claim it.
    """
    canonical = index().names.get(fold(name), ())
    if not canonical:
        near = UnknownNameError("GPU", name, index().files, "`constrint gpus` lists them; a path names your own file.")
        raise near if near.nearest else _nearest_alias(name, near)
    if len(canonical) > 1:
        raise HardwareModelError(f"GPU {name!r}: an alias of {' and of '.join(canonical)}; take it from one of them.")
    return DATA / index().files[canonical[0]]


def match_device_name(device_name: str) -> str | None:
    """Canonical name of the GPU whose name or alias equals a device's name; None where there is none."""
    canonical = index().names.get(fold(device_name), ())
    return canonical[0] if len(canonical) == 1 else None


def _nearest_alias(name: str, fallback: UnknownNameError) -> UnknownNameError:
    """The error for an unknown name, with the nearest aliases too (`h20` is nearer to `h200` than to `H200-SXM`)."""
    import difflib

    close = difflib.get_close_matches(fold(name), index().names, n=5, cutoff=0.6)
    canonical = {owner: None for match in close for owner in index().names[match]}
    if not canonical:
        return fallback
    error = UnknownNameError("GPU", name, index().files)
    error.nearest = tuple(canonical)[:3]
    error.args = (f"unknown GPU {name!r}. Nearest: {', '.join(error.nearest)}. `constrint gpus` lists them.",)
    return error
