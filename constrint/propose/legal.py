"""Reads a candidate's source before anything executes it: what is not on the lists below is refused.

The lists say what a kernel needs. Host functions compute sizes, take memory and launch; kernels compute. There is no
way to write down state that outlives a call, a look at values, a class, a file, or an object of Python's interior.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator

from constrint.tune.search.llm.records import MAX_SOURCE


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Longest line, deepest brackets, and most nodes of the tree, so that reading takes no time and no stack.
MAX_LINE, MAX_DEPTH, MAX_NODES = 1000, 40, 20_000
#: Modules that may be imported, each under one name only.
IMPORTS = {"torch": "torch", "triton": "triton", "triton.language": "tl", "math": "math"}
LIBDEVICE = "triton.language.extra"
MODULE_NAMES = frozenset({*IMPORTS.values(), "libdevice"})
TORCH = _words(
    "empty empty_like empty_strided zeros zeros_like Tensor Size dtype device float32 float16 bfloat16 float64 int8 "
    "int16 int32 int64 uint8 bool float half"
)
TRITON = frozenset({"jit", "cdiv", "next_power_of_2"})
#: Forbidden names of `triton.language`: inline PTX can read the clock and control the L2; the others print.
NOT_TRITON_LANGUAGE = frozenset(
    {"inline_asm_elementwise", "device_print", "device_assert", "static_print", "extra", "core", "semantic", "standard"}
)
#: Attributes of tensors, shapes and numbers that a host function may use.
HOST_ATTRIBUTES = _words(
    "shape stride size dim ndim dtype device numel element_size itemsize is_contiguous contiguous view reshape flatten "
    "unsqueeze squeeze transpose permute expand T new_empty zero_ bit_length index"
)
#: Attributes of a block of values or its type that a kernel may use.
DEVICE_ATTRIBUTES = _words(
    "to dtype element_ty type shape T value scalar reshape view trans permute broadcast_to expand_dims sum max min "
    "argmax argmin abs exp exp2 log log2 sqrt rsqrt sigmoid softmax cdiv logical_and logical_or primitive_bitwidth "
    "is_floating is_fp16 is_bf16 is_fp32 is_fp64"
)
BUILTINS = _words(
    "range len min max int float bool abs tuple round sum divmod zip enumerate True False None ValueError "
    "NotImplementedError AssertionError"
)
_STATEMENTS: tuple[type[ast.AST], ...] = (
    ast.FunctionDef, ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Expr,
    ast.Pass, ast.Break, ast.Continue, ast.Assert, ast.Raise,
)  # fmt: skip
_EXPRESSIONS: tuple[type[ast.AST], ...] = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.ListComp, ast.GeneratorExp, ast.Compare,
    ast.Call, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice,
)  # fmt: skip
_PARTS: tuple[type[ast.AST], ...] = (
    ast.arguments, ast.arg, ast.keyword, ast.comprehension, ast.expr_context, ast.boolop, ast.operator, ast.unaryop,
    ast.cmpop,
)  # fmt: skip


def illegal(source: str, entry: str) -> str:
    """The first thing in a candidate's source that is not allowed, with its line and the way out; empty if none.

    Args:
        source: The whole text.
        entry: The function that is called.
    """
    try:
        tree = _parse(source)
        _SourceReader(tree, entry).read()
    except _IllegalError as error:
        return str(error)
    return ""


class _IllegalError(Exception):
    def __init__(self, node: ast.AST | None, what: str) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 0)}: {what}" if node is not None else what)


def _parse(source: str) -> ast.Module:
    if len(source) > MAX_SOURCE:
        raise _IllegalError(None, f"the source has {len(source)} characters; at most {MAX_SOURCE} are read.")
    if "\0" in source or not source.isascii():
        raise _IllegalError(None, "the source has characters that are not ASCII; write it in ASCII.")
    depth = 0
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > MAX_LINE:
            raise _IllegalError(None, f"line {number} has {len(line)} characters; at most {MAX_LINE} are read.")
        for character in line:
            depth += (character in "([{") - (character in ")]}")
            if depth > MAX_DEPTH:
                raise _IllegalError(None, f"line {number}: brackets are nested more than {MAX_DEPTH} deep.")
    try:
        tree = ast.parse(source)
        if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
            raise _IllegalError(None, f"the source has more than {MAX_NODES} parts; write a shorter kernel.")
    except SyntaxError as error:
        raise _IllegalError(None, f"line {error.lineno or 0}: no Python: {error.msg}.") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise _IllegalError(None, f"the source cannot be read ({type(error).__name__}); write it simpler.") from None
    return tree


class _SourceReader:
    """Goes through a source once."""

    def __init__(self, tree: ast.Module, entry: str) -> None:
        self._tree, self._entry = tree, entry
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        self._kernels = {node.name for node in functions if node.decorator_list}
        self._hosts = {node.name for node in functions if not node.decorator_list}
        self._constants: set[str] = set()
        self._imported: set[str] = set()

    def read(self) -> None:
        """Raise for the first thing that is not allowed."""
        for place, node in enumerate(self._tree.body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._read_import(node)
            elif isinstance(node, ast.FunctionDef):
                self._read_function(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self._read_constant(node)
            elif not (place == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                raise _IllegalError(
                    node, "only imports, functions and constants stand at the top: nothing runs on import, no classes."
                )
        if self._entry not in self._hosts:
            raise _IllegalError(None, f"there is no function {self._entry!r} that launches; define it at the top.")
        if not self._kernels:
            raise _IllegalError(None, "no function has @triton.jit: the work has to be done by a kernel of its own.")

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                is_known = node.module == LIBDEVICE and alias.name == "libdevice" and alias.asname is None
                name = "libdevice"
            else:
                name = IMPORTS.get(alias.name, "")
                is_known = bool(name) and (alias.asname or alias.name) == name
            if not is_known:
                raise _IllegalError(
                    node,
                    f"{ast.unparse(node)!r}: only `import torch`, `import triton`, `import triton.language as tl`, "
                    f"`import math` and `from {LIBDEVICE} import libdevice` are allowed.",
                )
            self._imported.add(name)

    def _read_constant(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.constexpr" and len(value.args) == 1:
            value = value.args[0]
        if value is None or not _is_literal(value) or not all(isinstance(target, ast.Name) for target in targets):
            raise _IllegalError(
                node, "only numbers, strings and tuples of them are constants: nothing is kept from call to call."
            )
        for target in targets:
            assert isinstance(target, ast.Name)
            self._check_binding(target, target.id)
            self._constants.add(target.id)

    def _read_function(self, node: ast.FunctionDef) -> None:
        if [ast.unparse(decorator) for decorator in node.decorator_list] not in ([], ["triton.jit"]):
            raise _IllegalError(
                node, "the only decorator is @triton.jit: what @triton.autotune would choose, the tuner chooses."
            )
        is_kernel = bool(node.decorator_list)
        local = {*_bound_names(node)}
        for inner in _inside(node):
            if isinstance(inner, ast.FunctionDef) and is_kernel:
                raise _IllegalError(inner, "no function inside a kernel; write it beside, with @triton.jit.")
            self._check(inner, is_kernel, local)

    def _check(self, node: ast.AST, is_kernel: bool, local: set[str]) -> None:
        if not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS, *_PARTS)):
            raise _IllegalError(
                node, f"{type(node).__name__} is no part of Python that a kernel needs; write it without."
            )
        checks: dict[type[ast.AST], Callable[[], None]] = {
            ast.Name: lambda: self._check_name(node, local),
            ast.Attribute: lambda: self._check_attribute(node, is_kernel),
            ast.Call: lambda: self._check_call(node, is_kernel),
            ast.Subscript: lambda: _check_store(node),
            ast.arguments: lambda: _check_defaults(node),
            ast.arg: lambda: self._check_binding(node, getattr(node, "arg", "")),
            ast.FunctionDef: lambda: self._check_nested(node),
            ast.BinOp: lambda: _check_product(node, is_kernel),
        }
        checks.get(type(node), lambda: None)()

    def _check_name(self, node: ast.AST, local: set[str]) -> None:
        assert isinstance(node, ast.Name)
        name = node.id
        if isinstance(node.ctx, ast.Store):
            self._check_binding(node, name)
        elif isinstance(node.ctx, ast.Del):
            raise _IllegalError(node, "nothing is deleted.")
        names = local | self._kernels | self._hosts | self._constants | self._imported | BUILTINS
        if name not in names:
            what = "a built-in function that a kernel does not need" if hasattr(builtins, name) else "not defined"
            raise _IllegalError(node, f"{name} is {what}.")

    def _check_binding(self, node: ast.AST, name: str) -> None:
        is_hidden = name.startswith("__") or name in MODULE_NAMES or name in BUILTINS
        is_taken = name in self._kernels | self._hosts and not isinstance(node, ast.FunctionDef)
        if is_hidden or is_taken:
            raise _IllegalError(node, f"{name} is the name of something else; take another.")

    def _check_nested(self, node: ast.AST) -> None:
        assert isinstance(node, ast.FunctionDef)
        if node.decorator_list:
            raise _IllegalError(node, "a kernel stands at the top, not inside a function.")

    def _check_attribute(self, node: ast.AST, is_kernel: bool) -> None:
        assert isinstance(node, ast.Attribute)
        name, whole = node.attr, ast.unparse(node)
        if not isinstance(node.ctx, ast.Load):
            raise _IllegalError(node, f"{whole} is assigned: objects are not changed, only names are assigned.")
        if name.startswith("_"):
            raise _IllegalError(node, f"{whole}: names that begin with an underscore are Python's interior.")
        owner, depth = _root(node)
        is_allowed, why = _ask(owner, depth, name, is_kernel)
        if not is_allowed:
            raise _IllegalError(node, f"{whole} is not allowed: {why}.")

    def _check_call(self, node: ast.AST, is_kernel: bool) -> None:
        assert isinstance(node, ast.Call)
        function = node.func
        if isinstance(function, ast.Subscript):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            if is_kernel or owner not in self._kernels:
                raise _IllegalError(node, f"{ast.unparse(function)} is no launch of a kernel of this source.")
        elif not isinstance(function, ast.Name | ast.Attribute):
            raise _IllegalError(node, f"{ast.unparse(function)} is called, which has no name.")


def _root(node: ast.Attribute) -> tuple[str, int]:
    """The name that a chain of attributes begins with, and how long the chain is; no name where it is a value."""
    value, depth = node.value, 1
    while isinstance(value, ast.Attribute):
        value, depth = value.value, depth + 1
    return (value.id if isinstance(value, ast.Name) else "", depth)


def _ask(owner: str, depth: int, name: str, is_kernel: bool) -> tuple[bool, str]:
    """Whether an attribute may be asked for, and why not."""
    if owner == "torch":
        return depth == 1 and name in TORCH, "of torch only types and empty memory, PyTorch may not do the work"
    if owner == "triton":
        return depth == 1 and name in TRITON, f"of triton only {', '.join(sorted(TRITON))}"
    if owner == "tl":
        return depth <= 2 and name not in NOT_TRITON_LANGUAGE, "no assembly, no clock, no printing"
    if owner in ("math", "libdevice"):
        return depth == 1, "it is a function"
    if is_kernel:
        return name in DEVICE_ATTRIBUTES, "not one of what a block of values is asked in a kernel"
    return name in HOST_ATTRIBUTES, "a tensor is asked for its shape and memory, not for its values"


def _check_store(node: ast.AST) -> None:
    assert isinstance(node, ast.Subscript)
    if not isinstance(node.ctx, ast.Load):
        raise _IllegalError(node, f"{ast.unparse(node)} is assigned: a tensor is written by kernels, with tl.store.")


def _check_defaults(node: ast.AST) -> None:
    assert isinstance(node, ast.arguments)
    for default in (*node.defaults, *node.kw_defaults):
        if default is not None and not _is_literal(default):
            raise _IllegalError(default, "a default is a constant: nothing is kept from call to call.")


def _check_product(node: ast.AST, is_kernel: bool) -> None:
    assert isinstance(node, ast.BinOp)
    if isinstance(node.op, ast.MatMult) and not is_kernel:
        raise _IllegalError(node, "PyTorch may not do the work: no @ outside of a kernel.")


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(_is_literal(element) for element in node.elts)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.UAdd) and _is_literal(node.operand)
    return isinstance(node, ast.Constant) and not isinstance(node.value, bytes)


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Every node of a function but its decorators, which were looked at."""
    waiting: list[ast.AST] = [function.args, *function.body, *([function.returns] if function.returns else [])]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting[:0] = list(ast.iter_child_nodes(node))


def _bound_names(function: ast.FunctionDef) -> Iterator[str]:
    """Names that a function's arguments, assignments and inner functions bind."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef):
            yield node.name
