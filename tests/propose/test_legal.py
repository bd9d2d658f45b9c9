"""Source is read by lists of what a kernel needs; everything else is refused with its line and the way out."""

from __future__ import annotations

import pytest

from constrint.propose import find_task, list_tasks
from constrint.propose.legal import illegal
from constrint.tune.search.llm.records import MAX_SOURCE
from tests.propose.cheats import CHEATS, Cheat
from tests.propose.hostile import ATTEMPTS
from tests.support.needs import needs_torch

HEAD = "import torch\nimport triton\nimport triton.language as tl\n@triton.jit\ndef kernel(y): pass\n"


def read(statement: str) -> str:
    return illegal(f"{HEAD}def run(y, x):\n    {statement}\n", "run")


@needs_torch
@pytest.mark.parametrize("name", list_tasks())
def test_correct_candidates_are_legal(name: str) -> None:
    examples = find_task(name).examples
    assert len(examples) >= 2
    for path in examples:
        assert illegal(path.read_text(), "run") == "", path.name


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_reading_refuses_cheats_and_only_those(cheat: Cheat) -> None:
    found = illegal(cheat.source, "run")
    assert bool(found) == (cheat.gate == "legal")
    if found:
        assert cheat.says in found
        assert found.startswith("line ")


def test_reading_refuses_what_is_hostile() -> None:
    assert "import ctypes" in illegal(ATTEMPTS, "read_file")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("y.copy_(x)", "y.copy_ is not allowed"),
        ("y.data = x", "objects are not changed"),
        ("y[0] = 1", "written by kernels"),
        ("x @ x", "no @ outside of a kernel"),
        ("torch.softmax(x, 1)", "PyTorch may not do the work"),
        ("torch.cuda.synchronize()", "PyTorch may not do the work"),
        ("triton.testing.do_bench(run)", "of triton only"),
        ("tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)", "no assembly"),
        ("tl.extra.cuda.globaltimer()", "no assembly, no clock"),
        ("import os", "Import is no part of Python that a kernel needs"),
        ("global z", "Global is no part of Python that a kernel needs"),
        ("with x: pass", "With is no part of Python that a kernel needs"),
        ("try: pass\n    except ValueError: pass", "Try is no part of Python that a kernel needs"),
        ("yield x", "Yield is no part of Python that a kernel needs"),
        ("f'{x}'", "JoinedStr is no part of Python that a kernel needs"),
        ("x if (z := x) else y", "NamedExpr is no part of Python that a kernel needs"),
        ("getattr(x, 'data_ptr')", "a built-in function"),
        ("print(x)", "a built-in function"),
        ("().__class__", "interior"),
        ("x._base", "interior"),
        ("x.item()", "not for its values"),
        ("x.untyped_storage()", "not for its values"),
        ("kernel.run(y)", "not for its values"),
        ("x[(1,)](y)", "no launch of a kernel of this source"),
        ("(lambda: x)()", "no name"),
        ("kernel = x", "the name of something else"),
        ("torch = x", "the name of something else"),
        ("nothing(x)", "not defined"),
        ("del x", "Delete is no part of Python that a kernel needs"),
    ],
)
def test_what_a_kernel_does_not_need_is_refused(statement: str, why: str) -> None:
    found = read(statement)
    assert why in found
    assert found.startswith("line ")


@pytest.mark.parametrize(
    "statement",
    [
        "kernel[(1,)](y)",
        "kernel[lambda meta: (triton.cdiv(x.numel(), 16),)](y, num_warps=4)",
        "scratch = torch.empty((4,), dtype=torch.float32, device=x.device)\n    kernel[(1,)](scratch)",
        "rows, *rest = x.shape\n    kernel[(rows,)](y.view(rows, -1).contiguous())",
    ],
)
def test_what_a_launch_needs_is_legal(statement: str) -> None:
    assert read(statement) == ""


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "there is no function 'run'"),
        ("def run(y, x): pass", "no function has @triton.jit"),
        ("def run(y, x", "no Python"),
        (f"{HEAD}x = []\ndef run(y): pass", "nothing is kept"),
        (f"{HEAD}def run(y, kept={{}}): pass", "a default is a constant"),
        (f"{HEAD}class A: pass\ndef run(y): pass", "no classes"),
        (f"{HEAD}run = kernel", "nothing is kept"),
        ("import torch as tl\ndef run(y): pass", "only `import torch`"),
        ("from os import path\ndef run(y): pass", "only `import torch`"),
        ("import triton\n@triton.autotune([], [])\n@triton.jit\ndef run(y): pass", "the only decorator"),
        ("x = 1 # \N{GREEK SMALL LETTER ALPHA}", "not ASCII"),
        ("x = 1\0", "not ASCII"),
        ("x = 1\n" * (MAX_SOURCE // 6 + 1), "characters; at most"),
        ("x = " + "1" * 2000, "line 1 has 2004 characters"),
        ("x = " + "(" * 50 + ")" * 50, "nested more than"),
        ("-" * 900 + "\\\n" + "-" * 900 + "1", ""),
        ("\n".join("not " * 240 + "\\" for _ in range(50)) + "\n1", "cannot be read"),
        ("x = 1\n" * 9000, "parts; write a shorter kernel"),
    ],
)
def test_hostile_text_is_read_without_harm(source: str, why: str) -> None:
    found = illegal(source, "run")
    assert found
    assert why in found
