"""A key of everything that a Python function reads beside its arguments: while it is equal, a trace is. No torch.

The key consists of the function's code, its defaults, what its closure holds, and the globals, builtins and attributes
of modules that the code names; functions among these are taken apart in the same way, and are not kept. There is no key
where something is read that may change without becoming another object, such as a list, a tensor or an object of a
class, nor where code calls what need not give the same twice, or stores or imports names.
"""

from __future__ import annotations

import builtins
import dis
import math
import operator
import sys
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, cast

#: Functions of torch that give the same for the same arguments: those of epilogues, and their other names.
OF_TORCH = (
    "abs", "absolute", "add", "clamp", "clip", "div", "divide", "eq", "erf", "exp", "ge", "gelu", "greater",
    "greater_equal", "gt", "le", "less", "less_equal", "log", "logical_and", "logical_not", "logical_or", "lt",
    "maximum", "minimum", "mul", "multiply", "ne", "neg", "negative", "not_equal", "relu", "rsqrt", "sigmoid", "silu",
    "sqrt", "square", "sub", "subtract", "tanh", "true_divide", "where",
)  # fmt: skip
#: Modules that have them.
MODULES_OF_TORCH = ("torch", "torch.nn.functional", "torch.special")
#: Functions and types of Python likewise.
OF_PYTHON = (
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "map", "max", "min",
    "pow", "range", "reversed", "round", "sorted", "str", "sum", "tuple", "zip",
)  # fmt: skip
MODULES_OF_PYTHON = (math, operator)
#: Functions that are remembered, and parts of a key, at most.
CAPACITY, MOST_PARTS = 1024, 256

#: Stands for a name that stands for nothing.
MISSING = object()
_PLAIN = frozenset((int, bool, str, bytes, type(None)))
_CALLED = frozenset((BuiltinFunctionType, FunctionType, type))


class _ChangesError(Exception):
    """Something that is read may change."""


class _Code:
    """The names that a code, and the codes inside it, use.

    Args:
        code: The code; it is kept, so that no other one has its address.
    """

    __slots__ = ("attributes", "code", "is_pure", "names")

    def __init__(self, code: CodeType) -> None:
        names, attributes = dict[str, None](), dict[str, None]()
        codes, self.is_pure = [code], True
        for each in codes:
            codes += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
            for instruction in dis.get_instructions(each):
                if instruction.opname == "LOAD_GLOBAL":
                    names[instruction.argval] = None
                elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    attributes[instruction.argval] = None
                elif instruction.opcode in dis.hasname:
                    self.is_pure = False
        self.code, self.names, self.attributes = code, tuple(names), tuple(attributes)
        if any(name.startswith("__") for name in attributes):
            self.is_pure = False


class _Key:
    """A key that is being made.

    Args:
        function: What it is the key of.

    Raises:
        _ChangesError: Where there is none.
    """

    __slots__ = ("_asked", "_modules", "_seen", "parts", "watched")

    def __init__(self, function: Any) -> None:
        self.parts: list[Any] = []
        #: Namespaces, names and what these stand for, None being the globals of the function; None where more is read.
        self.watched: list[tuple[dict[str, Any] | None, str, Any]] | None = []
        self._seen: dict[int, int] = {}  # functions and modules by address, which may refer to each other
        self._modules: list[tuple[ModuleType, int]] = []
        self._asked: list[str] = []
        self._add(function)
        # Any of the codes may ask any of the modules, which bring further codes.
        while any(number < len(self._asked) for _, number in self._modules):
            for place, (module, number) in enumerate(self._modules):
                self._modules[place] = module, len(self._asked)
                self._add_attributes(module, self._asked[number:])

    def _add(self, value: Any) -> None:
        kind, parts = type(value), self.parts
        if kind is float:
            parts += (float, value.hex())  # -0.0 equals 0.0, and no NaN equals another one
        elif kind in _PLAIN:
            parts += (kind, value)
        elif kind in _CALLED and _is_known(value):
            parts.append(value)
        elif kind is ModuleType or kind is FunctionType:
            number = len(self._seen)
            place = self._seen.setdefault(id(value), number)
            parts += (kind, place)
            if place == number:
                self._add_module(value) if kind is ModuleType else self._add_function(value)
        elif kind is tuple:
            parts += (tuple, len(value))
            for each in value:
                self._add(each)
        elif kind is partial and not value.__dict__:
            self.watched = None
            parts.append(partial)
            for each in (value.func, value.args, tuple(value.keywords), tuple(value.keywords.values())):
                self._add(each)
        else:
            raise _ChangesError
        if len(parts) > MOST_PARTS:
            raise _ChangesError

    def _add_function(self, function: FunctionType) -> None:
        code = _code_of(function.__code__)
        # What is stored in a function may say how it is called, and be read.
        if not code.is_pure or function.__dict__:
            raise _ChangesError
        if self.parts[-1]:  # it is not the first one
            self.watched = None
        self.parts.append(code)
        self._asked += code.attributes
        for cell in function.__closure__ or ():
            try:
                inside = cell.cell_contents
            except ValueError:  # there is nothing in it yet
                raise _ChangesError from None
            self._add(inside)
        of_module, of_python = function.__globals__, cast(Any, function).__builtins__
        for name in code.names:
            found = of_module.get(name, MISSING)
            self._watch(None, name, found)
            if found is MISSING:
                found = of_python.get(name, MISSING)
                self._watch(of_python, name, found)
            self._add(found)
        self._add(function.__defaults__)
        self._add(None if function.__kwdefaults__ is None else tuple(function.__kwdefaults__.items()))

    def _add_module(self, module: ModuleType) -> None:
        if not _stays(module):
            self.watched = None
            if "__getattr__" in vars(module):
                raise _ChangesError
        self.parts.append(weakref.ref(module))
        self._modules.append((module, 0))

    def _add_attributes(self, module: ModuleType, names: list[str]) -> None:
        inside = vars(module)
        for name in names:
            found = inside.get(name, MISSING)
            self._watch(inside, name, found)
            if found is not MISSING:
                self.parts.append(name)
                self._add(found)

    def _watch(self, namespace: dict[str, Any] | None, name: str, value: Any) -> None:
        if self.watched is not None:
            self.watched.append((namespace, name, value))


