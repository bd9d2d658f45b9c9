"""Attacks the gates of Triton source with candidates drawn from a grammar of tricks.

    python -m benchmarks.attacks.triton_source --count 200 --seed 7

Names: chains of attributes of real modules, and ways into Python's interior, wherever an expression can stand; what is
legal must be an object of the module itself. Texts: encodings, continued lines and docstrings that hide another text.
Acts: legal text that cheats when it runs, which a gate before the clock has to refuse. Honest: a right kernel in an
unusual form, which has to pass. Kernels run in Triton's interpreter, in processes without a sandbox.
"""

from __future__ import annotations

import ast
import importlib
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.attacks import resumed_of, said
from constrint.hwmodels import load_gpu
from constrint.propose import GateSettings, find_task
from constrint.propose.allowed import words
from constrint.propose.examination import Examination, Failing
from constrint.propose.legal import canonical, illegal
from constrint.propose.process import WorkerLost, WorkerRefused
from constrint.tune.search.llm.records import SourceProposal
from tests.support.forked_worker import ForkedWorker

MODULES = {
    "tl": "triton.language",
    "torch": "torch",
    "triton": "triton",
    "math": "math",
    "libdevice": "triton.language.extra.libdevice",
}
IMPORTS = """import torch
import triton
import triton.language as tl
import math
from triton.language.extra import libdevice
"""
KERNEL = """@triton.jit
def rows(y, x, n, x_row, x_column, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, tile)
    values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=float("-inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0))
    result = weights / tl.sum(weights, axis=0)
    tl.store(y + row * n + at, result, mask=at < n)
"""
LAUNCH = "rows[(x.shape[0],)](y, x, x.shape[1], x.stride(0), x.stride(1), triton.next_power_of_2(x.shape[1]))"
TIMED = find_task("softmax").timed_sizes
#: Names that compute nothing, or act beside the result: assembly, printing, waiting, types out of strings.
ACTS_BESIDE = words(
    "inline_asm_elementwise device_print device_assert static_print str_to_ty map_elementwise aggregate_replace "
    "to_tensor atomic_poll atomic_load atomic_store expect_zero make_tensor_descriptor load_tensor_descriptor "
    "store_tensor_descriptor tensor tensor_descriptor block_type pointer_type condition const dtype slice tuple"
)


class Case(NamedTuple):
    """A drawn candidate: its kind, its text, and whether what the gates say of it is right."""

    kind: str
    source: str
    is_right: Callable[[str, str], bool]


def main() -> int:
    """Draw, judge, and print what got through."""
    options = resumed_of(__doc__, 200)
    counts, found = attack(options.count, options.seed, options.first, said)
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    first = f" from number {options.first}" if options.first else ""
    summary = f"triton_source: {options.count} candidates{first}, seed {options.seed}: {told}; {len(found)} got through"
    print(summary)
    return 1 if found else 0


def attack(
    count: int, seed: int, first: int = 0, say: Callable[[str], None] = lambda _: None
) -> tuple[Counter[str], list[tuple[str, str, str]]]:
    """Judge drawn candidates.

    Args:
        count: The number of candidates.
        seed: What they are drawn by.
        first: How many are drawn before, and not judged.
        say: Takes each find at once, and how far the attack has come.

    Returns:
        The verdicts by kind and gate, and those that are wrong with their text; an exception of the judge is one.
    """
    counts: Counter[str] = Counter()
    found = []
    with mock.patch("constrint.propose.examination.SandboxWorker", ForkedWorker):
        for number, case in enumerate(islice(cases(first + count, seed), first, None), first):
            try:
                gate, message = judged(case)
            except Exception:  # noqa: BLE001 - nothing that a candidate does may end its judge
                gate, message = "the judge ended", traceback.format_exc()
            counts[f"{case.kind}: {gate or 'passed'}"] += 1
            if gate == "the judge ended" or not case.is_right(gate, message):
                found.append((case.source, gate, message))
                say(f"--- {number}, {gate or 'passed'}: {message}\n{case.source}")
            if number % 20 == 19:
                say(f"{number + 1} of {first + count}: {len(found)} got through")
    return counts, found


