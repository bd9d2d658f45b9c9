"""Candidates in CUDA C++ that hide what no candidate may have, drawn from a grammar of tricks.

    python -m benchmarks.attacks.cuda_source --count 120 --seed 7

Each draws a fault (a clock, a trap, state that lasts, a header, a macro of time), a disguise (phases of translation,
raw texts, splices, predicates, blocks, second statements, macros, dead branches) and a place in an honest kernel. It
has to be refused by the reader, or by the judge of what the compiler made of it; what the reader refuses is given to
the judge alone, too, and the summary counts both. One in eight is honest, with the same words in comments and in code
that is allowed, and has to pass. A find is one that passes, an honest one that does not, or any other exception.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.attacks import asked_of
from constrint.errors import CompileError, UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda.nvrtc import CudaSource, compile_with_ptx
from constrint.propose import find_task
from constrint.propose.cuda.candidate import OPTIONS, prelude
from constrint.propose.cuda.legal import illegal
from constrint.propose.machine.judge import judge
from constrint.tune.search.llm.records import KernelLaunch, SourceProposal

GPUS = ("h200", "a100", "rtx-5090", "l4")
TYPES = {"y_t": "float", "x_t": "fp16"}
#: Honest kernels. `//@` marks where statements may stand; `n`, `x`, `y`, `X` and `Y` are there.
KERNELS = (
    """
template <typename Y, typename X> __global__ void rows(Y* y, const X* x, long long n, long long step) {
    __shared__ float part[32];
    float sum = 0;
    //@
    for (long long at = threadIdx.x; at < n; at += blockDim.x) {
        //@
        sum += to_float(x[blockIdx.x * step + at]);
    }
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    //@
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    y[blockIdx.x * n + threadIdx.x] = round_to<Y>(part[0]);
    //@
}
""",
    """
