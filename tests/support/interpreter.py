"""Runs cases in Triton's interpreter on the CPU, in a process of its own: `TRITON_INTERPRET` holds for a whole process.

The interpreter is silently wrong for bf16; cases use other types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from tests.support.forked_worker import run_task
from tests.support.needs import missing_packages


def interpreted(function: str, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What `module:function` returns for each case, by the case's name; skips without triton."""
    missing = missing_packages("torch", "triton")
    if missing:
        pytest.skip(f"needs the extra [torch]: {', '.join(missing)} not installed")
    answers = run_task("tests.support.interpreter:answers", [function, list(cases.values())], 300, is_interpreted=True)
    return dict(zip(cases, answers, strict=True))


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


def answers(asked: tuple[str, list[dict[str, Any]]]) -> list[Any]:
    """What the function `module:name` returns for each case."""
    patch_once()
    function, cases = asked
    module, _, name = function.partition(":")
    call = getattr(import_module(module), name)
    return [call(case) for case in cases]