def cases(count: int, seed: int) -> Iterator[Case]:
    """Candidates of all kinds in turn; two of three are only read."""
    chance = random.Random(seed)
    kinds = (_names, _acts, _interior, _texts, _names, _honest)
    for number in range(count):
        yield kinds[number % len(kinds)](chance)


def judged(case: Case) -> tuple[str, str]:
    """The gate that refuses a candidate before the clock, and why; empty where none does."""
    problem = illegal(case.source, "run")
    if problem or case.kind not in ("acts", "honest"):
        return ("legal" if problem else "", problem)
    examination = Examination(
        SourceProposal(task="softmax", language="triton", source=case.source),
        load_gpu("h200"),
        GateSettings(allow_unsandboxed=True, device="cpu"),
    )
    # What is done only at the sizes of the timing is seen where all that is launched at them is compiled.
    return refused_by(examination, ("compiles",) if "TIMED" in case.source else ("right", "honest"))


def refused_by(examination: Examination, gates: Sequence[str]) -> tuple[str, str]:
    """The first of some gates, run without those before them, that refuses a candidate, and why; the worker ends."""
    try:
        for gate in gates:
            getattr(examination, gate)()
    except (Failing, WorkerLost, WorkerRefused) as error:
        return gate, str(error)
    finally:
        examination.close()
    return "", ""


# Names: what is legal must be an object of the module itself that a kernel needs.

IN_A_HOST = (
    "{e}", "z = {e}", "z = lambda q: {e}", "def g(a: {e}): pass", "def g(a) -> {e}: pass", "z: {e} = 1",
    "z = [q for q in {e}]", "rows[{e}](y)", "rows[(1,)](y, {e})", "rows[(1,)](y, num_warps={e})", "assert {e}",
    "raise ValueError({e})", "return {e}", "z = ({e})(x)", "z = [{e}][0]", "x.view(*{e})", "z = 1 if {e} else 2",
    "z = {{1: {e}}}", "z = x.shape[{e}:]", "max(x.shape, key={e})", "z = ({e}).T",
)  # fmt: skip
IN_A_KERNEL = (
    "{e}",
    "tl.store(y, {e})",
    "z = ({e})(y)",
    "for q in tl.static_range({e}): pass",
    "z = tl.load(y, other={e})",
)
AT_THE_TOP = (
    "A = {e}", "A: {e} = 1", "A = tl.constexpr({e})", "@{e}\ndef f(a): pass", "def f(a={e}): pass",
    "def f(*, a={e}): pass", "def f(a: {e}): pass", "@triton.jit\n@{e}\ndef f(a): pass",
)  # fmt: skip


def _placed(chance: random.Random, expression: str) -> tuple[str, str]:
    """A whole source with an expression somewhere in it, and where: host, kernel or top."""
    where, places = chance.choice((("host", IN_A_HOST), ("kernel", IN_A_KERNEL), ("top", AT_THE_TOP)))
    statement = chance.choice(places).format(e=expression)
    in_kernel = f"\n    {statement}" if where == "kernel" else ""
    in_host = f"    {statement}\n" if where == "host" else ""
    top = f"{statement}\n" if where == "top" else ""
    kernel = KERNEL.replace("\n    row =", f"{in_kernel}\n    row =")
    return f"{IMPORTS}{top}{kernel}def run(y, x):\n{in_host}    {LAUNCH}\n", where


def _names(chance: random.Random) -> Case:
    owner = chance.choice(list(MODULES))
    found: Any = importlib.import_module(MODULES[owner])
    path: list[str] = []
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        names = dir(found)
        if not names:
            break
        path.append(chance.choice(names))
        found = getattr(found, path[-1], None)
    source, where = _placed(chance, f"{owner}.{'.'.join(path)}")
    is_own = _is_needed(owner, path, found, where)
    return Case("names", source, lambda gate, _: gate == "legal" or is_own)


