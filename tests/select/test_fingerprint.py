"""A fingerprint changes with what a GPU executes, and with nothing else."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import constrint
from constrint.select.cuda_text import normal_text, normal_texts
from constrint.select.python_text import text_of

PACKAGE = Path(constrint.__file__).parent
SHOW = """
import json
from constrint.kernels.registry import load_kernel
from constrint.select.fingerprint import fingerprint_of
specs = [s for n in ("gemm", "lstm", "gru-backward") for s in load_kernel(n).implementations]
print(json.dumps({s.full_name: fingerprint_of(s) for s in specs}))
"""
LIBRARIES = {"gemm.library", "lstm.cudnn", "gru-backward.cudnn"}


def shown(root: Path) -> dict[str, list[str]]:
    """Fingerprints of the package in a folder."""
    env = {**os.environ, "PYTHONPATH": str(root), "CONSTRINT_CACHE": "0"}
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, env=env, cwd=root)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "constrint", ignore=shutil.ignore_patterns("__pycache__", "core/src"))
    return tmp_path


def rewrite(root: Path, pattern: str, change: Callable[[str], str]) -> None:
    for path in sorted((root / "constrint").glob(pattern)):
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def reworded(text: str) -> str:
    """A module without comments, formatted anew, with other docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body[0] = ast.Expr(ast.Constant("Other words."))
    return ast.unparse(tree)


def reordered(text: str) -> str:
    """A module that nobody runs, with its imports and definitions in the opposite order."""
    tree = ast.parse(text)
    return ast.unparse(ast.Module(tree.body[::-1], []))


def in_other_words(text: str) -> str:
    """A CUDA source with other comments and white space."""
    return '/* Other words; "quoted" */\n' + text.replace(";\n", ";  // other words\n\n")


def holding(root: Path, text: str, pattern: str = "**/*.py") -> Path:
    """The kernels' file that has a text, wherever it lies."""
    (found,) = [p for p in (root / "constrint/kernels").glob(pattern) if text in p.read_text(encoding="utf-8")]
    return found


def move(root: Path, old: Path, new: Path) -> None:
    """Move a module or a package, and rename its mentions."""
    new.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(old, new)
    (package, name), (to, as_name) = (
        ".".join(path.relative_to(root).with_suffix("").parts).rsplit(".", 1) for path in (old, new)
    )
    plain = rf"from {re.escape(package)} import {name}( as \w+)?$"

    def renamed(text: str) -> str:
        text = re.sub(rf"\b{re.escape(package)}\.{name}\b", f"{to}.{as_name}", text)
        return re.sub(plain, lambda m: f"from {to} import {as_name}{m[1] or f' as {name}'}", text, flags=re.MULTILINE)

    rewrite(root, "**/*.py", renamed)


@pytest.mark.slow
def test_moving_and_rewording_change_no_fingerprint(copied: Path) -> None:
    before = shown(PACKAGE.parent)
    device = [holding(copied, text) for text in ("def gemm_kernel(", "def activate(", "def log_sigmoid(")]
    for path in device:
        path.write_text(reordered(path.read_text(encoding="utf-8")), encoding="utf-8")
    rewrite(copied, "kernels/**/*.py", reworded)
    rewrite(copied, "kernels/**/source/*.cu*", in_other_words)
    kernels = copied / "constrint/kernels"
    places = (device[0].parent / "device.py", kernels / "ends.py", kernels / "pointwise.py")
    for path, to in zip(device, places, strict=True):
        move(copied, path, to)
    folder = holding(copied, "def gemm_descriptor_kernel(").parent
    move(copied, folder, folder.with_name("by_descriptors"))
    header = holding(copied, "void add_stored(", "**/*.cuh")
    header.rename(header.with_name("shares.cuh"))
    rewrite(copied, "kernels/**/source/*.cu*", lambda text: text.replace(f'"{header.name}"', '"shares.cuh"'))
    after = shown(copied)
    assert {name: source for name, (source, _) in after.items()} == {
        name: source for name, (source, _) in before.items()
    }


