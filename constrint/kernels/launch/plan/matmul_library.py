"""cuBLASLt as torch has loaded it: products with epilogues whose algorithm is chosen once and then launched again.

A product is stated as `Matmul`, by columns as BLAS libraries read matrices. `chosen` asks the library for its first
algorithm; `Descriptors` are the library's own, which live as long as the process. Plans of the compiled core
launch them without Python; `enqueue` does so from Python. Needs torch.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import torch

from constrint.core import compiled
from constrint.kernels.launch.plan.driver import driver, reads_tensors
from constrint.kernels.launch.plan.shape import NotPlannedError

#: cudaDataType_t of the numbers of a product.
FP32, FP16, BF16, E4M3, INT8, INT32 = 0, 2, 14, 28, 3, 10
#: cublasComputeType_t: sums of 32 bits, of fp32 operands in tf32, of integers.
IN_FP32, IN_TF32, IN_INT32 = 68, 77, 72
#: cublasLtEpilogue_t; a bias and relu are joined by `|`.
NO_EPILOGUE, RELU, BIAS = 1, 2, 4
#: cublasLtMatmulDescAttributes_t.
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
#: cublasLtMatrixLayoutAttribute_t.
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
#: cublasLtMatmulPreferenceAttributes_t; alignments of A, B, C and D follow each other.
_WORKSPACE_BYTES, _REDUCTIONS, _ALIGNMENT_A = 1, 3, 5
#: cublasLtReductionScheme_t: parts of K are added in 32 bits alone.
_IN_COMPUTE_TYPE = 2
#: Bytes of workspace that an algorithm may take, torch's own limit on Hopper.
MOST_WORKSPACE_BYTES = 32 << 20
#: Largest alignment of an address that the library heeds.
LARGEST_ALIGNMENT = 256
#: Algorithms that the library's heuristic is asked for.
MOST_ALGORITHMS = 4
#: Bytes of a cublasLtMatmulAlgo_t, which the library lets a user store for the same version of it.
ALGORITHM_BYTES = 64


class Matmul(msgspec.Struct, frozen=True):
    """D = epilogue(alpha op(A) op(B) + beta C + bias) of matrices by columns; the bias is a column.

    Args:
        operations: cublasOperation_t of A and B.
        sizes: Rows and columns of D, and the depth of the sums.
        types: cudaDataType_t of A, B, C and D; the bias has that of D.
        strides: Elements from column to column of A, B, C and D.
        batch: Number of products.
        batch_strides: Elements from product to product of A, B, C and D.
        factors: alpha and beta.
        compute: cublasComputeType_t.
        epilogue: cublasLtEpilogue_t.
        alignments: Powers of two, in bytes, that the addresses of A, B, C and D are multiples of.
    """

    operations: tuple[int, int]
    sizes: tuple[int, int, int]
    types: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    batch: int
    batch_strides: tuple[int, int, int, int]
    factors: tuple[float, float]
    compute: int
    epilogue: int
    alignments: tuple[int, int, int, int]

    @property
    def has_bias(self) -> bool:
        """Whether a column is added."""
        return bool(self.epilogue & BIAS)

    @property
    def scales(self) -> tuple[float, float] | tuple[int, int]:
        """alpha and beta in the type of the sums."""
        alpha, beta = self.factors
        return (int(alpha), int(beta)) if self.compute == IN_INT32 else self.factors


class Algorithm(msgspec.Struct, frozen=True):
    """An algorithm of the library: its opaque bytes, its workspace, and the library's version."""

    data: bytes
    workspace_bytes: int
    version: int


class Descriptors(NamedTuple):
    """The library's handle and descriptors of a product: addresses that stay valid."""

    handle: int
    description: int
    layouts: tuple[int, int, int, int]


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


def has_matmul() -> bool:
    """Whether plans may call cuBLASLt: the core and torch have it, and the user tunes no library by torch."""
    return library() is not None and not torch.cuda.tunable.is_enabled()


