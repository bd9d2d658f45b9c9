"""Python modules as sets of definitions, followed by name, whose text depends on their meaning alone.

A text leaves out imports, comments, docstrings, type hints (but for those of jitted functions), and everything that
versions of Python parse differently. Nothing is imported or executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import constrint

_PACKAGE = Path(constrint.__file__).parent
_JIT = "jit"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Fields of syntax trees that do not change the computation, or that not every version of Python has.
_LEFT_OUT = frozenset(("ctx", "kind", "returns", "simple", "type_comment", "type_params"))


@dataclass(frozen=True)
class Module:
    """A file of Python, parsed.

    Args:
        path: The file.
        tree: Its syntax tree.
    """

    path: Path
    tree: ast.Module

    @cached_property
    def body(self) -> tuple[ast.stmt, ...]:
        """Its statements without imports, docstrings and blocks for type checkers."""
        return tuple(
            node
            for node in self.tree.body
            if not isinstance(node, ast.Import | ast.ImportFrom) and not _is_string(node) and not _is_typing(node)
        )

    @cached_property
    def defined(self) -> Mapping[str, ast.AST]:
        """Functions, classes and values of constants by name."""
        return dict(_defined(self.body))

    @cached_property
    def imports(self) -> Mapping[str, str]:
        """Dotted names of the module's imports at loading, by their names in the module."""
        return dict(pair for node in self.tree.body for pair in _imported(node))

    @cached_property
    def all_imports(self) -> Mapping[str, str]:
        """Dotted names of all imports, those inside functions included."""
        return dict(pair for node in ast.walk(self.tree) for pair in _imported(node))

    @cached_property
    def entries(self) -> Mapping[str, list[ast.expr]]:
        """Values that dictionaries anywhere in the module have for keys that are literal strings."""
        by_key: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        by_key.setdefault(key.value, []).append(value)
        return by_key

    def definitions(self) -> list[Definition]:
        """All definitions of the module."""
        return [Definition(self, name) for name in self.defined]

    def functions(self) -> list[Definition]:
        """The functions among its definitions."""
        return [one for one in self.definitions() if one.is_function]

    def find(self, name: str) -> Definition | None:
        """The definition that a name of this module stands for, here or where it is imported from."""
        if name in self.defined:
            return Definition(self, name)
        return resolve(self.all_imports[name]) if name in self.all_imports else None


@dataclass(frozen=True)
class Definition:
    """A function, a class or a constant of a module.

    Args:
        module: The module.
        name: Its name in the module.
    """

    module: Module
    name: str

    def __hash__(self) -> int:
        return hash((self.module.path, self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and (self.module.path, self.name) == (other.module.path, other.name)

    @property
    def node(self) -> ast.AST:
        """The syntax tree: a function, a class, or the value of a constant."""
        return self.module.defined[self.name]

    @property
    def is_function(self) -> bool:
        """Whether the definition is a function."""
        return isinstance(self.node, _FUNCTIONS)

    @property
    def is_literal(self) -> bool:
        """Whether the definition is a constant whose value is a literal."""
        try:
            ast.literal_eval(self.node)
        except (ValueError, TypeError, MemoryError, RecursionError):
            return False
        return True

    @property
    def text(self) -> str:
        """Name and normalised text of the definition, and the dotted names that it uses from other packages."""
        foreign = sorted(f"{name}={self.module.imports[name]}" for name in self._foreign())
        return f"{self.name}:{text_of(self.node)}|{','.join(foreign)}"

    def calls(self, name: str) -> bool:
        """Whether the definition calls a function or class of this name."""
        return any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
            for node in ast.walk(self.node)
        )

    def uses(self) -> list[Definition]:
        """The definitions of the package that this definition uses by name."""
        definitions = []
        for name, attribute in _names(self.node):
            module = module_of(self.module.imports.get(name, ""))
            if module is None:
                definitions.append(self.module.find(name))
            elif attribute in module.defined:
                definitions.append(Definition(module, attribute))
        return [one for one in definitions if one is not None and one != self]

    def _foreign(self) -> set[str]:
        names = {name for name, _ in _names(self.node)} & self.module.imports.keys()
        return {name for name in names if not self.module.imports[name].startswith(f"{_PACKAGE.name}.")}


def closure(roots: Iterable[Definition]) -> list[str]:
    """Texts of definitions and of all that they use, sorted."""
    waiting = list(roots)
    seen = set(waiting)
    while waiting:
        new = set(waiting.pop().uses()) - seen
        seen |= new
        waiting += new
    return sorted({one.text for one in seen})


def is_device(module: Module) -> bool:
    """Whether a module has device code: a function that Triton or Gluon compiles."""
    return any(isinstance(node, _FUNCTIONS) and _is_jitted(node) for node in module.body)


def folder_of(home: Path) -> list[Module]:
    """The modules of a file's folder."""
    return [read_module(path) for path in sorted(home.parent.glob("*.py"))]


def module_of(name: str) -> Module | None:
    """The module of the package with a dotted name; None for any other name."""
    first, *parts = name.split(".")
    if first != _PACKAGE.name or not parts:
        return None
    path = _PACKAGE.joinpath(*parts)
    file = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
    return None if file is None else read_module(file)


def resolve(name: str) -> Definition | None:
    """The definition of the package with a dotted name, through modules that import it from others."""
    owner, _, attribute = name.rpartition(".")
    module = module_of(owner)
    return None if module is None else module.find(attribute)


@lru_cache(maxsize=1024)
def read_module(path: Path) -> Module:
    """Parse a file of Python."""
    return Module(path, ast.parse(path.read_bytes()))


def string_constants(tree: ast.AST) -> list[str]:
    """The strings inside a syntax tree."""
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def text_of(node: object, *, keeps_types: bool = True) -> str:
    """Normalised text of a syntax tree, equal for all versions of Python."""
    if isinstance(node, list | tuple):
        items = (each for each in node if not (isinstance(each, ast.AST) and _is_string(each)))
        return f"[{','.join(text_of(each, keeps_types=keeps_types) for each in items)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, _FUNCTIONS):
        keeps_types = _is_jitted(node)
    if isinstance(node, ast.JoinedStr):
        node = ast.JoinedStr(list(_joined(node.values)))
    fields = []
    for name, value in ast.iter_fields(node):
        is_type = name == "annotation" and not keeps_types
        if name not in _LEFT_OUT and value not in (None, []) and not is_type:
            fields.append(f"{name}={text_of(value, keeps_types=keeps_types)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _joined(values: list[ast.expr]) -> Iterator[ast.expr]:
    """The parts of an f-string, neighbouring texts as one."""
    text = ""
    for value in values:
        if isinstance(value, ast.Constant):
            text += str(value.value)
            continue
        yield from [ast.Constant(text)] if text else []
        text = ""
        yield value
    yield from [ast.Constant(text)] if text else []


def _defined(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _assigned(node.target, node.value)
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined([*node.body, *node.orelse])


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
        for one, of_one in zip(target.elts, values, strict=False):
            yield from _assigned(one, of_one)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom) and node.module != "__future__":
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2


def _names(tree: ast.AST) -> set[tuple[str, str]]:
    """Names that a definition reads and does not bind itself, each with the attribute that is read of it or ""."""
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add((node.value.id, node.attr))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add((node.id, ""))
    return {(name, attribute) for name, attribute in names if name not in bound}


def _is_jitted(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute) and called.attr == _JIT:
            return True
        if isinstance(called, ast.Name) and called.id == _JIT:
            return True
    return False


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_typing(node: ast.stmt) -> bool:
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
