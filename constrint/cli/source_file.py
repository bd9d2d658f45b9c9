"""A user's Python file as a module, by itself or as a part of the package that it lies in, as far as it can be run."""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

from constrint.errors import UsageError

_INIT = "__init__.py"
#: Names with two underscores that files ask of their package; Python itself asks for others.
_ASKED = ("__all__", "__author__", "__version__")


@dataclass(frozen=True)
class FailedStatement:
    """A statement of a file's top level that failed, and was left out."""

    line: int
    error: BaseException
    defines: str


def import_file(
    path: Path, named: str, is_enough: Callable[[Mapping[str, Any]], bool]
) -> tuple[ModuleType, list[FailedStatement]]:
    """Run a file's statements one by one; what it imported from its own folder or package is forgotten again.

    A statement that fails is left out, since many files look for a GPU, or launch on it, outside their kernels. One
    that fails once there is enough ends the run.

    A file beside an `__init__.py` is a part of a package: it has its full name, so that its relative imports and those
    of its package hold. The `__init__.py` of the packages around it run only where a file asks them for a name, since
    they often import a whole library.

    Args:
        path: A Python file.
        named: Place where the name was read, for messages.
        is_enough: Whether the names that are defined are all that is wanted.

    Raises:
        UsageError: When there is no such file.
        SyntaxError: When it is not Python.
    """
    path = path.resolve()
    if not path.is_file():
        raise UsageError(f"{named}: there is no such Python file.")
    folders = _packages_around(path)
    with _imports_from(folders[0].parent if folders else path.parent, path):
        before = frozenset(sys.modules)
        try:
            return _run(path, _module_for(path, folders), is_enough)
        finally:
            # The next GPU may have other configurations: files ask for the GPU as they are imported.
            for name in sys.modules.keys() - before:
                if _lies_in(sys.modules[name], folders[0] if folders else path.parent, is_package=bool(folders)):
                    del sys.modules[name]


def _packages_around(path: Path) -> list[Path]:
    """The folders of the packages that a file lies in, the outermost first."""
    folders: list[Path] = []
    folder = path.parent
    while (folder / _INIT).is_file() and folder.name.isidentifier():
        folders.insert(0, folder)
        folder = folder.parent
    return folders


def _module_for(path: Path, folders: list[Path]) -> ModuleType:
    """An empty module for a file, and the packages around it."""
    names = [folder.name for folder in folders]
    for number, folder in enumerate(folders, 1):
        name = ".".join(names[:number])
        if name not in sys.modules:
            sys.modules[name] = package = OuterPackage(name, folder)
            if number > 1:
                setattr(sys.modules[".".join(names[: number - 1])], folder.name, package)
    inside = path.name == _INIT
    name = ".".join(names if inside else [*names, path.stem]) if names else f"constrint_file_{path.stem}"
    spec = util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)] if inside else None)
    if spec is None:
        raise UsageError(f"{path}: this is no Python file.")
    module = sys.modules[name] = util.module_from_spec(spec)
    return module


def _run(
    path: Path, module: ModuleType, is_enough: Callable[[Mapping[str, Any]], bool]
) -> tuple[ModuleType, list[FailedStatement]]:
    tree = ast.parse(path.read_bytes(), str(path))
    failed: list[FailedStatement] = []
    for statement in tree.body:
        code = compile(ast.Module([statement], []), str(path), "exec", flags=_future_flags(tree), dont_inherit=True)
        try:
            exec(code, module.__dict__)  # noqa: S102 - the file that the user named
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's file raises
            failed.append(FailedStatement(statement.lineno, error, getattr(statement, "name", "")))
            if is_enough(vars(module)):
                break
    return module, failed


def _future_flags(tree: ast.Module) -> int:
    """The compiler's flags for a file's imports from `__future__`."""
    names = [
        alias.name
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        for alias in statement.names
    ]
    flags = 0
    for name in names:
        flags |= getattr(__future__, name).compiler_flag
    return flags


class OuterPackage(ModuleType):
    """A package around the user's file, whose `__init__.py` runs when a name of it is first asked for."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        spec = util.spec_from_file_location(name, folder / _INIT, submodule_search_locations=[str(folder)])
        self.__spec__, self.__file__, self.__path__ = spec, str(folder / _INIT), [str(folder)]
        self.__package__ = name
        self._has_run = False

    def run(self) -> None:
        """Run the package's own code, once."""
        if not self._has_run and self.__spec__ is not None and self.__spec__.loader is not None:
            self._has_run = True
            self.__spec__.loader.exec_module(self)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") or name in _ASKED:
            if util.find_spec(f"{self.__name__}.{name}") is not None:
                return import_module(f"{self.__name__}.{name}")
            if not self._has_run:
                self.run()
                return getattr(self, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


@contextmanager
def _imports_from(folder: Path, path: Path) -> Iterator[None]:
    """Let imports find the files of a folder first; a file that reads the command line sees its own name alone."""
    arguments, sys.argv = sys.argv, [str(path)]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.argv = arguments
        sys.path.remove(str(folder))


def _lies_in(module: Any, folder: Path, *, is_package: bool) -> bool:
    """Whether a module is a file of the folder; of a package, also of the folders below."""
    place = getattr(module, "__file__", None)
    if not place:
        return False
    file = Path(place).resolve()
    return folder in file.parents if is_package else folder == file.parent
