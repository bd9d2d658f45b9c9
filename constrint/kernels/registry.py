"""The kernels there are, by name: built-in ones, those of installed packages, and those of a file.

A spec is imported at its first use. Another package registers its kernels as entry points of the group
`constrint.kernels`, each naming one or several; a program calls `register`; the command line takes `FILE.py:NAME`.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from constrint import plugins
from constrint.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec, Operation

ENTRY_POINTS = "constrint.kernels"
#: Operation where none is named.
DEFAULT_KERNEL = "gemm"
_RNN = tuple(
    f"constrint.kernels.rnn.{name}.spec"
    for name in ("cuda", "wgmma", "wgmma_partial", "triton", "cudnn", "alternating")
)
#: Modules with the implementations of each built-in operation, preferred ones first; each has `SPECS`.
_MODULES: dict[str, tuple[str, ...]] = {
    "gemm": (
        "constrint.kernels.gemm.descriptor.spec",
        "constrint.kernels.gemm.cuda.spec",
        "constrint.kernels.gemm.cdna.spec",
        "constrint.kernels.gemm.skinny.spec",
        "constrint.kernels.gemm.fp32.spec",
        "constrint.kernels.gemm.prepared.spec",
        "constrint.kernels.gemm.library.spec",
        "constrint.kernels.gemm.pointer.spec",
    ),
    "grouped": ("constrint.kernels.grouped.spec",),
    "gated": ("constrint.kernels.gemm.gated.spec", "constrint.kernels.gemm.gated.pointer.spec"),
    "scaled_gemm": ("constrint.kernels.gemm.scaled.spec",),
    "quantised_gemm": ("constrint.kernels.gemm.quantised.spec", "constrint.kernels.gemm.quantised.stream.spec"),
} | {
    cell + direction: _RNN
    for cell in ("lstm", "gru", "slstm", "elman", "elman_relu")
    for direction in ("", "-backward")
}
#: Folders beside this file that hold an operation of the folder's name: `spec.py` has `SPECS`, and `candidates.py`, if
#: there is one, contributes the operation's candidates. A new operation is a new folder.
_FOLDERS = [
    path
    for path in sorted(Path(__file__).parent.iterdir())
    if path.name not in (*_MODULES, "rnn") and (path / "spec.py").is_file()
]
_MODULES |= {path.name: (f"constrint.kernels.{path.name}.spec",) for path in _FOLDERS}
#: Modules that contribute an operation's candidates to `constrint.choose`; others rank their whole spaces.
_CONTRIBUTORS = {
    "gemm": "constrint.kernels.gemm.candidates",
    "gated": "constrint.kernels.gemm.gated.candidates",
    "traced_gemm": "constrint.kernels.gemm.traced.candidates",
} | dict.fromkeys(("lstm", "gru", "slstm", "elman", "elman_relu"), "constrint.kernels.rnn.candidates")
_CONTRIBUTORS |= {
    path.name: f"constrint.kernels.{path.name}.candidates" for path in _FOLDERS if (path / "candidates.py").is_file()
}
_RANKED = "constrint.choose.candidates"
#: Built in, but options of a layer rather than operations of their own.
_UNLISTED = ("elman_relu", "elman_relu-backward")
#: Implementations that were registered by a program or a package, by operation.
_REGISTERED: dict[str, list[KernelSpec]] = {}
#: Entry points of installed packages that are not loaded yet; None before they were looked up.
_unread: list[Any] | None = None
_NAME = re.compile(r"[A-Za-z0-9_-]+")
#: How the operations of a defined cell end: with the digest of its definition.
_OWN_CELL = re.compile(r"_[0-9a-f]{8}(-backward)?$")
#: Module that registers recurrent cells which are written in Python.
_CELLS = "constrint.kernels.rnn.generated.register"
#: Prefix of the names of modules that are loaded from files.
_FILE_MODULE = "constrint_kernel_"


def contribute(operation: str, module: str) -> None:
    """Name the module that contributes candidates of an operation, or of one implementation, to `constrint.choose`."""
    _CONTRIBUTORS[operation] = module


def register(*specs: KernelSpec) -> None:
    """Make implementations known under their operation's name; one of the same full name is replaced."""
    for spec in specs:
        others = [other for other in _REGISTERED.get(spec.operation, []) if other.full_name != spec.full_name]
        _REGISTERED[spec.operation] = [*others, spec]


def is_extended() -> bool:
    """Whether this process has registered a kernel, or loaded one that another package offers."""
    return bool(_REGISTERED)


def list_kernels() -> tuple[str, ...]:
    """Names of all operations but cells of a program's own, which it names itself."""
    _read_packages()
    added = (name for name in _REGISTERED if name not in _UNLISTED and not _OWN_CELL.search(name))
    return tuple(dict.fromkeys((*built_in_operations(), *added)))


