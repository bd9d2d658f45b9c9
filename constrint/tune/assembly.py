"""The assembly of a compiled kernel as text, and its instructions counted by kind.

Counts are static: an instruction inside a loop counts once, however often it runs. For NVIDIA they are those of PTX,
whose names are the documented ones; `assembly_of` gives the machine's own code (SASS), too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from constrint.errors import UnknownNameError
from constrint.tune.compile import BACKENDS, BuiltKernel, nvidia_tool

#: Machine code of an NVIDIA GPU, which Triton has only as a binary.
SASS: Final = "sass"

#: Instructions of each kind by Triton's back-end. Group 1 is the name, or what `_NAMES` makes the name of.
_PATTERNS: Final[Mapping[str, Mapping[str, str]]] = {
    "cuda": {
        "matrix": r"\b((?:wgmma\.mma_async|tcgen05\.mma|mma\.sync)\S*)",
        "global loads": r"\b(ld\.global\S*)",
        "global stores": r"\b(st\.global\S*)",
        "asynchronous copies": r"\b(cp\.async\.(?:c[ag]|bulk)\S*)",
        "shared memory": r"\b((?:ld|st)\.shared\S*|(?:ld|st)matrix\S*)",
        "barriers": r"\b((?:bar|barrier)\.sync|mbarrier\.(?:try_)?wait)",
        "atomics": r"\b((?:atom|red)\.\S+)",
        "shuffles": r"\b(shfl\.sync\S*)",
    },
    "hip": {
        "matrix": r"\b(v_(?:mfma|smfmac|wmma|swmmac)_\w+)",
        "global loads": r"\b((?:global|buffer|flat)_load_(?!lds_)\w+)(?![^\n]*\blds\b)",
        "global stores": r"\b((?:global|buffer|flat)_store_\w+)",
        "asynchronous copies": r"\b(global_load_lds_\w+|(?:global|buffer)_load_\w+(?=[^\n]*\blds\b))",
        "shared memory": r"\b(ds_(?:read|write|load|store)\w*)",
        "barriers": r"\b(s_barrier\w*)",
        "atomics": r"\b((?:global|buffer|flat|ds)_(?:atomic|add|max|min)\w*)",
        "scratch": r"\b(scratch_(?:load|store)_\w+)",
    },
}
#: Parts of a PTX instruction's name for caching and ordering.
_MODIFIERS: Final = frozenset({"relaxed", "gpu", "sys", "cta", "aligned", "weak", "volatile", "acquire", "release"})


def assembly_of(built: BuiltKernel, form: str) -> str:
    """One form of a compiled kernel as text: `ttir`, `ttgir`, `llir`, `ptx` and `sass` (NVIDIA) or `amdgcn` (AMD).

    Raises:
        UnknownNameError: When the kernel has no such form; names those that it has.
    """
    texts = [name for name, text in built.asm.items() if isinstance(text, str)]
    forms = [*texts, SASS] if "cubin" in built.asm else texts
    if form not in forms:
        raise UnknownNameError("form", form, forms, f"A kernel for {built.taken.target} has these.")
    return nvidia_tool("cuobjdump", built.asm["cubin"], "-sass") if form == SASS else str(built.asm[form])


def count_instructions(built: BuiltKernel) -> dict[str, dict[str, int]]:
    """Counts of the instructions in a kernel's assembly, by kind; kinds without instructions are absent."""
    text = str(built.asm[BACKENDS[built.backend].assembly])
    name = _NAMES.get(built.backend, str)
    counted = {
        kind: Counter(name(match[1]) for match in re.finditer(pattern, text))
        for kind, pattern in _PATTERNS.get(built.backend, {}).items()
    }
    return {kind: dict(counts.most_common()) for kind, counts in counted.items() if counts}


def _ptx_name(instruction: str) -> str:
    """`ld.global.v4.b32` for `ld.global.L1::evict_last.v4.b32`; of a matrix instruction its shape and types."""
    parts = [_plain(part) for part in instruction.rstrip(";").split(".")]
    return ".".join(part for part in parts if part and part not in _MODIFIERS)


def _plain(part: str) -> str:
    """A part of a name without its level: `shared` for `shared::cluster`, nothing for `L1::evict_last`."""
    what, _, level = part.partition("::")
    return part if not level or what == "kind" else what * (what == "shared")


_NAMES: Final[Mapping[str, Callable[[str], str]]] = {"cuda": _ptx_name}