@lru_cache(maxsize=1)
def library() -> Any:
    """cuBLASLt, if torch has loaded it and the core can launch it; else None."""
    no_load, version = getattr(os, "RTLD_NOLOAD", None), torch.version.cuda
    if compiled is None or not hasattr(compiled, "use_matmul") or no_load is None or version is None:
        return None
    if driver() is None or not reads_tensors():
        return None
    try:
        found = ctypes.CDLL(f"libcublasLt.so.{version.split('.')[0]}", mode=no_load | os.RTLD_NOW)
        addresses = [ctypes.cast(found[name], c_void_p).value for name in _IN_CORE]
    except (OSError, AttributeError):  # part of torch itself, or of another version
        return None
    multiply, set_attribute = addresses
    if not multiply or not set_attribute:
        return None
    compiled.use_matmul(multiply, set_attribute)
    return declared(found)


_IN_CORE = ("cublasLtMatmul", "cublasLtMatmulDescSetAttribute")


def declared(found: Any) -> Any:
    """The library with the types of the functions that are called from Python."""
    found.cublasLtGetVersion.restype = c_size_t
    p = c_void_p
    for name, arguments in {
        "cublasLtCreate": [p],
        "cublasLtMatmulDescCreate": [p, c_int, c_int],
        "cublasLtMatmulDescSetAttribute": [p, c_int, p, c_size_t],
        "cublasLtMatrixLayoutCreate": [p, c_int, c_uint64, c_uint64, c_int64],
        "cublasLtMatrixLayoutSetAttribute": [p, c_int, p, c_size_t],
        "cublasLtMatmulPreferenceCreate": [p],
        "cublasLtMatmulPreferenceSetAttribute": [p, c_int, p, c_size_t],
        "cublasLtMatmulPreferenceDestroy": [p],
        "cublasLtMatmulAlgoGetHeuristic": [p, p, p, p, p, p, p, c_int, p, p],
        "cublasLtMatmul": [p, p, p, p, p, p, p, p, p, p, p, p, p, p, c_size_t, p],
    }.items():
        getattr(found, name).argtypes = arguments
        getattr(found, name).restype = c_int
    return found


def _called(name: str, *arguments: Any) -> None:
    """Call a function of the library.

    Raises:
        NotPlannedError: When the library reports an error.
    """
    status = getattr(library(), name)(*arguments)
    if status:
        raise NotPlannedError(f"{name} failed with status {status}")


@lru_cache(maxsize=64)
def _handle(device: int) -> int:
    """A handle of the library for a device, which every thread and stream may use."""
    handle = c_void_p()
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            raise NotPlannedError("a graph is captured, and the library has no handle yet")
        _called("cublasLtCreate", byref(handle))
    assert handle.value
    return handle.value


def _set(name: str, of: Any, attribute: int, value: Any) -> None:
    _called(name, of, attribute, byref(value), ctypes.sizeof(value))


