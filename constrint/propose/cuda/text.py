"""Reads the text of a candidate in CUDA C++: directives, reserved names, storage and assembly, by lists.

What the text means is judged in what the compiler made of it (`constrint/propose/machine`). Here stands what could make
the compiler read files or clocks of this machine, or hide from that judge; and the line of a fault is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from constrint.propose.cuda.tokens import CudaToken, UnreadableText, lex
from constrint.propose.machine import words
from constrint.propose.machine.ptx import fragment_problems

#: Directives of the preprocessor that read no files.
DIRECTIVES = words("define undef if ifdef ifndef elif else endif pragma")
_QUALIFIERS = words("__global__ __device__ __host__ __forceinline__ __noinline__ __inline__")
#: Names that begin with an underscore or hold two: only these of CUDA's.
RESERVED = _QUALIFIERS | words(
    "__shared__ __restrict__ __restrict __launch_bounds__ __align__ __builtin_align__ __grid_constant__ "
    "__CUDA_ARCH__ __syncthreads __syncthreads_count __syncthreads_and __syncthreads_or __syncwarp __threadfence "
    "__threadfence_block __threadfence_system __activemask __all_sync __any_sync __uni_sync __ballot_sync __shfl_sync "
    "__shfl_up_sync __shfl_down_sync __shfl_xor_sync __match_any_sync __match_all_sync __reduce_add_sync "
    "__reduce_min_sync __reduce_max_sync __reduce_and_sync __reduce_or_sync __reduce_xor_sync __ldg __ldcg __ldca "
    "__ldcs __ldlu __ldcv __stwb __stcg __stcs __stwt __isGlobal __isShared __isLocal __isConstant "
    "__cvta_generic_to_shared __cvta_generic_to_global __cvta_shared_to_generic __cvta_global_to_generic "
    "__builtin_assume __builtin_assume_aligned __builtin_expect __builtin_unreachable __assume "
    "__popc __popcll __clz __clzll __ffs __ffsll __brev __brevll __byte_perm __funnelshift_l __funnelshift_lc "
    "__funnelshift_r __funnelshift_rc __mulhi __umulhi __mul64hi __umul64hi __mul24 __umul24 __sad __usad __hadd "
    "__rhadd __uhadd __urhadd __dp2a_lo __dp2a_hi __dp4a __fns __vadd2 __vadd4 __vsub2 __vsub4 __vmaxs2 __vmins2 "
    "__float_as_int __float_as_uint __int_as_float __uint_as_float __double_as_longlong __longlong_as_double "
    "__double2hiint __double2loint __hiloint2double __expf __exp10f __logf __log2f __log10f __powf __sinf __cosf "
    "__tanf __sincosf __fdividef __saturatef __fadd_rn __fadd_rz __fadd_ru __fadd_rd __fsub_rn __fsub_rz __fsub_ru "
    "__fsub_rd __fmul_rn __fmul_rz __fmul_ru __fmul_rd __fmaf_rn __fmaf_rz __fmaf_ru __fmaf_rd __frcp_rn __frcp_rz "
    "__frcp_ru __frcp_rd __fsqrt_rn __fsqrt_rz __fsqrt_ru __fsqrt_rd __frsqrt_rn __fdiv_rn __fdiv_rz __fdiv_ru "
    "__fdiv_rd __dadd_rn __dmul_rn __fma_rn __drcp_rn __dsqrt_rn __ddiv_rn __float2int_rn __float2int_rz "
    "__float2int_ru __float2int_rd __float2uint_rn __float2uint_rz __float2uint_ru __float2uint_rd __float2ll_rn "
    "__float2ll_rz __int2float_rn __int2float_rz __uint2float_rn __uint2float_rz __ll2float_rn __ull2float_rn "
    "__double2float_rn __double2int_rn __double2int_rz __int2double_rn __ll2double_rn"
)
#: Words that a macro may not hold, so that declarations and assembly stand where they are read.
_NOT_IN_MACROS = words("asm static extern namespace template struct class union") | _QUALIFIERS | {"__shared__"}
_AFTER_PARAMETERS = ("{", "const", "noexcept", "->", ":")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def text_problems(tokens: Sequence[CudaToken]) -> Iterator[str]:
    """The faults of a text, each with its line and the way out."""
    reader = _TextReader(tokens)
    for place, token in enumerate(tokens):
        for problem in reader.problems(place, token):
            yield f"line {token.line}: {problem}"


def is_reserved(name: str) -> bool:
    """Whether a name belongs to the compiler and is none that a kernel needs."""
    return ("__" in name or (name[:1] == "_" and name[1:2].isupper())) and name not in RESERVED


def kernels_of(tokens: Sequence[CudaToken]) -> frozenset[str]:
    """The names of the functions that a text declares as kernels."""
    names, pairs = set(), _pairs(tokens)
    for place, token in enumerate(tokens):
        if token.text == "__global__":
            opening = _opening(tokens, place, pairs)
            if opening < len(tokens) and tokens[opening].text == "(":
                names.add(tokens[opening - 1].text)
    return frozenset(names)


def name_problems(expression: str) -> Iterator[str]:
    """The faults of a kernel's name with its arguments of a template."""
    try:
        tokens = list(lex(expression))
    except UnreadableText as error:
        yield str(error).partition(": ")[2] or str(error)
        return
    for token in tokens:
        if token.kind == "text" or (token.kind == "sign" and token.text not in ("<", ">", ",", "::")):
            yield f"`{token.text}` stands in no name of a kernel"
        elif token.kind == "name" and is_reserved(token.text):
            yield f"`{token.text}` is a name of the compiler"


