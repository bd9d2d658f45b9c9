"""Source is read by lists of what a kernel needs; everything else is refused with its line and the way out."""

from __future__ import annotations

import functools
import importlib

import pytest

from constrint.propose import allowed, find_task, list_tasks
from constrint.propose.legal import canonical, illegal
from constrint.tune.search.llm.records import MAX_SOURCE
from tests.propose.cheats import CHEATS, Cheat
from tests.propose.hostile import ATTEMPTS
from tests.support.needs import needs_torch, needs_triton

pytestmark = needs_triton

HEAD = "import torch\nimport triton\nimport triton.language as tl\n@triton.jit\ndef kernel(y): pass\n"


#: Annotations, constants, device functions, reductions by a function, keywords and an inner grid function.
USUAL = '''"""A kernel."""
import math
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
TILES = (64, 128)

@triton.jit
def _larger(a, b):
    """The larger one."""
    return tl.maximum(a, b)

@triton.jit
def _rows(y_ptr, x_ptr, n, x_row, *, eps: tl.constexpr = 1e-5, TILE: tl.constexpr = 128):
    row = tl.program_id(axis=0).to(tl.int64)
    offsets = tl.arange(0, TILE)[:, None]
    acc = tl.zeros((TILE, 1), dtype=tl.float32)
    for start in tl.range(0, n, TILE, num_stages=2):
        mask = start + offsets < n
        values = tl.load(x_ptr + row * x_row + start + offsets, mask=mask, other=-float("inf"), eviction_policy="")
        acc = _larger(acc, values.to(tl.float32))
    top = tl.reduce(acc, axis=0, combine_fn=_larger)
    other = tl.reduce(acc, 0, _larger) + tl.math.exp(top) + libdevice.tanh(top) * math.pi
    if x_ptr.dtype.element_ty == tl.float16:
        other = other.to(tl.float16)
    tl.store(y_ptr + row, tl.max(other) * LOG2_E)

def _tile_of(n: int) -> int:
    return max(16, min(triton.next_power_of_2(n), TILES[-1]))

def run(y: torch.Tensor, x: torch.Tensor) -> None:
    """Launch."""
    assert x.ndim == 2, "two dimensions"
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError("a type")
    x = x if x.is_contiguous() else x.contiguous()
    m, n = x.shape
    scratch = torch.empty((m, math.ceil(n / 4)), dtype=torch.float32, device=x.device)
    def grid(meta):
        return (triton.cdiv(m * meta["TILE"], meta["TILE"]),)
    options = [w for w in (4, 8) if w * 32 <= n] or [4]
    _rows[grid](y, x, n, x.stride(0), TILE=_tile_of(n), num_warps=options[0], num_stages=2)
    _rows[(m,)](y, scratch, n, *scratch.stride()[:1])
'''


def read(statement: str, top: str = "") -> str:
    return illegal(f"{HEAD}{top}def run(y, x):\n    {statement}\n", "run")


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
    ("statement", "why"),
    [
        ("tl.math.wraps(kernel, (), ('__globals__',))", "of triton.language a host"),
        ("tl.load(x)", "of triton.language a host"),
        ("m = tl", "a value here"),
        ("tl(x)", "a value here"),
        ("m = [torch][0].T", "a value here"),
        ("f = kernel", "a value here"),
        ("max((1, 2), key=run)", "a value here"),
        ("kernel(y)", "launch it by"),
        ("kernel[(1,)](y, extern_libs={'a': 'b'})", "extern_libs is no argument"),
        ("kernel[(1,)](y, **{'extern_libs': 1})", "an argument by **"),
        ("torch.empty((1,), _hidden=1)", "a hidden name"),
        ("torch.device('cuda')", "PyTorch may not do the work"),
        ("torch.Tensor(4)", "PyTorch may not do the work"),
        ("g = lambda np: 0\n    return np", "np is not defined"),
        ("a: print(x) = 1", "the annotation print(x)"),
        ("def f(a: print(x)): pass", "the annotation print(x)"),
        ("def f(a) -> 'torch.Tensor': pass", "the annotation 'torch.Tensor'"),
        ("def tl(): pass", "the name of something else"),
        ("b = b'x'", "b'x' is a bytes"),
        ("b = 1j", "1j is a complex"),
        ("math.wraps(x)", "no function or constant of math"),
        ("def f(a, a): pass", "duplicate argument"),
        ("x = " + "~" * 900 + "x", "cannot be read"),
    ],
)
def test_a_name_is_allowed_for_the_object_that_it_is(statement: str, why: str) -> None:
    assert why in read(statement, "import math\n")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)", "no assembly"),
        ("tl.math.wraps(kernel)", "no part of Triton's language"),
        ("tl.math.core.tensor(y)", "no part of Triton's language"),
        ("tl.str_to_ty('fp32', None)", "no part of Triton's language"),
        ("tl.static_print(y)", "no printing"),
        ("tl.extra.cuda.globaltimer()", "no clock"),
        ("torch.empty(1)", "a kernel has no PyTorch"),
        ("y(1)", "has no @triton.jit"),
        ("run(y)", "has no @triton.jit"),
        ("y.handle", "what a block of values is asked"),
        ("libdevice.core", "no core"),
        ("libdevice.__spec__", "interior"),
        ("tl.load(y, _semantic=1)", "hidden name"),
    ],
)
def test_a_kernel_has_of_its_modules_what_is_on_the_list(body: str, why: str) -> None:
    source = HEAD.replace("pass", body) + "from triton.language.extra import libdevice\ndef run(y, x): pass\n"
    assert why in illegal(source, "run")


