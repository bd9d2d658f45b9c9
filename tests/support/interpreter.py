"""Runs cases in Triton's interpreter on the CPU, in a process of its own: `TRITON_INTERPRET` holds for a whole process.

The interpreter is silently wrong for bf16; cases use other types.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.needs import missing_packages

ROOT = Path(__file__).resolve().parents[2]


def interpreted(function: str, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What `module:function` returns for each case, by the case's name; skips without triton."""
    missing = missing_packages("torch", "triton")
    if missing:
        pytest.skip(f"needs the extra [torch]: {', '.join(missing)} not installed")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.interpreter", function],
        input=json.dumps(list(cases.values())),
        # Tests run side by side; threads that wait for each other's cores make small operations slower.
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True))


def patch_once() -> None:
    """Let Triton's interpreter replace the functions of its language once for each launch.

    It would look through all members of the language, thousands of them, at every call of one function of a kernel by
    another, where they are replaced already.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    patch, modules, replaced = interpreter._patch_lang, (tl, tl.core), set[Any]()

    class Scope:
        """What ends with a launch."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def restore(self) -> None:
            replaced.clear()
            self.inner.restore()

    @cache
    def named(function: Any) -> frozenset[Any]:
        known = {value for value in function.__globals__.values() if isinstance(value, ModuleType)}
        return frozenset(known.intersection(modules))

    def patch_lang(function: Any) -> Any:
        if replaced and named(function) <= replaced:
            return None
        replaced.update(named(function))
        return Scope(patch(function))

    vars(interpreter)["_patch_lang"] = patch_lang


def main() -> None:
    """Read cases as JSON, print what the function named on the command line returns for each."""
    patch_once()
    module, _, name = sys.argv[1].partition(":")
    function = getattr(import_module(module), name)
    print(json.dumps([function(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
