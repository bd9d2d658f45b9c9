"""A kernel's call as text: the types of its arguments, `*fp16, *fp16, i32:16, 1`, as Triton's own tools write them.

`triton_source` makes of it what `compile_triton` takes. Nothing in the text is evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any, Final

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.tune.compile import TritonSource, quietly, require_triton
from constrint.tune.heuristics import computed_by_heuristics, heuristics_of

#: Types that Triton knows, but for pointers and descriptors.
TYPES: Final = (
    *("i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64"),
    *("fp16", "bf16", "fp32", "f32", "fp64", "f64", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15"),
)
#: Triton knows of a number whether it is a multiple of this, or nothing.
DIVISOR: Final = 16
_ENTRY: Final = re.compile(r"(?:(?P<name>[A-Za-z_*?][\w*?]*)\s*=\s*)?(?P<type>.+?)(?:\s*:\s*(?P<multiple>\w+))?")
_DESCRIPTOR: Final = re.compile(r"(?:tensordesc<\w+\[[\d,\s]+\].*>|nvTmaDesc)")


def triton_source(
    function: Any,
    signature: str | Sequence[str] | Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> TritonSource:
    """A Triton kernel and how it is called, as `compile_triton` takes it.

    triton_source(add_kernel, "*fp32, *fp32, *fp32, i32:16", {"BLOCK": 1024}, {"num_warps": 8})

    Args:
        function: A function of `triton.jit`; what `triton.autotune` and `triton.heuristics` made of one will do.
        signature: The type of every argument that is no compile-time constant, in order or as `name=type`. Pointers
            (`*fp16`) are taken to be aligned to 16 bytes, unless written `*fp16:1`. A name may be a pattern,
            `*_stride=i32:16`: it stands for the arguments that nothing before it names. `i32:16` is a multiple of 16,
            as sizes and strides often are; `i32` may be any number. A number or `None` in the place of a type is a
            constant: `1` for the stride of contiguous rows, which Triton compiles in.
        constants: The value of every compile-time constant that has no default, and that `triton.heuristics` does not
            compute from what is known here.
        options: Options of Triton's back-end, such as `num_warps`.

    Raises:
        UsageError: When function is none of `triton.jit`, or an argument has no type or no value; says which.
        UnknownNameError: For a name that is no argument, and for a type that Triton does not have.
    """
    require_triton()
    jitted = jitted_function(function)
    params = {param.name: param for param in jitted.params}
    values = dict(constants or {})
    name = jitted.__name__
    for constant in values:
        if constant not in params:
            raise UnknownNameError("argument", constant, params, f"It was given a value as a constant of {name}.")
    runtime = [n for n, param in params.items() if not param.is_constexpr and n not in values]
    types, multiples = _typed(jitted, signature, runtime, params)
    for argument in [n for n, text in types.items() if _is_value(text)]:
        values[argument] = _value(types.pop(argument))
    aligned = frozenset(
        n for n, text in types.items() if multiples.get(n, DIVISOR if text.startswith("*") else 1) == DIVISOR
    )
    defaults = {n: param.default for n, param in params.items() if param.has_default and n not in types | values}
    computed = computed_by_heuristics(function, types, aligned, {**defaults, **values, **(options or {})})
    every = {**defaults, **{n: value for n, value in computed.items() if n in params}, **values}
    if missing := [n for n in params if n not in types and n not in every]:
        raise _missing(function, missing, is_constant=bool(params[missing[0]].is_constexpr))
    further = {n: value for n, value in computed.items() if n not in params}
    return TritonSource(jitted, types, every, aligned, {**further, **(options or {})})


def jitted_function(function: Any) -> Any:
    """The function of `triton.jit` below whatever else decorates it.

    Raises:
        UsageError: When there is none.
    """
    jitted = jitted_or_none(function)
    if jitted is None:
        kind = type(function).__name__
        if kind == "InterpretedFunction":
            raise UsageError(f"{function.fn.__name__} is interpreted: unset TRITON_INTERPRET before it is defined.")
        raise UsageError(f"a function of triton.jit is compiled, got {kind} {function!r}; write @triton.jit above it.")
    return jitted


def jitted_or_none(function: Any) -> Any:
    """The function of `triton.jit` below whatever else decorates it; None where there is none."""
    while hasattr(function, "fn") and not (hasattr(function, "params") and hasattr(function, "is_gluon")):
        function = function.fn
    return function if hasattr(function, "params") and hasattr(function, "is_gluon") else None


def text_of_dtype(value: Any) -> str:
    """A type of `triton.language` as text, `tl.float16`; empty for any other value."""
    require_triton()
    import triton.language as tl

    names = [name for name, found in vars(tl).items() if found is value] if isinstance(value, tl.dtype) else []
    return f"tl.{names[0]}" if names else ""


def option_names(gpu: GpuModel) -> frozenset[str]:
    """Names of the options that Triton's back-end for a GPU has."""
    require_triton()
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    with quietly():
        options = make_backend(GPUTarget(*gpu.maker.triton_target(gpu))).parse_options({})
    return frozenset(field.name for field in fields(options))