#define WIDTH 4
struct Scale { float by; __device__ float operator()(float value) const { return value * by; } };
template <typename Y, typename X> __global__ void __launch_bounds__(256) rows(Y* __restrict__ y, const X* x,
                                                                             long long n, long long step) {
    extern __shared__ float staged[];
    const Scale scale{0.5f};
    //@
#pragma unroll
    for (int at = 0; at < WIDTH; ++at) {
        //@
        staged[threadIdx.x] = scale(to_float(x[at * step + threadIdx.x]));
        __syncwarp();
        y[at * n + threadIdx.x] = round_to<Y>(sinf(staged[threadIdx.x ^ 1]) + expf(float(at)));
    }
    //@
}
""",
)
#: Texts of assembly; %0 is an unsigned number, %1 an address.
ASSEMBLY = (
    "trap;", "brkpt;", "nanosleep.u32 100;", "pmevent 1;", "mov.u32 %0, %%clock;", "mov.u32 %0, %%clock_hi;",
    "mov.u32 %0, %%globaltimer_lo;", "mov.u32 %0, %%pm0;", "mov.u32 %0, %%smid;", "mov.u32 %0, %%warpid;",
    "discard.global.L2 [%1], 128;", "applypriority.global.L2::evict_normal [%1], 128;",
    "prefetch.global.L2::evict_last [%1];", "prefetch.global.L2 [%1];", "ld.global.L2::evict_last.u32 %0, [%1];",
    ".reg .u32 %%clock; mov.u32 %0, %%clock;", ".reg .b64 w; mov.u64 w, %%globaltimer; cvt.u32.u64 %0, w;",
    ".global .u32 keep; atom.global.add.u32 %0, [keep], 1;", ".global .u32 keep[4]; ld.global.u32 %0, [keep];",
    ".reg .b64 w; .global .u32 keep; mov.u64 w, keep; st.u32 [w], %0;",
    ".reg .b64 w; createpolicy.fractional.L2::evict_last.b64 w, 1.0;"
    " ld.global.L2::cache_hint.u32 %0, [%1], w;",
    ".reg .b64 w; .const .u32 keep = 1; mov.u64 w, keep; cvta.const.u64 w, w; ld.u32 %0, [w];",
)  # fmt: skip
#: Statements, with what has to stand at the top for them; `=` begins an expression that has to be used.
STATEMENTS = (
    ("= clock()", ""), ("= clock64()", ""), ("__nanosleep(100);", ""), ("__trap();", ""), ("__brkpt();", ""),
    ('printf("%d", 1);', ""), ("__prof_trigger(1);", ""), ("= *(unsigned*)malloc(4)", ""), ("= *new unsigned(3)", ""),
    ("= atomicAdd(&kept, 1u)", "__device__ unsigned kept;"), ("= kept++", "static __device__ unsigned kept;"),
    ("= kept[n & 3]++", "__device__ unsigned kept[4] = {1, 2, 3, 4};"), ("= kept++", "__device__ unsigned kept(3);"),
    ("= kept++", "__device__ unsigned (kept){3};"), ("= (*(unsigned*)&kept)++", "__constant__ unsigned kept;"),
    ("= kept++", "__managed__ unsigned kept;"), ("= Kept<int>::kept++",
     "template <typename T> struct Kept { static __device__ unsigned kept; };"
     "template <typename T> __device__ unsigned Kept<T>::kept;"),
    ("static unsigned kept; SINK(kept++)", ""), ("static __device__ unsigned kept; SINK(kept++)", ""),
    ("= kept++", "inline __device__ unsigned kept = 3;"), ("= kept.a++", "__device__ struct { unsigned a; } kept;"),
    ("= kept++", "asm(\".global .u32 other;\"); __device__ unsigned kept;"),
    ("if (__TIME__[7] > 53) SINK(clock64())", ""), ("= __TIME__[n & 7]", ""), ("= __DATE__[n & 7]", ""),
    ("= __TIMESTAMP__[n & 7]", ""), ("= __COUNTER__ + n", ""), ("= __FILE__[n & 7]", ""),
    ("= __builtin_LINE() + n", ""), ("= __half_as_ushort(__float2half(1.0f))", "#include <cuda_fp16.h>"),
    ("= HELD + n", '#if __has_include("/etc/passwd")\n#define HELD 1\n#else\n#define HELD 2\n#endif'),
    ("= n", '#include "/etc/hostname"'), ("= n", "#define HEADER <cuda_fp16.h>\n#include HEADER"),
    ("= n", "#pragma once"), ("= n", '_Pragma("nv_diag_suppress 1")'), ("= n", "#line 5"), ("= n", "#import <cuda.h>"),
    ("= n", '__device__ const char* words = R"(" /* )";\n#include <cuda_fp16.h>\n// */'),
    ("= __nvvm_reflect(words)", "__device__ const char words[] = \"__CUDA_FTZ\";"),
)  # fmt: skip
#: Words in an honest kernel.
HONEST = (
    "// clock64(), __TIME__ and trap; stand in a comment",
    '/* #include <cuda_fp16.h> \n   asm(".global .u32 keep;") */',
    'asm volatile("{ .reg .pred q; setp.ne.u32 q, %0, 7; @q add.u32 %0, %0, 1; }" : "+r"(count)); // %%clock',
    'asm("mov.u32 %0, %%laneid;" : "=r"(count));',
    "static constexpr int KEPT = 3; count += KEPT;",
    'static_assert(sizeof(X) <= 4, "trap; %clock");',
    "#if __CUDA_ARCH__ >= 800\n    count += 1;\n#endif",
    "count += atomicAdd((unsigned*)y, 0u) & 1;",
    "switch (n & 7) { case 0: count = 3; break; case 1: count = 9; break; case 4: count = 11; }",
    "count += __popc((unsigned)n) + __float_as_uint(tanhf(1.5f * n)) % 3u;",
    "count += (unsigned)(1.0 / n + sqrt(2.0 * n) + pow(1.5, 1.0 * n));",
    "__threadfence(); __syncwarp(); count += __ldg(&((const unsigned*)x)[0]);",
)


@dataclass
class AttackText:
    """A candidate under construction.

    Args:
        rng: Draws.
        top: What stands before the kernel.
        statement: What stands in it.
        names: The parts that were drawn.
        is_lexical: Whether a disguise of tokens was used already.
    """

    rng: random.Random
    top: str = ""
    statement: str = ""
    names: list[str] = field(default_factory=list)
    is_lexical: bool = False

    def source(self) -> str:
        """The whole text."""
        kernel = self.rng.choice(KERNELS)
        place = self.rng.randrange(kernel.count("//@"))
        before, *others = kernel.split("//@")
        parts = [before]
        for number, other in enumerate(others):
            parts += [self.statement if number == place else "", other]
        return f"{self.top}\n{''.join(parts)}"


def sink(expression: str) -> str:
    """A statement that uses an expression, so that no compiler leaves it out."""
    return f"if ((unsigned)({expression}) == 12345u) y[0] = round_to<Y>(3.0f);"


def assembly(text: AttackText) -> None:
    """A fault in assembly."""
    rng, code = text.rng, text.rng.choice(ASSEMBLY)
    text.names.append(code)
    code = rng.choice((
        lambda code: code,
        lambda code: f"{{ {code} }}",
        lambda code: f"add.u32 %0, %0, 1; {code}",
        lambda code: f"add.u32 %0, %0, 1;\\n\\t{{\\n{code}\\n}}",
        lambda code: f"/* honest */ {code} // {{",
        lambda code: f"{{ .reg .pred q; setp.ne.u32 q, %0, 7; @q {code} }}" if code[0] != "." else f"{{{code}}}",
        lambda code: f"{{ .reg .pred q; setp.ne.u32 q, %0, 7; @!q bra over; {{ {code} }} over: }}",
    ))(code)  # fmt: skip
    at = rng.randrange(1, len(code) - 2)
    if code[at - 1] == "\\" or code[at] == "\\":
        at = 1
    quoted = rng.choice((
        lambda: f'"{code}"', lambda: f'"{code[:at]}" "{code[at:]}"', lambda: f'"{code[:at]}"\n"{code[at:]}"',
        lambda: f'"{code[:at]}\\x{ord(code[at]):x}" "{code[at + 1:]}"',
        lambda: f'"{code[:at]}\\{ord(code[at]):03o}{code[at + 1:]}"',
        lambda: 'R"x(' + code.replace("\\n", "\n").replace("\\t", "\t") + ')x"',
        lambda: f'u8"{code}"',
    ))()  # fmt: skip
    word = rng.choice(("asm volatile", "asm  volatile", "asm\nvolatile", "__asm__ volatile", "asm volatile"))
    text.statement = f'{{ unsigned v = n; {word}({quoted} : "+r"(v) : "l"(x) : "memory"); {sink("v")} }}'


def statement(text: AttackText) -> None:
    """A fault in C++, or in what the preprocessor reads."""
    code, text.top = text.rng.choice(STATEMENTS)
    text.names.append(f"{code} {text.top}".strip())
    if code.startswith("="):
        code = sink(code[2:])
    elif "SINK(" in code:
        head, _, tail = code.partition("SINK(")
        code = head + sink(tail[:-1])
    text.statement = f"{{ {code} }}"


def in_code(text: AttackText) -> None:
    """Put the statement where it is not looked for."""
    name, change = text.rng.choice((
        ("plain", lambda code: code),
        ("dead", lambda code: f"if (n < -1) {{ {code} }}"),
        ("by size", lambda code: f"if (n == 77) {{ {code} }}"),
        ("lambda", lambda code: f"[&]() {{ {code} }}();"),
        ("second", lambda code: f"; __syncwarp(); ; {code}"),
        ("loop", lambda code: f"for (int k = 0; k < (n & 1); ++k) {{ {code} }}"),
        ("switch", lambda code: f"switch (n & 3) {{ case 2: {code} break; default: break; }}"),
        ("condition", lambda code: f"\n#if 1\n{code}\n#endif\n"),
        ("raw", lambda code: f'{{ auto w = sizeof(R"(" /* )"); {code} /* */ }}'),
        ("comment", lambda code: f"/* // */ {code} // /*"),
        ("splice in a comment", lambda code: f"// \\\n x */ \n {code}"),
        ("quote", lambda code: f"{{ int w = '\"'; {code} w = '\"'; }}"),
    ))  # fmt: skip
    text.names.append(name)
    text.statement = change(text.statement)


def in_tokens(text: AttackText) -> None:
    """Write a token, or the blanks before one, in another way."""
    rng = text.rng
    field_name = rng.choice(("statement", "top")) if text.top else "statement"
    code = getattr(text, field_name)
    words = [at for at in range(1, len(code) - 1) if code[at - 1 : at + 1].isalnum() and code[at].isalpha()]
    if not words:
        return
    at = rng.choice(words)
    blank = code.find(" ")
    name, changed = rng.choice((
        ("splice", f"{code[:at]}\\\n{code[at:]}"),
        ("splice with blanks", f"{code[:at]}\\ \t\n{code[at:]}"),
        ("splice with CR", f"{code[:at]}\\\r\n{code[at:]}"),
        ("trigraph", f"{code[:at]}??/\n{code[at:]}"),
        ("universal name", f"{code[:at]}\\u00{ord(code[at]):02x}{code[at + 1:]}"),
        ("form feed", f"{code[:blank]}\f{code[blank + 1:]}"),
        ("vertical tab", f"{code[:blank]}\v{code[blank + 1:]}"),
        ("CR", f"{code[:blank]}\r{code[blank + 1:]}"),
        ("feed before", f"\f{code}"), ("tab before", f"\v{code}"),
        ("digraph", code.replace("#", "%:").replace("[", "<:").replace("{", "<%").replace("}", "%>")),
        ("trigraph sign", code.replace("#", "??=").replace("{", "??<").replace("}", "??>")),
        ("comment in a directive", code.replace("#", "/* \n */ # /**/ ")),
        ("surrogate", f"{code[:at]}\udc80{code[at:]}"), ("letter", f"{code[:at]}\u0430{code[at:]}"),
        ("NUL", f"{code[:at]}\0{code[at:]}"), ("BOM", f"\ufeff{code}"), ("line separator", f"// \u2028{code}"),
    ))  # fmt: skip
    if changed != code:
        text.names.append(name)
        text.is_lexical = True
        setattr(text, field_name, changed)


def in_macros(text: AttackText) -> None:
    """Let the preprocessor write the statement."""
    code = " ".join(text.statement.split("\n"))
    if "#" in code or text.is_lexical:
        return
    name, top, statement = text.rng.choice(
        (
            ("macro", f"#define HELP {code}", "HELP"),
            ("macro with arguments", f"#define HELP(a) {code}", "HELP(1)"),
            ("paste", "#define J(a, b) a##b", code.replace("asm", "J(as, m)").replace("clock64", "J(clo, ck64)")),
            ("word", "#define word asm\n#define store __device__", code.replace("asm", "word")),
            ("variadic", "#define ALL(...) __VA_ARGS__", f"ALL({code})"),
            ("emptied", "#define __shared__\n#define volatile", code),
        )
    )
    text.names.append(name)
    text.top, text.statement = f"{text.top}\n{top}", statement


def draw_attack(rng: random.Random) -> tuple[str, str]:
    """A candidate that hides something, and the parts that it is made of."""
    text = AttackText(rng)
    rng.choice((assembly, statement, statement))(text)
    for disguise in rng.sample((in_code, in_tokens, in_macros), rng.randrange(4)):
        disguise(text)
    return text.source(), " + ".join(text.names)


def draw_honest(rng: random.Random) -> tuple[str, str]:
    """A candidate that hides nothing."""
    words = rng.sample(HONEST, rng.randrange(1, 5))
    text = AttackText(rng)
    text.statement = "unsigned count = 0;\n" + "\n".join(f"    {word}\n" for word in words) + f"    {sink('count')}\n"
    return text.source(), " + ".join(words)


def proposal_of(source: str) -> SourceProposal:
    """The candidate as it is proposed."""
    launch = KernelLaunch("rows<y_t, x_t>", ("x_size0",), ("256",), ("y", "x", "x_size1", "x_stride0"), "1024")
    return SourceProposal(task="softmax", language="cuda", source=source, launches=(launch,))


def refused(source: str, gpu: str, *, is_read: bool = True) -> str:
    """Which of the two gates refuses a candidate: `reader`, `compiler` or `judge`; empty where none does."""
    if is_read and illegal(proposal_of(source), find_task("softmax")):
        return "reader"
    try:
        whole = CudaSource(prelude() + source, "rows<y_t, x_t>", TYPES, OPTIONS, name="candidate.cu")
        binary, ptx = compile_with_ptx(load_gpu(gpu), whole)
        judge("rows", {"ptx": ptx, "cubin": binary.cubin})
    except (CompileError, UnicodeEncodeError):
        return "compiler"
    except UnsupportedError:
        return "judge"
    return ""


def attack(count: int, seed: int, say: Callable[[str], None] = print) -> bool:
    """Draw candidates and see that each is refused, and honest ones are not.

    Args:
        count: How many candidates.
        seed: What decides them.
        say: Takes the finds and the summary.

    Returns:
        Whether there was no find.
    """
    outcomes: Counter[str] = Counter()
    finds = list(_finds(count, seed, outcomes))
    for find in finds:
        say(find)
    told = ", ".join(f"{name} {number}" for name, number in sorted(outcomes.items()))
    say(f"cuda_source: {count} candidates of seed {seed}, {len(finds)} finds: {told}")
    return not finds


def _finds(count: int, seed: int, outcomes: Counter[str]) -> Iterator[str]:
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        gpu, is_honest = rng.choice(GPUS), number % 8 == 7
        source, name = (draw_honest if is_honest else draw_attack)(rng)
        try:
            by = refused(source, gpu)
            alone = refused(source, gpu, is_read=False) if by == "reader" and not is_honest else ""
        except Exception as error:  # noqa: BLE001 - any other exception is a find
            yield f"FIND {number}: {type(error).__name__}: {error} ({name!a})\n{source!a}"
            continue
        outcomes[f"honest {by or 'passed'}" if is_honest else f"refused by the {by or 'NOBODY'}"] += 1
        if alone:
            outcomes[f"without the reader by the {alone}"] += 1
        if bool(by) == is_honest:
            kind = "an honest one" if is_honest else "a candidate"
            yield f"FIND {number}: {kind}, refused by {by or 'nobody'}: {name!a}\n{source!a}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    chosen = asked_of(__doc__, 120, arguments)
    return 0 if attack(chosen.count, chosen.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