def built_in_operations() -> tuple[str, ...]:
    """Names of the operations that ship with constrint."""
    return tuple(name for name in _MODULES if name not in _UNLISTED)


def is_as_shipped(operation: str) -> bool:
    """Whether an operation is built in, and nothing was added to it."""
    return operation in _MODULES and operation not in _REGISTERED


def is_known(operation: str) -> bool:
    """Whether an operation is built in or registered; packages whose kernels were not needed yet are not asked."""
    return operation in _MODULES or operation in _REGISTERED


def load_kernel(name: str) -> Operation:
    """Load a kernel by name: an operation with all its implementations, or one of them.

    Args:
        name: `gemm`, `gemm.pointer`, or `FILE.py:NAME` or `MODULE:NAME` for a spec (or several) in a file or a module,
            or for a recurrent cell there: its forward pass, `NAME-backward`, `NAME.triton`.

    Raises:
        UnknownNameError: When there is no such kernel.
        UsageError: When it is no name, or the file cannot be read or has no such spec.
    """
    from constrint.select.spec import Operation

    if not isinstance(name, str):
        raise UsageError(f"a kernel is named by a text, such as 'gemm', got {name!r}.")
    path, colon, attribute = name.rpartition(":")
    if colon:
        specs = _specs_of_file(Path(path), attribute) if path.endswith(".py") else _specs_of_module(path, attribute)
        register(*specs)
        return Operation(specs[0].operation, specs)
    if name.endswith(".py"):
        raise UsageError(f"--kernel {name}: a kernel of a file is named {name}:NAME.")
    operation, _, implementation = name.lower().partition(".")
    specs = _implementations(operation)
    if not specs:
        raise UnknownNameError("kernel", name, list_kernels())
    if not implementation:
        return Operation(operation, specs)
    return Operation(name.lower(), (Operation(operation, specs).spec(name.lower()),))


def contributor(operation: str) -> ModuleType:
    """The module that contributes an operation's candidates to `constrint.choose`."""
    return import_module(_CONTRIBUTORS.get(operation, _RANKED))


def importable_name(spec: KernelSpec) -> str:
    """A name by which `load_spec` finds a kernel in another process: its full name, `FILE.py:NAME` or `MODULE:NAME`.

    Raises:
        UsageError: When the kernel is no variable of the module or file that its class is in.
    """
    if any(own is spec for own in _built_in(spec.operation)):
        return spec.full_name
    if getattr(getattr(spec, "cell", None), "definition", None) is not None:
        return _importable_cell(spec)
    module = sys.modules.get(spec.home)
    names = [name for name, value in vars(module).items() if value is spec] if module is not None else []
    file = getattr(module, "__file__", None)
    if not names:
        raise UsageError(
            f"kernel {spec.full_name!r} cannot be loaded by other processes: it is no variable of "
            f"{file or spec.home}, where its class is. Give it a name there: "
            f"SPEC = {type(spec).__name__}()."
        )
    is_file = module is not None and (module.__name__ == "__main__" or module.__name__.startswith(_FILE_MODULE))
    return f"{file if is_file else spec.home}:{names[0]}"


def _importable_cell(spec: Any) -> str:
    """The name by which another process finds an implementation of a recurrent cell that is written in Python."""
    suffix = f"{'-backward' * (spec.direction == 'backward')}.{spec.name}"
    for name, module in list(sys.modules.items()):
        held = getattr(module, "__dict__", {})
        for variable, value in list(held.items()):
            if value is not spec.cell.definition:
                continue
            is_file = name == "__main__" or name.startswith(_FILE_MODULE)
            return f"{module.__file__ if is_file else name}:{variable}{suffix}"
    raise UsageError(
        f"kernel {spec.full_name!r} cannot be loaded by other processes: its cell is no variable of a module. Give the "
        "cell a name in a file."
    )


def load_spec(full_name: str) -> KernelSpec:
    """Load one implementation by its full name, `gemm.pointer`; the operation's name will do if there is only one."""
    operation = load_kernel(full_name)
    return operation.implementations[0] if len(operation.implementations) == 1 else operation.spec(full_name)


def code_of(full_name: str) -> str | None:
    """The hash of a kernel's device code; None where it is not known here."""
    from constrint.select.fingerprint import source_hash

    spec = spec_or_none(full_name)
    return None if spec is None else source_hash(spec)


def spec_or_none(full_name: str) -> KernelSpec | None:
    """A kernel of that name; None where it is not known here.

    The name may come from anywhere: one that would load a file or a module is not followed.
    """
    try:
        return None if ":" in full_name else load_spec(full_name)
    except UsageError:
        return None