@pytest.mark.slow
def test_an_operation_or_a_constant_changes_the_kernels_that_have_it(copied: Path) -> None:
    before = shown(PACKAGE.parent)

    def change(old: str, new: str, pattern: str = "**/*.py") -> None:
        path = holding(copied, old, pattern)
        path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")

    change("x // of * of", "x // of * of + 0", "gemm/pointer/*.py")
    change('"f32": ", 1, 1"', '"f32": ", 1, -1"')  # a constant that makes the text of an instruction
    change("RING, FENCE = 32, 14", "RING, FENCE = 32, 13", "rnn/wgmma/*.py")  # constants that become macros
    change("-2.0 * x", "-2.0 * x * 1.0")  # the cells, which the host hands to the loops
    change("def descriptor_cost", "OTHER_COST = 7\n\n\ndef descriptor_cost")
    after = shown(copied)
    changed = {name for name in before if after[name][0] != before[name][0]}
    cells = {f"{operation}.{name}" for operation in ("lstm", "gru-backward") for name in ("triton", "alternating")}
    loops = {"lstm.wgmma", "gru-backward.wgmma_both", "gru-backward.wgmma_partial"}
    assert changed == {"gemm.pointer", "gemm.cuda", "gemm.prepared", "gemm.fp32"} | loops | cells
    assert after["gemm.descriptor"][1] != before["gemm.descriptor"][1]
    # One copies operands before the CUDA GEMM; everything else has device code of its own.
    assert before["gemm.prepared"][0] == before["gemm.cuda"][0]
    shared = {*LIBRARIES, "gemm.prepared"}
    own = [source for name, (source, _) in before.items() if name not in shared and not name.startswith("gru")]
    assert len(set(own)) == len(own)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("int a = 1; // one", "int a=1 ;\n", True),
        ('f("// no comment")', 'f("//  no comment")', False),
        ("/* a\nb */ x", "x", True),
        ("a + +b", "a ++b", False),
        ("#define F(x) x", "#define F (x) x", False),
        ("#define F  (x)", "#define F (x)", True),
        ("#define A 1\nint b;", "#define A 1 int b;", False),
        ("#define A 1 \\\n + 2\n", "#define A 1 + 2\n", True),
        ('R"(a // b)"', 'R"(a)"', False),
        ("c = '\"'; // \"", "c = '\"';", True),
        ("1.0e-5f", "1.0e-6f", False),
    ],
)
def test_what_a_compiler_of_cuda_tells_apart(one: str, other: str, is_same: bool) -> None:
    assert (normal_text(one) == normal_text(other)) is is_same


def test_a_header_counts_by_what_it_holds(tmp_path: Path) -> None:
    def texts(name: str, content: str) -> list[str]:
        header, source = tmp_path / f"{name}.cuh", tmp_path / "kernel.cu"
        header.write_text(content)
        source.write_text(f'#include "{name}.cuh"\n#include <cuda_fp16.h>\nint x = A;')
        return normal_texts([source, header])

    assert texts("a", "#define A 1") == texts("b", "#define A  1 // one")
    assert texts("a", "#define A 1") != texts("c", "#define A 2")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ('def f(x: int) -> int:\n  """Doc."""\n  return x', "def f(x): return x", True),
        ("@triton.jit\ndef f(x: tl.constexpr): return x", "@triton.jit\ndef f(x): return x", False),
        ("def f(x=1): return x", "def f(x=2): return x", False),
        ("f'{x}b'", 'f"{x}" "b"', True),
        ("x = 1.0", "x = 1", False),
    ],
)
def test_what_python_computes_tells_texts_apart(one: str, other: str, is_same: bool) -> None:
    assert (text_of(ast.parse(one).body) == text_of(ast.parse(other).body)) is is_same