def test_a_name_on_the_list_is_not_allowed_where_it_is_an_object_of_another_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`tl.math` also has what it imports itself: a later version may import a name that is on the list."""
    language = importlib.import_module("triton.language")
    monkeypatch.setattr(language, "topk", functools.wraps)
    monkeypatch.setattr(language, "sort", functools)
    monkeypatch.delattr(language, "flip")
    allowed._foreign.cache_clear()
    assert "of functools, not of triton.language" in allowed.refused("tl", "topk", True)
    assert "it is module of" in allowed.refused("tl", "sort", True)
    assert "has no flip" in allowed.refused("tl", "flip", True)
    allowed._foreign.cache_clear()


@pytest.mark.parametrize(
    "top",
    [
        "def dataclass(): pass\ndef dataclass(): pass",
        "def torch(): pass",
        "def range(): pass",
        "def __getattr__(name): pass",
        "a = 1\na = 2",
        "a: print(1) = 1",
        "a = ...",
        "a = tl.constexpr(*(1, 2))",
        "a = tl.constexpr(print)",
        "def kernel[T](y): pass",
        "from .triton.language.extra import libdevice",
        "from triton.language.extra import libdevice as tl",
        "import triton.language",
        "@(lambda f: f)\ndef other(y): pass",
        "@triton.jit()\ndef other(y): pass",
        "def other(y, z=[]): pass",
        "def other(y, *, z=print): pass",
    ],
)
def test_what_stands_at_the_top_is_bound_once_and_is_a_constant(top: str) -> None:
    assert illegal(f"{HEAD}{top}\ndef run(y, x): kernel[(1,)](y)\n", "run")


@pytest.mark.parametrize(
    "hidden",
    [
        "@triton.jit\ndef\\\n kernel(y):\n    '''\ndef kernel(y):\n    hidden\n    '''\n    pass\n",
        "@triton.jit\ndef kernel(y):\n    '''\n    def kernel(y):\n        hidden\n    '''\n",
        "@triton.jit\ndef kernel(y):\n    x = '''\ndef kernel(y):\n    hidden'''\n",
        "x = '''a\r@triton.jit\rdef kernel(y):\r    hidden'''\n@triton.jit\ndef kernel(y): pass\n",
    ],
)
def test_the_text_that_runs_has_one_line_for_each_def_that_was_read(hidden: str) -> None:
    """Triton takes a kernel's text from the first line that begins with `def`, its interpreter from the last."""
    text = canonical("import triton\nimport triton.language as tl\n" + hidden)
    assert [line for line in text.splitlines() if line.strip().startswith("def")] == ["def kernel(y):"]


def test_the_text_that_runs_is_what_was_read() -> None:
    text = canonical("x = 1.5  # why\n'a'\ndef f(a: int, *b, c=-1) -> None:\n    'says'\n")
    assert text == "x = 1.5\n\ndef f(a: int, *b, c=-1) -> None:\n    pass\n"
    assert "control it" in illegal(f"{HEAD}x = 1\x0c\ndef run(y): pass", "run")


def test_what_a_model_usually_writes_is_legal() -> None:
    assert illegal(USUAL, "run") == ""


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
