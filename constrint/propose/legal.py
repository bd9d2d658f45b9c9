"""Reads a candidate's source before anything executes it: what is not on a list (`allowed.py`) is refused.

Host functions compute sizes, take memory and launch; kernels compute. There is no way to write down state that outlives
a call, a look at values, a class, a file, or an object of Python's interior. The tree that was read is what runs:
`canonical` writes it anew, so no other text can hide in a comment, a string or an odd line.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Callable, Iterator

from constrint.propose.allowed import (
    ANNOTATIONS,
    BUILTINS,
    DECORATOR,
    DEVICE_ATTRIBUTES,
    HOST_ATTRIBUTES,
    IMPORTS,
    LAUNCH_OPTIONS,
    LIBDEVICE,
    MODULES,
    refused,
)
from constrint.tune.search.llm.records import MAX_SOURCE

#: Longest line, deepest brackets, and most nodes of the tree, so that reading takes no time and no stack.
MAX_LINE, MAX_DEPTH, MAX_NODES = 1000, 40, 20_000
#: Types of constants.
LITERALS = (bool, int, float, str, type(None))
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
        _SourceReader(_parse(source), entry).read()
        if ast.dump(ast.parse(canonical(source))) != ast.dump(_without_texts(ast.parse(source))):
            return "the source cannot be written anew from what was read; write it simpler."
    except _IllegalError as error:
        return str(error)
    except SyntaxError as error:
        return f"line {error.lineno or 0}: no Python: {error.msg}."
    except (RecursionError, MemoryError, ValueError) as error:
        return f"the source cannot be read ({type(error).__name__}); write it simpler."
    return ""


def canonical(source: str) -> str:
    """The text that runs: written anew from the tree, without comments and docstrings.

    Triton looks for a kernel's text by lines and by `def`, and would find text of a docstring or of a continued line.

    Raises:
        SyntaxError: When it is no Python.
    """
    return ast.unparse(_without_texts(ast.parse(source))) + "\n"


class _IllegalError(Exception):
    def __init__(self, node: ast.AST | None, what: str) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 0)}: {what}" if node is not None else what)


def _parse(source: str) -> ast.Module:
    if len(source) > MAX_SOURCE:
        raise _IllegalError(None, f"the source has {len(source)} characters; at most {MAX_SOURCE} are read.")
    if not source.isascii() or any(ord(character) < 32 and character not in "\t\r\n" for character in source):
        raise _IllegalError(None, "the source has characters that are not ASCII, or control it; write it in ASCII.")
    depth = 0
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > MAX_LINE:
            raise _IllegalError(None, f"line {number} has {len(line)} characters; at most {MAX_LINE} are read.")
        for character in line:
            depth += (character in "([{") - (character in ")]}")
            if depth > MAX_DEPTH:
                raise _IllegalError(None, f"line {number}: brackets are nested more than {MAX_DEPTH} deep.")
    tree = ast.parse(source)
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise _IllegalError(None, f"the source has more than {MAX_NODES} parts; write a shorter kernel.")
    return tree


def _without_texts(tree: ast.Module) -> ast.Module:
    """The tree without statements that are constants, docstrings among them."""
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            if isinstance(body := getattr(node, field, None), list):
                kept = [one for one in body if not _is_text(one)]
                setattr(node, field, kept or [ast.Pass()] * (field == "body" and not isinstance(node, ast.Module)))
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _SourceReader:
    """Goes through a source once; every node and every field of it is read."""

    def __init__(self, tree: ast.Module, entry: str) -> None:
        self._tree, self._entry = tree, entry
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        #: The arguments of each kernel by its name.
        self._kernels = {f.name: {arg.arg for arg in _arguments(f)} for f in functions if f.decorator_list}
        self._hosts = {node.name for node in functions if not node.decorator_list}
        self._bound: set[str] = set()
        self._foreign: set[str] = set()
        #: Nodes that were read as a part of the one above them.
        self._read: set[int] = set()

    def read(self) -> None:
        """Raise for the first thing that is not allowed."""
        for node in self._tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._read_import(node)
            elif isinstance(node, ast.FunctionDef):
                self._bind_once(node, node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self._read_constant(node)
            elif not _is_text(node):
                raise _IllegalError(
                    node, "only imports, functions and constants stand at the top: nothing runs on import, no classes."
                )
        self._foreign = _globals_of(symtable.symtable(ast.unparse(self._tree), "candidate", "exec")) - self._bound
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef):
                self._read_function(node)
        if self._entry not in self._hosts:
            raise _IllegalError(None, f"there is no function {self._entry!r} that launches; define it at the top.")
        if not self._kernels:
            raise _IllegalError(None, "no function has @triton.jit: the work has to be done by a kernel of its own.")

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                is_known = (node.level, node.module, alias.name) == (0, LIBDEVICE, "libdevice")
                is_known = is_known and alias.asname in (None, "libdevice")
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
            self._bound.add(name)

    def _read_constant(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = node.value
        self._check_annotation(node)
        if isinstance(value, ast.Call) and _path(value.func) == "tl.constexpr" and not value.keywords:
            value = value.args[0] if len(value.args) == 1 else None
        if value is None or not _is_literal(value) or not all(isinstance(target, ast.Name) for target in targets):
            raise _IllegalError(
                node, "only numbers, strings and tuples of them are constants: nothing is kept from call to call."
            )
        for target in targets:
            self._bind_once(target, getattr(target, "id", ""))

    def _bind_once(self, node: ast.AST, name: str) -> None:
        if name in self._bound:
            raise _IllegalError(node, f"{name} is defined twice; a name at the top means one thing.")
        _check_name_is_free(node, name)
        self._bound.add(name)

    def _read_function(self, node: ast.FunctionDef) -> None:
        if [_path(decorator) for decorator in node.decorator_list] not in ([], [DECORATOR]):
            raise _IllegalError(
                node, "the only decorator is @triton.jit: what @triton.autotune would choose, the tuner chooses."
            )
        self._read |= {id(decorator) for decorator in node.decorator_list}
        self._check_annotation(node)
        waiting = list(ast.iter_child_nodes(node))
        while waiting:
            inner = waiting.pop(0)
            if id(inner) not in self._read:
                self._check(inner, bool(node.decorator_list))
                waiting[:0] = list(ast.iter_child_nodes(inner))

    def _check(self, node: ast.AST, is_kernel: bool) -> None:
        if not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS, *_PARTS)):
            raise _IllegalError(
                node, f"{type(node).__name__} is no part of Python that a kernel needs; write it without."
            )
        checks: dict[type[ast.AST], Callable[[], None]] = {
            ast.Name: lambda: self._check_name(node),
            ast.Attribute: lambda: self._check_attribute(node, is_kernel),
            ast.Call: lambda: self._check_call(node, is_kernel),
            ast.Subscript: lambda: _check_store(node),
            ast.Constant: lambda: _check_constant(node),
            ast.arguments: lambda: _check_defaults(node),
            ast.arg: lambda: self._check_binding(node, getattr(node, "arg", "")),
            ast.FunctionDef: lambda: self._check_nested(node, is_kernel),
            ast.BinOp: lambda: _check_product(node, is_kernel),
        }
        checks.get(type(node), lambda: None)()
        self._check_annotation(node)

    def _check_annotation(self, node: ast.AST) -> None:
        """An annotation is executed, and a kernel's decides how it is compiled: it is read as a whole."""
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if annotation is None:
            return
        is_none = isinstance(annotation, ast.Constant) and annotation.value is None
        if not is_none and _path(annotation) not in ANNOTATIONS:
            names = ", ".join(sorted(ANNOTATIONS))
            raise _IllegalError(node, f"the annotation {ast.unparse(annotation)} is none of {names}; write it without.")
        self._read.add(id(annotation))

    def _check_name(self, node: ast.AST) -> None:
        """A name that is read is a local one, a constant or a built-in function: no module, no function as a value."""
        assert isinstance(node, ast.Name)
        name = node.id
        if isinstance(node.ctx, ast.Store):
            self._check_binding(node, name)
        elif isinstance(node.ctx, ast.Del):
            raise _IllegalError(node, "nothing is deleted.")
        elif name in MODULES or name in self._hosts or name in self._kernels:
            raise _IllegalError(node, f"{name} is a value here: modules and functions are named where they are used.")
        self._check_known(node, name)

    def _check_known(self, node: ast.AST, name: str) -> None:
        if name in self._foreign - BUILTINS:
            what = "a built-in function that a kernel does not need" if hasattr(builtins, name) else "not defined"
            raise _IllegalError(node, f"{name} is {what}.")

    def _check_binding(self, node: ast.AST, name: str) -> None:
        if name in self._kernels or name in self._hosts:
            raise _IllegalError(node, f"{name} is the name of something else; take another.")
        _check_name_is_free(node, name)

    def _check_nested(self, node: ast.AST, is_kernel: bool) -> None:
        assert isinstance(node, ast.FunctionDef)
        if is_kernel:
            raise _IllegalError(node, "no function inside a kernel; write it beside, with @triton.jit.")
        if node.decorator_list:
            raise _IllegalError(node, "a kernel stands at the top, not inside a function.")
        self._check_binding(node, node.name)

    def _check_attribute(self, node: ast.AST, is_kernel: bool) -> None:
        assert isinstance(node, ast.Attribute)
        name, whole = node.attr, ast.unparse(node)
        if not isinstance(node.ctx, ast.Load):
            raise _IllegalError(node, f"{whole} is assigned: objects are not changed, only names are assigned.")
        if name.startswith("_"):
            raise _IllegalError(node, f"{whole}: names that begin with an underscore are Python's interior.")
        owner, _, path = _path(node).partition(".")
        if owner in MODULES:
            why = refused(owner, path, is_kernel)
            self._read.add(id(node.value))
        elif is_kernel:
            why = "" if name in DEVICE_ATTRIBUTES else "not one of what a block of values is asked in a kernel"
        else:
            why = "" if name in HOST_ATTRIBUTES else "a tensor is asked for its shape and memory, not for its values"
        if why:
            raise _IllegalError(node, f"{whole} is not allowed: {why}.")

    def _check_call(self, node: ast.AST, is_kernel: bool) -> None:
        assert isinstance(node, ast.Call)
        function, options = node.func, {keyword.arg or "**" for keyword in node.keywords}
        # A kernel is launched, called by a kernel, or given to a reduction; nowhere else a function is named.
        named = [function.value if isinstance(function, ast.Subscript) else function]
        if is_kernel:
            values = (*node.args, *(keyword.value for keyword in node.keywords))
            named += [one for one in values if _path(one) in self._kernels]
        self._read |= {id(one) for one in named if isinstance(one, ast.Name) and one.id not in MODULES}
        if isinstance(function, ast.Subscript):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            if is_kernel or owner not in self._kernels:
                raise _IllegalError(node, f"{ast.unparse(function)} is no launch of a kernel of this source.")
            unknown = options - self._kernels[owner] - LAUNCH_OPTIONS
            if unknown - {"**"}:
                raise _IllegalError(node, f"{min(unknown)} is no argument of {owner}, and no option of a launch.")
        elif isinstance(function, ast.Name):
            self._check_known(function, function.id)
            if is_kernel and function.id not in self._kernels.keys() | BUILTINS:
                raise _IllegalError(node, f"{function.id} is called in a kernel, and has no @triton.jit.")
            if not is_kernel and function.id in self._kernels:
                raise _IllegalError(node, f"{function.id} is a kernel; launch it by {function.id}[grid](...).")
        elif not isinstance(function, ast.Attribute):
            raise _IllegalError(node, f"{ast.unparse(function)} is called, which has no name.")
        if any(option.startswith(("_", "**")) for option in options):
            raise _IllegalError(node, "an argument by ** or with a hidden name; write every name out.")