@lru_cache(maxsize=8192)
def prepared(matmul: Matmul, device: int, *, is_in_core: bool = True) -> Descriptors:
    """Create the descriptors of a product; they are never destroyed, since a plan may hold them.

    Args:
        matmul: The product.
        device: Index of the device.
        is_in_core: Whether the core launches it; Python uses descriptors of its own, under a lock of its own.

    Raises:
        NotPlannedError: When the library does not describe such a product.
    """
    description = c_void_p()
    scales = INT32 if matmul.compute == IN_INT32 else FP32
    _called("cublasLtMatmulDescCreate", byref(description), matmul.compute, scales)
    for attribute, value in (
        (_TRANSPOSE_A, c_int32(matmul.operations[0])),
        (_TRANSPOSE_B, c_int32(matmul.operations[1])),
        (_EPILOGUE, c_uint32(matmul.epilogue)),
    ):
        _set("cublasLtMatmulDescSetAttribute", description, attribute, value)
    m, n, k = matmul.sizes
    turned = [operation != 0 for operation in matmul.operations]
    shapes = [(k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n), (m, n)]
    layouts = []
    for (rows, columns), kind, stride, step in zip(
        shapes, matmul.types, matmul.strides, matmul.batch_strides, strict=True
    ):
        layout = c_void_p()
        _called("cublasLtMatrixLayoutCreate", byref(layout), kind, rows, columns, stride)
        if matmul.batch > 1:
            _set("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_COUNT, c_int32(matmul.batch))
            _set("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_STRIDE, c_int64(step))
        layouts.append(layout.value or 0)
    a, b, c, d = layouts
    return Descriptors(_handle(device), description.value or 0, (a, b, c, d))


def chosen(matmul: Matmul, device: int, bias: int = 0) -> Algorithm:
    """The algorithm that the library's heuristic puts first; see `algorithms`."""
    return algorithms(matmul, device, bias)[0]


def algorithms(matmul: Matmul, device: int, bias: int = 0) -> tuple[Algorithm, ...]:
    """The first algorithms of the library's heuristic, the first one first, whose sums are of 32 bits.

    Args:
        matmul: The product.
        device: Index of the device.
        bias: Address of a bias, whose alignment the heuristic heeds.

    Raises:
        NotPlannedError: When the library has none.
    """
    return _algorithms(matmul, device, bias % LARGEST_ALIGNMENT + LARGEST_ALIGNMENT)


@lru_cache(maxsize=8192)
def _algorithms(matmul: Matmul, device: int, bias: int) -> tuple[Algorithm, ...]:
    """`algorithms` for any address of the same alignment as `bias`."""
    ready = prepared(matmul, device, is_in_core=False)
    preference, count, found = c_void_p(), c_int(), (_Heuristic * MOST_ALGORITHMS)()
    _called("cublasLtMatmulPreferenceCreate", byref(preference))
    try:
        limits: list[tuple[int, Any]] = [(_WORKSPACE_BYTES, c_uint64(MOST_WORKSPACE_BYTES))]
        limits.append((_REDUCTIONS, c_uint32(_IN_COMPUTE_TYPE)))
        limits += [(_ALIGNMENT_A + place, c_uint32(number)) for place, number in enumerate(matmul.alignments)]
        for attribute, value in limits:
            _set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value)
        with _LOCK:
            if matmul.has_bias:
                _set("cublasLtMatmulDescSetAttribute", ready.description, _BIAS_POINTER, c_void_p(bias))
            rest = (*ready.layouts, preference, MOST_ALGORITHMS, byref(found), byref(count))
            _called("cublasLtMatmulAlgoGetHeuristic", ready.handle, ready.description, *rest)
    finally:
        library().cublasLtMatmulPreferenceDestroy(preference)
    able = [each for each in found[: count.value] if not each.state]
    if not able:
        raise NotPlannedError("cuBLASLt has no algorithm for this product")
    every = [Algorithm(bytes(each.algorithm), int(each.workspace_bytes), version()) for each in able]
    return tuple(dict.fromkeys(every))


@lru_cache(maxsize=1)
def version() -> int:
    """The library's version; algorithms of another one are not used."""
    return int(library().cublasLtGetVersion())


#: Held while the address of a bias is in a description.
_LOCK = threading.Lock()


def enqueue(matmul: Matmul, algorithm: Algorithm, device: int, addresses: Sequence[int], workspace: int) -> None:
    """Enqueue a product on the current stream of the current device, from Python.

    Args:
        matmul: The product.
        algorithm: Its algorithm.
        device: Index of the device.
        addresses: Those of A, B, C, D, and of the bias, 0 where there is none.
        workspace: Address of `algorithm.workspace_bytes` bytes.

    Raises:
        NotPlannedError: When the library reports an error.
    """
    ready = prepared(matmul, device, is_in_core=False)
    data = (ctypes.c_ubyte * ALGORITHM_BYTES).from_buffer_copy(algorithm.data)
    factor_of: Any = c_int32 if matmul.compute == IN_INT32 else c_float
    alpha, beta = (factor_of(factor) for factor in matmul.scales)
    a, b, c, d, bias = addresses
    layout_a, layout_b, layout_c, layout_d = ready.layouts
    stream = torch.cuda.current_stream(device).cuda_stream
    with _LOCK:
        if matmul.has_bias:
            _set("cublasLtMatmulDescSetAttribute", ready.description, _BIAS_POINTER, c_void_p(bias))
        _called(
            "cublasLtMatmul", ready.handle, ready.description, byref(alpha), a, layout_a, b, layout_b, byref(beta), c,
            layout_c, d, layout_d, byref(data), workspace, algorithm.workspace_bytes, stream,
        )  # fmt: skip