class FunctionMemo:
    """Results of a function of functions, kept while all that these read is as it was.

    Args:
        make: Makes something of a function by calling it.
    """

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._made: dict[Hashable, Any] = {}
        self._quick: dict[int, _Quick] = {}  # by the address of the code, which is kept
        self._lock = Lock()

    def __call__(self, function: Any) -> Any:
        """The result for a function, or for one that does the same; made anew where anything has changed.

        Raises:
            Exception: From `make`; then nothing is remembered.
        """
        if type(function) is FunctionType:
            quick = self._quick.get(id(function.__code__))
            if quick is not None and quick.holds(function):
                return quick.made
        key, watched = _read(function)
        if key is None:
            return self._make(function)
        made = self._made.get(key, MISSING)
        if made is MISSING:
            made = self._make(function)
            if _read(function)[0] != key:  # it was changed meanwhile
                return made
            _put(self._made, key, made, self._lock)
        if watched is not None:
            quick = _Quick(function, watched, made)
            if _read(function)[0] == key:  # what it holds is still what the key has
                _put(self._quick, id(function.__code__), quick, self._lock)
        return made

    def __len__(self) -> int:
        return len(self._made)


class _Quick:
    """The objects that a function read last: a look at all of them takes less time than its key.

    Args:
        function: The function; it is not kept.
        watched: Of `_Key`.
        made: What was made of it.
    """

    __slots__ = ("_cells", "_code", "_defaults", "_globals", "_others", "_python", "made")

    def __init__(self, function: FunctionType, watched: list[tuple[Any, str, Any]], made: Any) -> None:
        self._code, self.made = function.__code__, made
        self._cells = tuple([cell.cell_contents for cell in function.__closure__ or ()])
        self._defaults = function.__defaults__
        self._python = cast(Any, function).__builtins__
        self._globals = tuple([(name, value) for of, name, value in watched if of is None])
        self._others = tuple([each for each in watched if each[0] is not None])

    def holds(self, function: FunctionType) -> bool:
        """Whether a function of the same code reads the same objects; if not, they may be equal."""
        cells = function.__closure__
        if cells is not None:
            for cell, value in zip(cells, self._cells, strict=True):
                try:
                    if cell.cell_contents is not value:
                        return False
                except ValueError:
                    return False
        known = function.__globals__
        for name, value in self._globals:
            if known.get(name, MISSING) is not value:
                return False
        for namespace, name, value in self._others:
            if namespace.get(name, MISSING) is not value:
                return False
        if function.__defaults__ is not self._defaults or function.__kwdefaults__ or function.__dict__:
            return False
        return cast(Any, function).__builtins__ is self._python


def _put(known: dict[Any, Any], key: Hashable, value: Any, lock: Any) -> None:
    with lock:
        known[key] = value
        while len(known) > CAPACITY:
            del known[next(iter(known))]


def _read(function: Any) -> tuple[Hashable, list[tuple[Any, str, Any]] | None]:
    """The key of a function, and what to look at instead; None where there is none."""
    try:
        made = _Key(function)
    except (_ChangesError, RecursionError):
        return None, None
    return tuple(made.parts), made.watched


def key_of(function: Any) -> Hashable:
    """The key of a function or of a `functools.partial`; None where there is none."""
    return _read(function)[0]


def _stays(module: ModuleType) -> bool:
    """Whether a module is one of torch's or Python's, which stay where they are."""
    return module.__name__.partition(".")[0] == "torch" or module in MODULES_OF_PYTHON


def _code_of(code: CodeType) -> _Code:
    known = _CODES.get(id(code))
    if known is None:
        known = _Code(code)
        if len(_CODES) >= CAPACITY:
            _CODES.clear()
        _CODES[id(code)] = known
    return known


_CODES: dict[int, _Code] = {}


def _is_known(value: Any) -> bool:
    """Whether a function or a type of Python's or torch's gives the same for the same arguments."""
    if value in _KNOWN:
        return True
    if not _HAS_TORCH and "torch.nn.functional" in sys.modules:
        _HAS_TORCH.append(True)
        modules = [sys.modules[name] for name in MODULES_OF_TORCH if name in sys.modules]
        found = [vars(module).get(name) for module in modules for name in OF_TORCH]
        _KNOWN.update(each for each in found if type(each) in _CALLED)
        return value in _KNOWN
    return False


_KNOWN: set[Any] = {getattr(builtins, name) for name in OF_PYTHON}
_KNOWN |= {each for module in MODULES_OF_PYTHON for each in vars(module).values() if type(each) is BuiltinFunctionType}
_HAS_TORCH: list[bool] = []