def _path(node: ast.AST) -> str:
    """A chain of attributes of a name, with dots; empty for all else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _arguments(function: ast.FunctionDef) -> Iterator[ast.arg]:
    one = function.args
    yield from (*one.posonlyargs, *one.args, *one.kwonlyargs, *filter(None, (one.vararg, one.kwarg)))


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    """Names that the compiler looks for at the top or among built-in functions, in all functions."""
    names: set[str] = set()
    for child in table.get_children():
        names |= {symbol.get_name() for symbol in child.get_symbols() if symbol.is_global()} | _globals_of(child)
    return names


def _check_name_is_free(node: ast.AST, name: str) -> None:
    if name.startswith("__") or name in MODULES or name in BUILTINS:
        raise _IllegalError(node, f"{name} is the name of something else; take another.")


def _check_store(node: ast.AST) -> None:
    assert isinstance(node, ast.Subscript)
    if not isinstance(node.ctx, ast.Load):
        raise _IllegalError(node, f"{ast.unparse(node)} is assigned: a tensor is written by kernels, with tl.store.")


def _check_constant(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant)
    if not isinstance(node.value, (*LITERALS, type(...))):
        raise _IllegalError(node, f"{node.value!r} is a {type(node.value).__name__}; a kernel needs numbers.")


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
    return isinstance(node, ast.Constant) and isinstance(node.value, LITERALS)
