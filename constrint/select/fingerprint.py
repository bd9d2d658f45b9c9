"""Fingerprints of kernels: a hash of the device code that a GPU executes, and a hash of the Python around it.

The first decides whether a measurement still holds. It covers device functions with the constants and functions that
they use, CUDA sources with the text and the constants that Python adds to them, and nothing else: names of files,
folders, import lines, the order of definitions, docstrings, comments, formatting and type hints leave it as it is.
The second covers space, rules and costs; engines compare it to see that two machines run the same package.
Both are equal on every machine and every version of Python.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from constrint import cache
from constrint.select.cuda_text import is_cuda, normal_texts, outside_macros
from constrint.select.python_text import (
    Definition,
    Module,
    closure,
    folder_of,
    is_device,
    module_of,
    read_module,
    resolve,
    string_constants,
    text_of,
)
from constrint.select.spec import KernelSpec

#: Digits of a hash, and the kind under which the cache stores fingerprints.
DIGITS, _KIND = 16, "fingerprints"
_PACKAGE = "constrint."
#: Packages that every kernel rests on: a change in them is no change of a kernel.
_FOUNDATION = tuple(
    f"{_PACKAGE}{part}" for part in ("cache", "core", "errors", "hwmodels", "lazy", "model", "select", "solve", "tune")
)
#: The class of CUDA sources; functions that construct one state the compiler's options.
_CUDA_SOURCE = "CudaSource"


class Fingerprint(NamedTuple):
    """Hashes of a kernel, as hexadecimal digits.

    Args:
        source: The device code.
        spec: The Python around it: space, rules, costs.
    """

    source: str
    spec: str


def fingerprint_of(spec: KernelSpec) -> Fingerprint:
    """Return the fingerprint of a kernel; empty hashes for a kernel that was typed in and lies in no file.

    A kernel of this package has its device code in the folder of its spec: Triton and Gluon functions in modules with a
    jitted function, CUDA C++ in `spec.device_files`, what Python writes in `spec.device_texts`. A kernel from
    outside is hashed as the file of its spec.
    """
    home = _home(spec)
    if home is None:
        return Fingerprint("", "")
    if not spec.home.startswith(_PACKAGE):
        return Fingerprint(source_hash(spec), _hash(_whole(home)))
    return Fingerprint(source_hash(spec), _stored("spec", spec.home, home, ()))


def source_hash(spec: KernelSpec) -> str:
    """Return the hash of a kernel's device code alone; empty for a kernel that lies in no file."""
    home, files = _home(spec), tuple(spec.device_files)
    if home is None:
        return ""
    if not spec.home.startswith(_PACKAGE):
        return _hash([*_whole(home), *normal_texts(files)])
    return _stored("source", spec.home, home, files, spec.text_key, spec.device_texts)


def _home(spec: KernelSpec) -> Path | None:
    """The file of a spec; None for a spec that was typed in or run from text."""
    file = getattr(sys.modules.get(spec.home), "__file__", None)
    return None if file is None else Path(file)


@lru_cache(maxsize=256)
def _whole(home: Path) -> tuple[str, ...]:
    """The texts of a file from outside, which has its kernel, space and rules together."""
    try:
        return tuple(text_of(node) for node in read_module(home).body)
    except (SyntaxError, ValueError):  # no Python that this version reads
        return (home.read_bytes().hex(),)


@lru_cache(maxsize=256)
def _stored(
    part: str,
    name: str,
    home: Path,
    files: tuple[Path, ...],
    text_key: str = "",
    written: Callable[[], Iterable[str]] = tuple,
) -> str:
    """A hash of a kernel of the package, computed once for the package's files as they are."""
    key = "\0".join([part, name, *map(str, files), text_key]).encode()
    stored = cache.load(_KIND, key)
    if stored is not None and len(stored) == DIGITS:
        return stored.decode()
    if part == "spec":
        texts = _host_texts(name)
    else:
        texts = _cuda_texts(home, files) if any(map(is_cuda, files)) else _triton_texts(home)
        texts += written()
    digest = _hash(texts)
    cache.store(_KIND, key, digest.encode())
    return digest


