"""The names that a candidate in Triton may use, and a look at the objects that they are.

Every list says what a kernel needs. The reader (`legal.py`) refuses all other names; a worker gives a candidate no
built-in function and nothing of PyTorch beyond these lists (`worker/held.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


#: Modules that may be imported, each under one name only, and the folder of one that is imported from it.
IMPORTS = {"torch": "torch", "triton": "triton", "triton.language": "tl", "math": "math"}
LIBDEVICE = "triton.language.extra"
#: The full name of each module by the name that it has in a candidate.
MODULES = {name: module for module, name in IMPORTS.items()} | {"libdevice": f"{LIBDEVICE}.libdevice"}

EXCEPTIONS = words("ValueError NotImplementedError AssertionError")
BUILTINS = EXCEPTIONS | words("range len min max int float bool abs tuple round sum divmod zip enumerate")

#: PyTorch: types of elements, and functions that take memory.
TORCH_DTYPES = words("float32 float16 bfloat16 float64 int8 int16 int32 int64 uint8 bool float half")
TORCH_MEMORY = words("empty empty_like empty_strided zeros zeros_like")

_TL_MATH = words("abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi")
#: Triton's types, which a host function may name, too.
TL_TYPES = words(
    "constexpr int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8e4nv float8e5 float8e4b15 float8e4b8 "
    "float8e5b16 float16 bfloat16 float32 float64"
)
#: Triton's language without inline assembly, printing, calls of the host, strings that become types, and waiting.
_TL = (
    TL_TYPES
    | _TL_MATH
    | words(
        "program_id num_programs arange full zeros zeros_like load store make_block_ptr advance "
        "atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor debug_barrier "
        "range static_range static_assert assume multiple_of max_contiguous max_constancy "
        "where maximum minimum clamp cast cdiv dot dot_scaled sigmoid softmax swizzle2d "
        "broadcast broadcast_to cat expand_dims flip gather interleave join permute ravel reshape split squeeze trans "
        "unsqueeze view histogram sort topk "
        "argmax argmin associative_scan cumprod cumsum max min reduce reduce_or sum xor_sum "
        "rand rand4x randint randint4x randn randn4x philox"
    )
)
_MATH = words(
    "ceil floor trunc sqrt isqrt exp expm1 log log1p log2 log10 pow gcd lcm prod fabs fmod copysign ldexp isfinite "
    "isinf isnan sin cos tan asin acos atan atan2 sinh cosh tanh erf erfc gamma lgamma pi e tau inf nan"
)
#: Names below each module; of libdevice all functions that it defines.
NAMES: Mapping[str, frozenset[str]] = {
    "torch": TORCH_DTYPES | TORCH_MEMORY,
    "triton": frozenset({"cdiv", "next_power_of_2"}),
    "tl": _TL | {f"math.{name}" for name in _TL_MATH},
    "math": _MATH,
}
#: All decorators, all annotations, and options of a launch that are no argument of the kernel.
DECORATOR = "triton.jit"
ANNOTATIONS = words("None int float bool tuple torch.Tensor torch.Size torch.dtype torch.device tl.tensor tl.constexpr")
LAUNCH_OPTIONS = words("num_warps num_stages num_ctas maxnreg enable_fp_fusion waves_per_eu matrix_instr_nonkdim kpack")

#: Attributes of tensors, shapes and numbers that a host function may use: facts, and views or memory of a tensor.
FACTS = words("shape ndim dtype device itemsize stride size dim numel element_size is_contiguous")
VIEWS = words("contiguous view reshape flatten unsqueeze squeeze transpose permute expand T new_empty zero_")
HOST_ATTRIBUTES = FACTS | VIEWS | words("bit_length index")
#: Attributes of a block of values or its type that a kernel may use.
DEVICE_ATTRIBUTES = words(
    "to cast dtype element_ty type shape T value scalar reshape view trans permute ravel flip split gather "
    "broadcast_to expand_dims advance sum max min argmax argmin cumsum cumprod sort histogram abs exp exp2 log log2 "
    "sqrt rsqrt sqrt_rn sin cos erf ceil floor sigmoid softmax cdiv logical_and logical_or primitive_bitwidth "
    "is_floating is_fp16 is_bf16 is_fp32 is_fp64 is_int is_ptr"
)

REASONS = {
    "torch": "of torch only types and empty memory, PyTorch may not do the work",
    "triton": f"of triton only {', '.join(sorted(NAMES['triton']))}, and jit as a decorator",
    "tl": "no part of Triton's language that computes; no assembly, no clock, no printing",
    "math": "no function or constant of math that a size needs",
    "libdevice": "no function that libdevice defines",
}


def refused(owner: str, path: str, is_kernel: bool) -> str:
    """Why a name below a module is not allowed; empty where it is.

    It stands on the list, and the object that it is in the installed version is one of that module's own: `tl.math`
    also has what it imports itself.

    Args:
        owner: The module's name in a candidate.
        path: The attributes after it, with dots.
        is_kernel: Whether it stands in a kernel rather than in a host function.
    """
    if is_kernel and owner == "torch":
        return "a kernel has no PyTorch"
    if not is_kernel and (owner == "libdevice" or (owner == "tl" and path not in TL_TYPES)):
        return f"of {MODULES[owner]} a host function has only types; kernels compute"
    if owner == "libdevice":
        if "." in path or path.startswith("_"):
            return REASONS[owner]
    elif path not in NAMES[owner]:
        return REASONS[owner]
    # A worker's `torch` has what is on the list and nothing else.
    return "" if owner == "torch" else _foreign(owner, path)


@lru_cache(maxsize=1024)
def _foreign(owner: str, path: str) -> str:
    found: Any = import_module(MODULES[owner])
    for name in path.split("."):
        found = getattr(found, name, None)
    if found is None:
        return f"the installed {MODULES[owner]} has no {path}"
    if isinstance(found, float):
        return ""
    home = str(getattr(found, "__module__", None) or type(found).__module__)
    is_own = home == MODULES[owner] or (owner != "libdevice" and home.startswith(f"{MODULES[owner]}."))
    if isinstance(found, ModuleType) or not is_own:
        return f"it is {type(found).__name__} of {home}, not of {MODULES[owner]}"
    return ""
