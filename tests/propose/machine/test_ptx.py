"""PTX is parsed as a whole; what is on no list is refused wherever it stands."""

from __future__ import annotations

import pytest

from constrint.propose.machine.ptx import fragment_problems, read_ptx

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
TABLE = ".global .align 4 .b8 __cudart_i2opi_f[24] = {65, 144, 67, 60};\n"
LOADS = "mov.u64 %rd2, {}; ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;"


def module(statements: str = "", before: str = "", parameters: str = ".param .u64 p") -> str:
    body = f"{{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; ld.param.u64 %rd1, [p];\n{statements}\nret; }}"
    return f"{HEAD}{before}.visible .entry f({parameters})\n.maxntid 256, 1, 1\n{body}\n"


@pytest.mark.parametrize(
    ("statements", "before"),
    [
        ("", ".extern .shared .align 16 .b8 dyn[];\n"),
        (".shared .align 4 .b8 part[64]; .local .align 4 .b8 depot[8];", ""),
        (LOADS.format("__cudart_i2opi_f"), TABLE),
        ("", ".global .align 1 .b8 _$_str[11] = {95, 95, 67, 85, 68, 65, 95, 70, 84, 90};\n"),
        ("", ".global .align 4 .u32 unused;\n"),
        ("call.uni (r), g, (r);", ".func (.param .b32 r) g(.param .b32 a) { ret; }\n"),
        ("$L__0: @!%p1 bra $L__0;\n.loc 1 2 3, function_name $L__info0+4, inlined_at 1 2 3\n{ bar.sync 0; }", ""),
        ("ts: .branchtargets $A, $B; brx.idx %r1, ts; $A: $B:", ""),
        ("mov.u32 %r1, %tid.x; mov.u32 %r2, %lanemask_lt;", ""),
        ("mov.u64 %rd3, 0x0; createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;"
         "st.global.L1::evict_first.L2::cache_hint.b32 [%rd1], %r1, %rd3;", ""),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r1, %r2}, %rd2, %rd3, %p1, 1, 1, 0, 0;", ""),
    ],
)  # fmt: skip
def test_what_a_kernel_needs_is_allowed(statements: str, before: str) -> None:
    found = read_ptx(module(statements, before) + "\t.section .debug_str { $L__info0: .b8 1\n.b32 $L__x-4 }\n")
    assert (found.problems, found.target) == ([], "sm_90a")


@pytest.mark.parametrize(
    ("statements", "before", "says"),
    [
        ("trap;", "", "`trap`, which ends all"),
        ("add.s32 %r1, %r1, 1; trap;", "", "`trap`"),
        ("@%p1 trap;", "", "`trap`"),
        ("@!%p1 {trap;}", "", "the instruction `{`"),
        ("{{brkpt;}}", "", "`brkpt`"),
        ("/*;*/trap/*;*/;", "", "`trap`"),
        ("mov.u32 %r1, %clock;", "", "the register `%clock`"),
        (".reg .u32 %clock64; mov.u64 %rd1, %clock64;", "", "a register with the name `%clock64`"),
        ("mov.u32 %r1, %pm3;", "", "the register `%pm3`"),
        ("mov.u64 %rd1, %gridid;", "", "the register `%gridid`"),
        (LOADS.format("kept"), ".global .u32 kept;\n", "which would outlive a call (`kept`)"),
        (LOADS.format("kept"), ".visible .const .align 4 .u32 kept = 1;\n", "which would outlive a call (`kept`)"),
        (LOADS.format("__cudart_i2opi_f"), ".global .u32 __cudart_i2opi_f[24];\n", "which would outlive a call"),
        (LOADS.format("by"), ".global .u32 kept;.global .u64 by = kept;\n", "(`by`)"),
        ("", ".global .u32 kept;.global .u64 by = kept;\n", "(`kept`)"),
        ("", ".extern .global .u32 kept;\n", "(`kept`)"),
        (".global .u32 kept; st.global.u32 [kept], %r1;", "", "which would outlive a call (`.global`)"),
        ("call (r), vprintf, (r);", ".extern .func (.param .b32 r) vprintf(.param .b64 a);\n", "(`vprintf`"),
        ("call (r), %rd2, (r), proto;", "", "(`%rd2`"),
        ("proto: .callprototype (.param .b32 _) _ (.param .b32 _);", "", "a directive that no kernel needs"),
        ("ld.global.L2::evict_last.u32 %r1, [%rd1];", "", "keeps lines in the L2"),
        ("createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;", "", "keeps lines in the L2"),
        ("createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0; mov.b64 %rd2, 0x14F0000000000000;"
         "ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;", "", "that no createpolicy made"),
        ("ld.global.L2::cache_hint.u32 %r1, [%rd1], 1499027801607143424;", "", "that no createpolicy made"),
        ("discard.global.L2 [%rd1], 128;", "", "changes what the L2 keeps"),
        ("griddepcontrol.launch_dependents;", "", "the instruction `griddepcontrol`"),
        ("ld.mmio.relaxed.sys.global.u32 %r1, [%rd1];", "", "`.mmio`"),
        ("", '#include "x"\n', "no PTX that is known"),
        ("", ".alias f, g;\n", "no directive of a kernel"),
        ("", ".section .text { }\n", "the section `.text`"),
        ("}", "", "the instruction `ret`"),
        ("{", "", "ends before it is complete"),
    ],
)  # fmt: skip
def test_what_no_candidate_may_have_is_refused(statements: str, before: str, says: str) -> None:
    problems = read_ptx(module(statements, before)).problems
    assert any(says in problem for problem in problems) or (statements == "}" and problems), problems


@pytest.mark.parametrize("text", ["", "\udc80", "\0", ".entry", "}" * 50, "{" * 50, ".file 1", ".visible .entry f("])
def test_text_that_is_no_ptx_is_refused_or_empty_and_never_a_traceback(text: str) -> None:
    assert bool(read_ptx(text).problems) == bool(text) or text == ".file 1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cvt.f32.f16 %0, %1;", ""),
        ("{ .reg .pred p, q; setp.eq.or.s32 p|q, %0, 1, p; @p add.s32 %0, %0, 1; }", ""),
        ("mov.u32 %0, %%laneid;", ""),
        ("mov.u32 %0, %%clock;", "the register `%clock`"),
        ("mov.u64 %0, __cudart_i2opi_f;", "which the assembly does not define"),
        ("} trap; {", "after its end"),
        ("mov.u32 %0, $L;", "`$` in assembly"),
        (".shared .u32 s;", "`.shared`"),
    ],
)
def test_a_text_of_asm_is_read_by_the_same_lists(text: str, says: str) -> None:
    problems = fragment_problems(text)
    assert bool(problems) == bool(says)
    assert any(says in problem for problem in problems or [""])