class _TextReader:
    def __init__(self, tokens: Sequence[CudaToken]) -> None:
        self._tokens, self._pairs = tokens, _pairs(tokens)
        self._texts: set[int] = set()

    def problems(self, place: int, token: CudaToken) -> Iterator[str]:
        """The faults of one token where it stands."""
        if token.directive:
            yield from self._in_directive(place, token)
        elif token.text in ("#", "##"):
            yield f"`{token.text}` stands alone; a directive begins its line."
        elif token.kind == "text" and place not in self._texts and self._text(place - 1) != "extern":
            yield f'{token.text} is a text, which only `asm`, static_assert and extern "C" need.'
        if token.kind == "name":
            yield from self._of_name(place, token)

    def _in_directive(self, place: int, token: CudaToken) -> Iterator[str]:
        parts = [one.text for one in self._tokens[place : place + 3] if one.directive == token.directive]
        is_start = place == 0 or self._tokens[place - 1].directive != token.directive
        if is_start:
            directive, rest = (parts[1:2] or [""])[0], parts[2:]
            if directive not in ("", *DIRECTIVES) or (directive == "pragma" and rest != ["unroll"]):
                yield (
                    f"`#{' '.join([directive, *rest[: directive == 'pragma']])}` is not allowed; only #define, #undef, "
                    "#if, #ifdef, #ifndef, #elif, #else, #endif and #pragma unroll are. No header is there: fp16, "
                    "bf16, to_float and round_to<T> are known."
                )
            if directive in ("define", "undef") and rest and rest[0] in RESERVED | _NOT_IN_MACROS:
                yield f"`{rest[0]}` is a word of the language; a macro has a name of its own."
        elif token.text in ("#", "##"):
            yield f"`{token.text}` is not allowed in a macro: names are written out."
        elif token.kind == "text":
            yield f"{token.text} is a text, which no directive needs."
        elif token.text in _NOT_IN_MACROS and not is_start:
            yield f"`{token.text}` stands in a directive; declare it where it is read."

    def _of_name(self, place: int, token: CudaToken) -> Iterator[str]:
        name = token.text
        if is_reserved(name):
            yield f"`{name}` is a name of the compiler that no kernel needs (a clock, a file, state that lasts)."
        elif token.directive:
            return
        elif name == "asm":
            yield from self._of_assembly(place)
        elif name == "static_assert" and self._text(place + 1) == "(":
            self._texts.add(self._pairs[place + 1] - 1)
        elif name in ("__device__", "__global__", "static"):
            if name != "static" or self._text(place + 1) not in ("constexpr", "__shared__"):
                yield from self._of_function(place, name)
        elif name == "extern" and self._text(place + 1) not in ("__shared__", '"C"'):
            yield '`extern` declares what is elsewhere; only extern __shared__ and extern "C" are read.'
        elif name == "extern" and self._text(place + 1) == '"C"' and self._text(place + 2) == "{":
            yield 'extern "C" stands before each function, without braces.'

    def _of_function(self, place: int, word: str) -> Iterator[str]:
        """A storage class makes a function with a body, and no variable."""
        opening = _opening(self._tokens, place, self._pairs)
        is_function = self._text(opening) == "(" and self._text(self._pairs[opening] + 1) in _AFTER_PARAMETERS
        if not is_function:
            yield (
                f"`{word}` declares a variable, which would outlive a call, or a function without its body here; only "
                "functions with a body have it: use __shared__, a local variable, or scratch."
            )

    def _of_assembly(self, place: int) -> Iterator[str]:
        opening = place + 1 + (self._text(place + 1) == "volatile")
        closing = self._pairs[opening] if self._text(opening) == "(" else len(self._tokens)
        if closing >= len(self._tokens):
            yield "`asm` is followed by `(` and its text."
            return
        inside = self._tokens[opening + 1 : closing]
        written = []
        for token in inside:
            if token.kind != "text":
                break
            written.append(token.text[1:-1].replace("\\n", "\n").replace("\\t", "\t"))
        rest = inside[len(written) :]
        if not written or (rest and rest[0].text not in (":", "::")):
            yield "`asm` holds its text in quotes, then `:` and operands."
            return
        self._texts.update(range(opening + 1, opening + 1 + len(written)))
        self._texts.update(
            opening + 1 + at
            for at, one in enumerate(inside)
            if at >= len(written) and one.kind == "text" and inside[at - 1].text in (":", "::", ",")
        )
        for problem in fragment_problems("".join(written)):
            yield f"asm has {problem}: no candidate may."

    def _text(self, place: int) -> str:
        return self._tokens[place].text if 0 <= place < len(self._tokens) else ""


def _opening(tokens: Sequence[CudaToken], place: int, pairs: Sequence[int]) -> int:
    """Where the parameters of what is declared begin, or where it is seen to be no function."""
    at = place + 1
    while at < len(tokens) and tokens[at].text not in ("(", "{", "}", "[", "=", ";"):
        if tokens[at].text in ("__launch_bounds__", "__align__", "alignas") and at + 1 < len(tokens):
            at = pairs[at + 1]
        elif tokens[at].text == "operator":
            at += 2
        at += 1
    return at


def _pairs(tokens: Sequence[CudaToken]) -> list[int]:
    """For each token the bracket that ends what it begins: itself where it begins nothing, the end where none does."""
    pairs = list(range(len(tokens)))
    waiting: list[int] = []
    for at, token in enumerate(tokens):
        if token.text in _CLOSING:
            waiting.append(at)
            pairs[at] = len(tokens)
        elif token.text in _CLOSING.values() and waiting and _CLOSING[tokens[waiting[-1]].text] == token.text:
            pairs[waiting.pop()] = at
    return pairs