def _implementations(operation: str) -> tuple[KernelSpec, ...]:
    # An entry point with the operation's name comes first; only without one are all others loaded.
    for named in (operation, ""):
        if not is_known(operation):
            _read_packages(named)
    own = _built_in(operation)
    added = _REGISTERED.get(operation, [])
    replaced = {spec.full_name for spec in added}
    return (*(spec for spec in own if spec.full_name not in replaced), *added)


def _built_in(operation: str) -> list[KernelSpec]:
    built_in = [spec for module in _MODULES.get(operation, ()) for spec in import_module(module).SPECS]
    return [spec for spec in built_in if spec.operation == operation]


def _read_packages(named: str = "") -> None:
    """Register the kernels that installed packages offer, or those of the entry points with a name; each once."""
    global _unread
    if _unread is None:
        _unread = plugins.offered(ENTRY_POINTS)
    wanted = [point for point in _unread if named in ("", point.name)]
    _unread = [point for point in _unread if point not in wanted]
    plugins.use_each(wanted, lambda name, found: register(*_several(found, f"entry point {name!r}")))


def load_file(path: Path, named: str) -> ModuleType:
    """The module that a user's file makes; its code is run, once.

    Args:
        path: A Python file.
        named: Place where the name was read, for messages.

    Raises:
        UsageError: When there is no such file. Whatever its code raises is raised.
    """
    name = f"{_FILE_MODULE}{path.stem}"
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) != str(path.resolve()):
        source = util.spec_from_file_location(name, path.resolve())
        if source is None or source.loader is None or not path.is_file():
            raise UsageError(f"{named}: there is no such Python file.")
        module = sys.modules[name] = util.module_from_spec(source)
        try:
            source.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _specs_of_file(path: Path, attribute: str) -> tuple[KernelSpec, ...]:
    module = load_file(path, f"--kernel {path}:{attribute}")
    return _specs_of_name(module, attribute, f"{path}:{attribute}", "file")


def _specs_of_module(name: str, attribute: str) -> tuple[KernelSpec, ...]:
    try:
        module = import_module(name)
    except ImportError as error:
        raise UsageError(f"--kernel {name}:{attribute}: the module cannot be imported: {error}.") from error
    return _specs_of_name(module, attribute, f"{name}:{attribute}", "module")


def _specs_of_name(module: ModuleType, attribute: str, where: str, holder: str) -> tuple[KernelSpec, ...]:
    """The specs that a name of a module stands for: a spec, several, or a direction of a recurrent cell."""
    cells = import_module(_CELLS)
    base, _, implementation = attribute.partition(".")
    cell = base.removesuffix("-backward")
    found = getattr(module, cell, None)
    if isinstance(found, cells.CellDefinition):
        return tuple(cells.specs_of_definition(found, "backward" if cell != base else "forward", implementation))
    if not hasattr(module, attribute):
        from constrint.select.spec import KernelSpec

        specs = [name for name, value in vars(module).items() if isinstance(value, KernelSpec)]
        has = f" Its kernels: {', '.join(specs)}." if specs else ""
        raise UsageError(f"--kernel {where}: the {holder} has no {attribute!r}.{has}")
    return _several(getattr(module, attribute), where)


def _several(value: Any, where: str) -> tuple[KernelSpec, ...]:
    from constrint.select.spec import KernelSpec
    from constrint.select.workload import Size

    specs = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not specs:
        raise UsageError(f"{where} is empty; it takes one KernelSpec or several.")
    for spec in specs:
        if isinstance(spec, type) and issubclass(spec, KernelSpec):
            raise UsageError(f"{where}: it is a class; write {where.rpartition(':')[2]} = {spec.__name__}().")
        if not isinstance(spec, KernelSpec):
            way = "; `constrint compile` and `constrint prune` take it as it is" if hasattr(spec, "is_gluon") else ""
            raise UsageError(f"{where} is no KernelSpec but {type(spec).__name__}{way}.")
        missing = [name for name in ("operation", "summary", "sizes", "dtypes") if not hasattr(spec, name)]
        if missing:
            raise UsageError(f"{where}: it states no {' and no '.join(missing)}.")
        texts, sizes = (spec.operation, spec.name, spec.summary, *spec.dtypes), (*spec.sizes, *spec.options)
        if not all(isinstance(text, str) for text in texts) or not all(isinstance(size, Size) for size in sizes):
            raise UsageError(f"{where}: names, summary and dtypes are texts, sizes and options are `Size` objects.")
        if not _NAME.fullmatch(f"{spec.operation}{spec.name}"):
            raise UsageError(
                f"{where}: operation {spec.operation!r} and name {spec.name!r} take letters, digits, _ and - alone."
            )
    return specs