def _is_needed(owner: str, path: list[str], found: Any, where: str) -> bool:
    """Whether an object is one that a kernel needs, told by the object and not by the lists of the package."""
    import torch

    if isinstance(found, ModuleType) or any(name.startswith("_") for name in path):
        return False
    if owner == "torch":
        memory = (torch.empty, torch.empty_like, torch.empty_strided, torch.zeros, torch.zeros_like)
        is_type = where != "kernel" and found in (torch.Tensor, torch.Size, torch.device, torch.dtype)
        return isinstance(found, torch.dtype) or is_type or (where == "host" and found in memory)
    home = str(getattr(found, "__module__", None) or type(found).__module__)
    if owner == "triton":
        return path[-1] in ("cdiv", "next_power_of_2") or (where == "top" and path == ["jit"])
    if owner == "math":
        return home == "math" or isinstance(found, float)
    if owner == "libdevice":
        return home == MODULES[owner] and where == "kernel"
    is_part = home.startswith("triton.language.") and path[-1] not in ACTS_BESIDE
    is_type = type(found).__name__ == "dtype" or path in (["constexpr"], ["tensor"])
    return (is_part and where == "kernel") or is_type


# Python's interior, by any spelling, is never legal.

INTERIOR = (
    "().__class__", "x._tensor", "x.__class__", "rows.fn", "rows.fn.__globals__", "run.__globals__", "x.data",
    "(lambda: 0).__code__", "eval('1')", "exec('1')", "getattr(x, 'data')", "__import__('os')", "open('/etc/passwd')",
    "globals()", "vars()", "print(x)", "type(x)", "f'{x}'", "(z := x)", "''.format(x)", "x.item()", "x.tolist()",
    "x.untyped_storage()", "__builtins__", "__name__", "np.exp(x)", "inspect", "interpreter_builder", "rows.run(y)",
    "(yield x)", "(await x)", "b'x'", "1j", "x.cuda()", "tl", "torch", "rows.params", "run", "super()", "object()",
    "x.copy_(x)", "x.fill_(1)", "x.set_(x)", "torch.ops.aten", "{**x}.items()", "{q for q in x}", "{q: q for q in x}",
)  # fmt: skip


def _interior(chance: random.Random) -> Case:
    text = chance.choice(INTERIOR)
    spelled = chance.choice((text, f"({text})", text.replace(".", " . "), text.replace(".", "\\\n."), f"( {text}\n)"))
    source, _ = _placed(chance, spelled)
    return Case("interior", source, lambda gate, _: gate == "legal")


# Texts: where a text is legal, what runs is the tree that was read, one line for each function.

HIDDEN = (
    "'''\ndef rows(y):\n    hidden\n'''", "'''\n    def rows(y):\n        hidden\n    '''",
    "r'''\n@triton.jit\ndef rows():'''",
    "'a' 'b' \\\n'c'", "# def rows(y): hidden", "pass; '''\ndef rows(y): hidden'''", "z = '''\ndef rows(y): hidden'''",
)  # fmt: skip
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: text.replace("def rows(", "def\\\n rows("),
    lambda text: text.replace("def rows(", "def rows\\\n("),
    lambda text: text.replace("\n", "\r\n"),
    lambda text: text.replace("    row =", "    \x0crow ="),
    lambda text: f"# -*- coding: utf-7 -*-\n{text}",
    lambda text: f"\N{ZERO WIDTH NO-BREAK SPACE}{text}",
    lambda text: text.replace("tl.exp(", "tl.\N{FULLWIDTH LATIN SMALL LETTER E}xp("),
    lambda text: text.replace("weights /", "weights\x0b/"),
    lambda text: text.replace("import math", "import math # \x1c@triton.jit\x1cdef rows(y): hidden"),
    lambda text: text.replace("def rows(", "def rows[T]("),
    lambda text: text.replace("    ", "\t"),
    lambda text: text.replace("import math\n", "import math\n\r@triton.jit\rdef rows(y):\r    hidden\r"),
)