# Triton and Gluon.


def _triton_texts(home: Path) -> list[str]:
    """Texts of all device code that a spec's folder defines or imports; none for a kernel of a library."""
    roots: list[Definition] = []
    for module in folder_of(home):
        if is_device(module):
            roots += module.definitions()
            continue
        for name in module.all_imports.values():
            imported = module_of(name)
            if imported is not None:
                roots += imported.definitions() if is_device(imported) else ()
            else:
                definition = resolve(name)
                roots += [definition] if definition is not None and is_device(definition.module) else ()
    return closure(roots)


# CUDA C++.


def _cuda_texts(home: Path, files: tuple[Path, ...]) -> list[str]:
    """Texts of CUDA sources, of the functions that write device code, and of the constants that macros get."""
    sources = [path for path in files if is_cuda(path)]
    own, others = folder_of(home), [m for folder in _folders(sources, home) for m in folder_of(folder / "spec.py")]
    texts = normal_texts(sources)
    words = set(" ".join(texts).split())
    roots = [one for path in files if not is_cuda(path) for one in read_module(path).definitions()]
    for module in (*own, *others):
        writers = [one for one in module.functions() if "__device__" in "".join(string_constants(one.node))]
        roots += [one for one in writers if module in own or one.name in words]
    for macro in outside_macros(texts):
        texts += _macro_texts(macro, own if any(macro in module.entries for module in own) else others)
    return texts + closure(roots) + (_options(own) or _options(others))


def _folders(sources: Iterable[Path], home: Path) -> list[Path]:
    """Folders of the Python beside the sources' folders, without that of the spec."""
    return sorted({path.parent.parent for path in sources} - {home.parent})


def _macro_texts(macro: str, modules: Iterable[Module]) -> list[str]:
    """Texts of the constants and functions from which some module computes a macro's value.

    Values that come from a configuration or a workload are part of neither; numbers that are literals are.
    """
    texts: set[str] = set()
    for module in modules:
        for value in module.entries.get(macro, ()):
            if isinstance(value, ast.Constant):
                texts.add(f"{macro}={value.value!r}")
            texts.update(_literal_texts(module, value))
    return sorted(texts)


def _literal_texts(module: Module, value: ast.expr) -> Iterator[str]:
    for node in ast.walk(value):
        definition = module.find(node.id) if isinstance(node, ast.Name) else None
        if definition is not None and definition.is_literal:
            yield definition.text
        elif definition is not None and definition.is_function:
            yield from closure([definition])


def _options(modules: Iterable[Module]) -> list[str]:
    """Options that functions hand to the compiler beside macros."""
    strings = {
        text
        for module in modules
        for function in module.functions()
        if function.calls(_CUDA_SOURCE)
        for text in string_constants(function.node)
    }
    return sorted(text for text in strings if text.startswith("-"))


# The Python around it.


def _host_texts(name: str) -> list[str]:
    """Texts of a spec's module and of the modules that it loads, without device code and foundations."""
    seen, waiting = {name}, [name]
    texts: set[str] = set()
    while waiting:
        module = module_of(waiting.pop())
        if module is None:
            continue
        if not is_device(module):
            texts.update(text_of(node) for node in module.body)
        for target in module.imports.values():
            imported = target if module_of(target) is not None else target.rpartition(".")[0]
            if imported.startswith(_PACKAGE) and not imported.startswith(_FOUNDATION) and imported not in seen:
                seen.add(imported)
                waiting.append(imported)
    return sorted(texts)


def _hash(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in sorted(texts):
        digest.update(f"{len(text)}:{text}\0".encode())
    return digest.hexdigest()[:DIGITS]