def _typed(
    function: Any, signature: str | Sequence[str] | Mapping[str, str], runtime: Sequence[str], params: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, int]]:
    """The text of every run-time argument's type, and what those are multiples of that say so."""
    name = function.__name__
    if isinstance(signature, Mapping):
        entries = [f"{argument}={text}" for argument, text in signature.items()]
    else:
        entries = split_commas(signature) if isinstance(signature, str) else list(signature)
    types: dict[str, str] = {}
    multiples: dict[str, int] = {}
    patterns: list[tuple[str, str, str | None]] = []
    waiting = iter(runtime)
    for entry in entries:
        match = _ENTRY.fullmatch(str(entry).strip())
        if match is None:
            raise UsageError(f"the signature of {name} has an empty entry: {signature!r}.")
        if match["name"] and _is_pattern(match["name"]):
            patterns.append((match["name"], match["type"], match["multiple"]))
            continue
        argument = match["name"] or next((n for n in waiting if n not in types), None)
        if argument is None:
            raise UsageError(_counts(function, entries, runtime))
        if argument not in params:
            raise UnknownNameError("argument", argument, params, f"It stands in the signature of {name}.")
        types[argument] = _checked_type(match["type"], argument)
        if match["multiple"] is not None:
            multiples[argument] = _multiple(match["multiple"], name, argument, str(entry))
    for argument in [n for n in runtime if n not in types]:
        for pattern, text, multiple in patterns:
            if fnmatchcase(argument, pattern):
                types[argument] = _checked_type(text, argument)
                if multiple is not None:
                    multiples[argument] = _multiple(multiple, name, argument, f"{pattern}={text}:{multiple}")
                break
    missing = [n for n in runtime if n not in types and not params[n].has_default]
    if missing:
        raise UsageError(_counts(function, entries, runtime))
    return types, multiples


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _multiple(text: str, name: str, argument: str, entry: str) -> int:
    """The number that another is a multiple of, by its text in the signature."""
    if text not in ("1", str(DIVISOR)):
        hint = f"write {argument}:{DIVISOR} for a multiple of {DIVISOR}, or leave it out"
        raise UsageError(f"the signature of {name} says {entry!r}; Triton knows no other multiple: {hint}.")
    return int(text)


def _counts(function: Any, entries: Sequence[str], runtime: Sequence[str]) -> str:
    start = _start_of_signature(function, runtime)
    return (
        f"the signature of {function.__name__} has {len(entries)} entries for {len(runtime)} arguments: "
        f"{', '.join(runtime)}. Give each a type, *fp16 or i32:16 (a multiple of 16), or a number that is compiled in."
        + (f' A start: "{start}".' if start else "")
    )


def _start_of_signature(function: Any, runtime: Sequence[str]) -> str:
    """A signature to begin with: pointers by what the kernel's text loads and stores; empty where it names none."""
    pointers = _pointers_in(function.src)
    entries = [f"{name}=*fp16" for name in runtime if name in pointers]
    return ",".join([*entries, "*=i32:16"] if 0 < len(entries) < len(runtime) else entries)


def _pointers_in(text: str) -> set[str]:
    """Names that addresses of loads, stores and atomic operations begin with, through plain assignments."""
    begins: dict[str, set[str]] = {}
    waiting: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            targets, values = _parts(node.targets[0]), _parts(node.value)
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Name):
                    begins.setdefault(target.id, set()).update(_beginning(value))
        elif isinstance(node, ast.Call) and _is_access(node.func) and node.args:
            waiting += _beginning(node.args[0])
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += begins.get(name, ())
    return found


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _is_access(function: ast.expr) -> bool:
    """Whether a call is `tl.load` or the like, and no method of a tensor descriptor, which takes coordinates."""
    if not isinstance(function, ast.Attribute) or ast.unparse(function.value) not in (
        "tl",
        "language",
        "triton.language",
    ):
        return False
    return function.attr in ("load", "store") or function.attr.startswith("atomic_")


def _beginning(node: ast.expr) -> list[str]:
    """The name at the left of a sum."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node = node.left
    return [node.id] if isinstance(node, ast.Name) else []


def _checked_type(text: str, argument: str) -> str:
    if _is_value(text) or _DESCRIPTOR.fullmatch(text) or text.removeprefix("*").removeprefix("k") in TYPES:
        return text
    raise UnknownNameError(
        "type", text, TYPES, f"It is the type of {argument}; a pointer has a star before it, as in *fp16."
    )


def _is_value(text: str) -> bool:
    return text in ("None", "True", "False") or re.fullmatch(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?", text) is not None


def _value(text: str) -> Any:
    """A constant's value from text: a number, a truth value, None, a type of `triton.language`, or the text itself."""
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if text.startswith("tl."):
        import triton.language as tl

        dtype = getattr(tl, text.removeprefix("tl."), None)
        if not isinstance(dtype, tl.dtype):
            raise UsageError(f"{text} is no type of triton.language; write tl.float16, tl.bfloat16, tl.float32.")
        return dtype
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_value(text: str) -> Any:
    """A constant's value as it is written on the command line; see `_value`. Text in quotes stays text.

    Raises:
        UsageError: For a type that `triton.language` does not have.
    """
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return _value(text)


def split_commas(text: str) -> list[str]:
    """Parts between commas, but for commas in brackets: `tensordesc<fp16[128,64]>` is one."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[<(") - (letter in "]>)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts] if text.strip() else []


def _missing(function: Any, arguments: Sequence[str], *, is_constant: bool) -> UsageError:
    """Constants that nobody gave."""
    heuristics = heuristics_of(function)
    if computed := [n for n in arguments if n in heuristics]:
        why = f"triton.heuristics computes {', '.join(computed)} from a call's arguments, and here is no call"
        return UsageError(f"{why}: state {'=VALUE, '.join(computed)}=VALUE among the constants (--constants).")
    what = ("the compile-time constant" if is_constant else "the argument") + ("s" if len(arguments) > 1 else "")
    have = "have no values" if len(arguments) > 1 else "has no value"
    return UsageError(
        f"{what} {', '.join(arguments)} {have}: state {'=VALUE, '.join(arguments)}=VALUE among the constants "
        "(--constants)."
    )
