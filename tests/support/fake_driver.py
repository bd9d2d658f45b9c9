"""Stand-ins for a GPU's driver and for tensors in its memory, compiled by the tests that use them.

The compiled core takes them for libcuda, libamdhip64 and torch: what it would have the GPU do is noted, and nothing is
done. Tests use copies of the core, because a core keeps which classes are tensors.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import json
import shutil
import subprocess
import sysconfig
import tempfile
from array import array
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from constrint.core import compiled
from tests.support.shared import SharedResults

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
#: Why the tests cannot run here; empty where they can.
MISSING = (
    "the compiled core was not built"
    if compiled is None
    else "no C++ compiler"
    if COMPILER is None
    else ""
    if Path(sysconfig.get_path("include"), "Python.h").exists()
    else "no Python.h"
)

FUNCTION = 0x5000
CUDA, ROCM, CPU = 2, 10, 1
#: Codes of DLPack.
INTEGER, FLOAT, BFLOAT = 0, 2, 4

_NUMBERS = count()


def libraries_of(run: SharedResults) -> dict[str, str]:
    """The paths of the libraries "cuda", "hip" and "exchange", compiled once in a run of the tests."""
    made: dict[str, str] = run.once("fake drivers", lambda: build(run.folder))
    return made


def build(folder: Path) -> dict[str, str]:
    """Compile the libraries "cuda", "hip" and "exchange"; their paths."""
    made = {}
    running = []
    for kind in ("cuda", "hip", "exchange"):
        made[kind] = str(folder / f"libfake_{kind}.so")
        options = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-DFAKE_{kind.upper()}"]
        include = f"-I{sysconfig.get_path('include')}"
        running.append(subprocess.Popen([str(COMPILER), *options, include, str(SOURCE), "-o", made[kind]]))
    for process in running:
        assert process.wait() == 0, f"{SOURCE.name} does not compile"
    return made


def new_core() -> Any:
    """A copy of the compiled core with a state of its own."""
    assert compiled is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(str(compiled.__file__)).name
        shutil.copy(str(compiled.__file__), path)
        loader = importlib.machinery.ExtensionFileLoader("_core", str(path))
        spec = importlib.util.spec_from_file_location("_core", path, loader=loader)
        assert spec is not None
        core: ModuleType = importlib.util.module_from_spec(spec)
        loader.exec_module(core)
    return core


@cache
def common_core() -> Any:
    """A copy of the compiled core for tests that state no classes."""
    return new_core()


class FakeDriver:
    """A copy of a fake library, with a state of its own.

    Args:
        library: What `build` made.
        folder: Where the copy is put.
    """

    def __init__(self, library: str, folder: Path) -> None:
        self.path = str(folder / f"{next(_NUMBERS)}-{Path(library).name}")
        shutil.copy(library, self.path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_launches.restype = ctypes.c_longlong

    def calls(self) -> list[dict[str, Any]]:
        """What was called since the last time that this was asked for."""
        return [json.loads(line) for line in self.library.fake_log().decode().splitlines()]

    def called(self, call: str) -> list[dict[str, Any]]:
        """Those of `calls` with this name."""
        return [one for one in self.calls() if one["call"] == call]

    def note(self, is_noted: bool) -> None:
        """Whether calls are noted; launches are always counted."""
        self.library.fake_note(int(is_noted))

    @property
    def num_launches(self) -> int:
        """Kernels launched so far."""
        return int(self.library.fake_launches())

    def sizes(self, sizes: Sequence[int], function: int = FUNCTION) -> None:
        """Say how large the arguments of a kernel are."""
        self.library.fake_sizes(ctypes.c_void_p(function), len(sizes), (ctypes.c_size_t * len(sizes))(*sizes))

    def fail(self, call: str, code: int = 1) -> None:
        """Let a call fail from now on; the code 999 has no text."""
        self.library.fake_fail(call.encode(), code)

    def context(self, address: int) -> None:
        """Make another context current."""
        self.library.fake_context(ctypes.c_void_p(address))

    def device(self, index: int) -> None:
        """Make another device current."""
        self.library.fake_device(index)

    def blas(self) -> tuple[int, int]:
        """Where its library for products has cublasGemmEx and cublasSetMathMode."""
        functions = self.library.cublasGemmEx, self.library.cublasSetMathMode
        multiply, set_math_mode = (int(ctypes.cast(each, ctypes.c_void_p).value or 0) for each in functions)
        return multiply, set_math_mode

    def matmul(self) -> tuple[int, int]:
        """Where it has cublasLtMatmul and cublasLtMatmulDescSetAttribute."""
        functions = self.library.cublasLtMatmul, self.library.cublasLtMatmulDescSetAttribute
        multiply, set_attribute = (int(ctypes.cast(each, ctypes.c_void_p).value or 0) for each in functions)
        return multiply, set_attribute

    def version(self, version: int) -> None:
        """Be of another version."""
        self.library.fake_version(version)

    def resident(self, number: int) -> None:
        """How many blocks of a kernel an SM holds, and how many clusters of one the device."""
        self.library.fake_resident(number)

    def value(self, attribute: int, value: int) -> None:
        """What a function's attribute is."""
        self.library.fake_value(attribute, value)