def _texts(chance: random.Random) -> Case:
    kernel = KERNEL.replace("    row =", f"    {chance.choice(HIDDEN)}\n    row =")
    source = chance.choice(SPELLINGS)(f"{IMPORTS}{kernel}def run(y, x):\n    {LAUNCH}\n")

    def is_right(gate: str, message: str) -> bool:
        if gate:
            return bool(message)
        text = canonical(source)
        defined = [line for line in text.splitlines() if line.strip().startswith(("def", "@", "hidden"))]
        same = ast.dump(ast.parse(canonical(text))) == ast.dump(ast.parse(text))
        return same and [line.partition("(")[0] for line in defined] == ["@triton.jit", "def rows", "def run"]

    return Case("texts", source, is_right)


# Acts: the text is legal, and what it does is not honest or not right.

LIBRARY = (
    "math.e ** x", "x + 1", "1 - x", "-x", "abs(x)", "x < y", "x // 2", "sum(x)", "max(x)", "min(x, y)", "divmod(x, 2)",
    "round(x)", "x[0]", "[q for q in x]", "float(x)", "int(x)", "bool(x)", "tuple(x)", "len(x)", "x if x else y",
    "x == y", "x in (y,)", "math.exp(x)", "math.prod(x)", "'%s' % x * (x + 1)", "(*x,)", "range(x)", "x.shape[0] * x",
    "x.T + x", "x.new_empty(x.shape) * 2", "torch.empty_like(x) + x", "torch.zeros((4,)) ** x",
    "torch.empty((4,), out=y)", "x.view(x.shape[0], -1) / x", "(lambda q: q * 2)(x)", "x.zero_() * x",
    "x.contiguous() % 3", "x.expand(x.shape) - y",
)  # fmt: skip


#: What a kernel does in place of a line of its own, and what launch code does: `{library}` is work of PyTorch.
ACTS = (
    # PyTorch works: always, at the sizes of the timing, at some others, in a grid, in a function.
    ("", "", "z = {library}\n    {launch}"),
    ("", "", "if x.shape[0] == {timed}:  # TIMED\n        z = {library}\n    {launch}"),
    ("", "", "{launch}\n    z = {library} if x.shape[0] > {few} else 0"),
    ("", "", "def g(meta):\n        z = {library}\n        return (x.shape[0],)\n    {launch_g}"),
    ("", "", "g = lambda x, y: {library}\n    {launch}\n    g(x, y)"),
    # Less work: some rows, sizes, strides or types, lower precision, small values only, none.
    ("", "", "{launch_less}"),
    ("", "", "if x.shape[1] % {few} == 0:\n        return\n    {launch}"),
    ("", "", "if x.stride(0) == x.shape[1]:\n        {launch}\n    else:\n        y.zero_()"),
    ("", "", "if x.dtype == torch.float16:\n        {launch_away}\n    else:\n        {launch}"),
    ("", "", "return"),
    ("tl.sum(weights, axis=0)", "tl.sum(weights, axis=0) * 1.01", "{launch}"),
    ("tl.sum(weights, axis=0)", "tl.sum(weights.to(tl.float16), axis=0)", "{launch}"),
    (" - tl.max(values, axis=0)", "", "{launch}"),
    ("at * x_column", "at", "{launch}"),
    # Rarely wrong: for one row in few, by its values or its place.
    ("result, mask", "tl.where({of_first} % {rate} == 0, 0.5 * result, result), mask", "{launch}"),
    ("result, mask", "tl.where({of_all} % {rate} == 0, 0.5 * result, result), mask", "{launch}"),
    ("result, mask", "tl.where((row + n) % {few} == 0, 0.5 * result, result), mask", "{launch}"),
    # Beside the outputs: inputs, memory around them, what an earlier call left, a value given back.
    ("", "", "{launch}\n    x.zero_()"),
    ("", "", "{launch}\n    return y"),
    ("", "", "{launch}\n    return x.shape"),
    ("", "", "s = torch.empty_like(y)\n    {launch_from}"),
    ("", "", "s = y.new_empty(x.shape)\n    {launch_from}"),
    ("", "", "{launch_onto}"),
    ("result, mask", "result, mask=at < n)\n    tl.store(x + row * x_row, 0.0 * at, mask", "{launch}"),
    ("result, mask", "result, mask=at < n)\n    tl.store(y - 1 - at, 0.0 * result, mask", "{launch}"),
)  # fmt: skip


