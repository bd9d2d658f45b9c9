"""Each way that was tried to get a clock, a trap, state or a header past the gates of CUDA C++, and its relatives."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.attacks.cuda_source import KERNELS, attack, proposal_of, refused, sink
from constrint.propose import find_task
from constrint.propose.cuda.legal import illegal
from constrint.propose.cuda.text import text_problems
from constrint.propose.cuda.tokens import lex
from tests.support.needs import needs_torch, needs_triton

pytestmark = [needs_torch, needs_triton]
needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="NVRTC is not installed (the extra [cuda])"
)


def kernel(statement: str = "", top: str = "") -> str:
    """An honest kernel with a statement at its end and lines before it."""
    return f"{top}\n{KERNELS[0].replace('//@', '', 2).replace('//@', statement, 1).replace('//@', '')}"


def assembly(text: str) -> str:
    """A statement of assembly; %0 is a number, %1 an address."""
    return f'{{ unsigned v = 1; asm volatile({text} : "+r"(v) : "l"(x) : "memory"); {sink("v")} }}'


#: What the compiler takes, so that the judge has to see it without the reader.
IN_ASSEMBLY = {
    "state in a block": '"{ .global .u32 keep; atom.global.add.u32 %0, [keep], 1; }"',
    "state after a semicolon": '"add.u32 %0, %0, 1; .global .u32 keep; st.global.u32 [keep], %0;"',
    "state in constant memory": '"{ .reg .b64 w; .const .u32 keep = 1; mov.u64 w, keep; cvta.const.u64 w, w;'
    ' ld.u32 %0, [w]; }"',
    "trap in a block": '"{ trap; }"',
    "trap by a predicate": '"{ .reg .pred q; setp.eq.u32 q, %0, 77; @q trap; }"',
    "brkpt in a block": '"{ brkpt; }"',
    "second statement of a line": '"add.u32 %0, %0, 1; trap;"',
    "second line": '"add.u32 %0, %0, 1;\\n\\ttrap;"',
    "after a comment": '"/* add */ trap; // add"',
    "performance counter": '"mov.u32 %0, %%pm0;"',
    "register with the name of a clock": '"{ .reg .u32 %%clock; mov.u32 %0, %%clock; }"',
    "number of the launch": '"{ .reg .b64 w; mov.u64 w, %%gridid; cvt.u32.u64 %0, w; }"',
    "L2 discarded": '"discard.global.L2 [%1], 128;"',
    "L2 kept by a policy": '"{ .reg .b64 w; createpolicy.fractional.L2::evict_last.b64 w, 1.0;'
    ' ld.global.L2::cache_hint.u32 %0, [%1], w; }"',
    "L2 kept by a number": '"{ .reg .b64 w; mov.b64 w, 0x14F0000000000000;'
    ' ld.global.L2::cache_hint.u32 %0, [%1], w; }"',
    "event of a profiler": '"pmevent 1;"',
    "letters by number": '"tr\\x61p;"',
    "raw text": 'R"(trap;)"',
    "two texts": '"tr" "ap;"',
}
IN_CODE = {
    "clock in a dead branch": (f"if (n < 0) {{ {sink('clock64()')} }}", ""),
    "clock by a splice": (sink("clo\\\nck64()"), ""),
    "clock by a macro": (sink("now()"), "#define now clock64"),
    "clock by a paste": (sink("J(clo, ck)()"), "#define J(a, b) a##b"),
    "state": (sink("kept++"), "__device__ unsigned kept;"),
    "state with brackets": (sink("kept++"), "__device__ unsigned (kept){3};"),
    "state after a semicolon": (sink("kept++"), ";;;  __device__ unsigned kept;"),
    "state in constant memory": (sink("(*(unsigned*)&kept)++"), "__constant__ unsigned kept;"),
    "state of a function": (f"static unsigned kept; {sink('kept++')}", ""),
    "state by a macro": (sink("kept++"), "#define place __device__\nplace unsigned kept;"),
    "wait": ("__nanosleep(100);", ""),
}
#: What leaves no trace in the binary, so that the reader has to see it.
READ_ALONE = {
    "clock by the time of the compilation": (f"if (__TIME__[7] > 53) {{ {sink('clock64()')} }}", ""),
    "clock by a universal name": (sink("cl\\u006fck64()"), ""),
    "date": (sink("__DATE__[n & 7]"), ""),
    "counter": (sink("__COUNTER__ + n"), ""),
    "header after a form feed": ("", "#\finclude <cuda_fp16.h>"),
    "header after a vertical tab": ("", "#\vinclude <cuda_fp16.h>"),
    "header before a form feed": ("", "\f#include <cuda_fp16.h>"),
    "header after a carriage return": ("", "//\r#include <cuda_fp16.h>"),
    "header hidden by a raw text": ("", 'constexpr char a[] = R"(" /* )";\n#include <cuda_fp16.h>\n// */'),
    "header": ("", "#include <cuda_fp16.h>"),
    "header after a comment": ("", "/* \n */ # /* */ include <cuda_fp16.h>"),
    "header by a macro": ("", "#define HEADER <cuda_fp16.h>\n#include HEADER"),
    "header by a digraph": ("", "%:include <cuda_fp16.h>"),
    "header by a trigraph": ("", "??=include <cuda_fp16.h>"),
    "header by a splice": ("", "#inc\\\nlude <cuda_fp16.h>"),
    "header by a splice with blanks": ("", "#inc\\  \nlude <cuda_fp16.h>"),
    "file of this machine": (sink("HELD"), '#if __has_include("/etc/passwd")\n#define HELD n\n#endif'),
    "pragma by an operator": ("", '_Pragma("nv_diag_suppress 1")'),
    "assembly by a macro": (sink("n"), "#define word asm"),
}


@needs_nvrtc
@pytest.mark.parametrize("text", IN_ASSEMBLY.values(), ids=IN_ASSEMBLY)
def test_assembly_that_no_candidate_may_have_is_refused_by_the_reader_and_by_the_judge_alone(text: str) -> None:
    source = kernel(assembly(text))
    assert illegal(proposal_of(source), find_task("softmax"))
    assert refused(source, "h200", is_read=False) == "judge"


@needs_nvrtc
@pytest.mark.parametrize(("statement", "top"), IN_CODE.values(), ids=IN_CODE)
def test_clocks_and_state_are_refused_by_the_judge_alone(statement: str, top: str) -> None:
    assert refused(kernel(statement, top), "h200", is_read=False) == "judge"


@pytest.mark.parametrize(("statement", "top"), READ_ALONE.values(), ids=READ_ALONE)
def test_what_reads_files_or_the_time_is_refused_by_the_reader(statement: str, top: str) -> None:
    found = illegal(proposal_of(kernel(statement, top)), find_task("softmax"))
    assert found.startswith("line ")


@pytest.mark.parametrize("odd", ["\udc80", "\0", "\ufeff", "\u2028", "\x85", "\x1b[2J", "\x7f"])
def test_odd_characters_are_refused_by_their_line_and_not_repeated(odd: str) -> None:
    found = illegal(proposal_of(kernel(f"// {odd}")), find_task("softmax"))
    assert found.startswith("line ")
    assert odd not in found


def test_words_in_comments_and_code_that_a_kernel_needs_are_read_as_what_they_are() -> None:
    source = kernel(
        'asm volatile("{ .reg .pred q; setp.ne.u32 q, %0, 7; @q add.u32 %0, %0, 1; }" : "+r"(v) : : "memory");',
        '/* #include <x> __TIME__ asm("trap;") */ // clock64(); \\ what\n#define TILE 32\n#if __CUDA_ARCH__ >= 800\n'
        'extern "C" __device__ float twice(float a) { return 2 * a; }\n#endif\n'
        "struct S { float a; __device__ float operator()(float b) const { return a + 1.5e-3f * b; } };\n"
        'static_assert(sizeof(S) == 4, "trap; in words");',
    )
    assert list(text_problems(list(lex(source)))) == []


@needs_nvrtc
def test_candidates_drawn_from_a_grammar_of_tricks_are_refused_and_honest_ones_pass() -> None:
    said: list[str] = []
    assert attack(16, seed=33, say=said.append), said