def without(library: str, symbol: str, folder: Path) -> str:
    """A copy of a library that lacks a symbol."""
    data = Path(library).read_bytes()
    name = b"\0" + symbol.encode() + b"\0"
    assert name in data
    path = folder / f"{next(_NUMBERS)}-{Path(library).name}"
    path.write_bytes(data.replace(name, b"\0X" + name[2:]))
    return str(path)


class Exchange:
    """The fake DLPack exchange interface.

    Args:
        library: What `build` made.
        folder: Where a copy of it is put.
    """

    def __init__(self, library: str, folder: Path) -> None:
        path = folder / f"{next(_NUMBERS)}-{Path(library).name}"
        shutil.copy(library, path)
        self.library = ctypes.PyDLL(str(path))
        self.library.fake_exchange.restype = ctypes.py_object

    def capsule(self, major: int = 1) -> Any:
        """The interface, as of this version."""
        return self.library.fake_exchange(major)

    def classes_of(self) -> Any:
        """The interface, stated by the fake tensors' class as torch.Tensor states its own."""
        capsule = self.capsule()
        FakeTensor.__dlpack_c_exchange_api__ = capsule
        return capsule

    def fail_streams(self, how: int) -> None:
        """Let the stream not be found, with an exception (1) or without one (2)."""
        self.library.fake_stream_fails(how)


class _Described(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("num_axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_uint64),
        ("strides", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    )


class FakeTensor:
    """A tensor that is nowhere."""

    __dlpack_c_exchange_api__: Any = None

    def __init__(
        self,
        address: int = 0x10000,
        shape: Sequence[int] = (8, 16),
        strides: Sequence[int] | None = None,
        code: int = FLOAT,
        bits: int = 16,
        device: tuple[int, int] = (CUDA, 0),
        requires_grad: bool = False,
        is_negated: bool = False,
    ) -> None:
        steps = [1]
        for size in reversed(shape[1:]):
            steps.insert(0, steps[0] * size)
        self.shape = array("q", shape)
        self.strides = array("q", steps[: len(shape)] if strides is None else strides)
        self.requires_grad = requires_grad
        self.is_negated = is_negated
        pointers = self.shape.buffer_info()[0], self.strides.buffer_info()[0]
        self.described: Any = _Described(address, *device, len(shape), code, bits, 1, *pointers, 0)

    def is_neg(self) -> bool:
        """Whether the view is negated lazily."""
        return self.is_negated

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.described.data)


class FakeParameter(FakeTensor):
    """What torch.nn.Parameter is to torch.Tensor."""


class OtherTensor(FakeTensor):
    """A tensor with ways of its own."""