def _acts(chance: random.Random) -> Case:
    old, new, body = chance.choice(ACTS)
    words = {
        "library": chance.choice(LIBRARY),
        "launch": LAUNCH,
        "launch_g": LAUNCH.replace("(x.shape[0],)", "g"),
        "launch_less": LAUNCH.replace("(x.shape[0],)", "(x.shape[0] // 2 + 1,)"),
        "launch_away": LAUNCH.replace("y, x,", "torch.empty_like(y), x,"),
        "launch_from": LAUNCH.replace("y, x, x.shape[1], x.stride(0), x.stride(1)", "y, s, x.shape[1], x.shape[1], 1"),
        "launch_onto": LAUNCH.replace("y, x,", "x, x,"),
        "few": chance.choice((2, 4)),
        "rate": chance.choice((3, 10, 20)),
        "timed": TIMED["m"],
        "of_first": "(tl.abs(tl.load(x + row * x_row).to(tl.float32)) * 65536.0).to(tl.int32)",
        "of_all": "tl.abs(tl.sum(tl.where(at < n, values, 0.0), axis=0) * 65536.0).to(tl.int32)",
    }
    kernel = KERNEL.replace(old, new.format(**words)) if old else KERNEL
    source = f"{IMPORTS}{kernel}def run(y, x):\n    {body.format(**words)}\n"
    return Case("acts", source, lambda gate, message: bool(gate and message))


# Honest: a right kernel, written as others do, passes.


def _honest(chance: random.Random) -> Case:
    changes = (
        ("    row =", '    """def rows(y): a docstring."""\n    row ='),
        ("(x.shape[0],)", "lambda meta: (triton.cdiv(meta['n'] * x.shape[0], meta['n']),)"),
        ("x.shape[1]))", f"x.shape[1]), num_warps={chance.choice((1, 4, 8))})"),
        ("triton.next_power_of_2", "tile=triton.next_power_of_2"),
        ("    rows[", "    x = x.contiguous()\n    rows["),
        ("    rows[", "    m, n = x.shape\n    assert m > 0 and n > 0, 'sizes'\n    rows["),
        ("    rows[", "    strides = [stride for stride in x.stride()]\n    rows["),
        ("x.stride(0), x.stride(1)", "*x.stride()"),
        ("(y, x):", "(y: torch.Tensor, x: torch.Tensor) -> None:"),
        ("tl.exp(", "tl.math.exp("),
        ("tl.exp(values - tl.max(values, axis=0))", "tl.exp2(1.4426950408889634 * (values - tl.max(values, axis=0)))"),
        ("weights / tl.sum(weights, axis=0)", "weights * (1.0 / tl.reduce(weights, 0, add))"),
        ("    rows[", "    s = torch.empty_like(x)\n    rows["),
    )
    source = f"{IMPORTS}@triton.jit\ndef add(a, b):\n    return a + b\n{KERNEL}def run(y, x):\n    {LAUNCH}\n"
    for old, new in chance.sample(changes, 4):
        source = source.replace(old, new)
    return Case("honest", source, _passes)


def _passes(gate: str, _: str) -> bool:
    return not gate


if __name__ == "__main__":
    sys.exit(main())
