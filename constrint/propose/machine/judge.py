"""The verdict on a compiled kernel, whatever language its source was in; the binary that is given is the one to run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from constrint.errors import UnsupportedError
from constrint.propose.machine.amdgcn import amdgcn_problems
from constrint.propose.machine.ptx import read_ptx
from constrint.propose.machine.sass import sass_problems

#: Most problems that are told.
MOST_TOLD = 4
#: Digests of what passed, so that no binary is read twice.
_PASSED: set[bytes] = set()


def judge(name: str, forms: Mapping[str, Any]) -> None:
    """See that a kernel holds only what a kernel needs: no state that lasts, no clock, no trap, no control of caches.

    Args:
        name: The kernel's name.
        forms: Its assembly and binary as Triton names them: `ptx` and `cubin`, or `amdgcn` and `hsaco`.

    Raises:
        UnsupportedError: When it holds anything else, or cannot be read.
    """
    known = [(form, forms[form]) for form in ("ptx", "cubin", "amdgcn", "hsaco") if form in forms]
    digest = hashlib.sha256(repr(known).encode(errors="backslashreplace")).digest()
    if digest in _PASSED:
        return
    problems = list(dict.fromkeys(_problems(forms)))
    if problems:
        raise UnsupportedError(f"{name} has {'; '.join(problems[:MOST_TOLD])}: no candidate may.")
    _PASSED.add(digest)


def _problems(forms: Mapping[str, Any]) -> Iterator[str]:
    if "amdgcn" in forms:
        yield from amdgcn_problems(forms["amdgcn"])
    elif "ptx" in forms and "cubin" in forms:
        found = read_ptx(forms["ptx"])
        yield from found.problems or sass_problems(forms["cubin"], found)
    else:
        yield "neither PTX nor AMD's assembly"
