"""Reads AMD's assembly, of which Triton makes the binary: a statement a line, each of them on a list."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SCALAR = (
    "add addc addk sub subb mul mulk mulhi min max and or xor not nand nor xnor andn1 andn2 orn1 orn2 and_not0 "
    "and_not1 or_not0 or_not1 lshl lshl1 lshl2 lshl3 lshl4 lshr ashr bfe bfm bcnt0 bcnt1 ff0 ff1 flbit cls clz ctz "
    "brev sext abs absdiff bitset0 bitset1 bitcmp0 bitcmp1 bitreplicate cselect cmov cmovk mov movk movrels movreld "
    "cmp cmpk pack quadmask wqm fmac fmaak fmamk fma cvt ceil floor trunc rndne load buffer_load"
)
#: Instructions of a kernel, whole or by what stands before the first underscore of the rest.
_INSTRUCTION = re.compile(
    rf"s_(?:{'|'.join(_SCALAR.split())})_\w+"
    r"|s_(?:branch|cbranch_\w+|endpgm|nop|waitcnt\w*|wait_\w+|barrier\w*|setprio|sched_barrier|sched_group_barrier"
    r"|delay_alu|clause|code_end|set_inst_prefetch_distance|inst_prefetch|swappc_b64|setpc_b64|getpc_b64|call_b64"
    r"|round_mode|denorm_mode|version|set_gpr_idx_\w+|set_vgpr_msb)"
    r"|v_(?!illegal)\w+"
    r"|(?:global|flat|scratch|buffer|cluster)_(?:load|store|atomic)_\w+|global_(?:inv|wb|wbinv)"
    r"|buffer_(?:wbinvl1\w*|inv|wbl2|gl[01]_inv)|tensor_(?:load|store)_\w+"
    r"|ds_(?:read|write|load|store|add|sub|rsub|inc|dec|min|max|and|or|xor|mskor|cmpst|cmpstore|wrxchg|storexchg"
    r"|pk_add|permute|bpermute|swizzle)\w*|ds_nop"
)
#: Instructions that reach what a kernel has no need of, with the only operands that are no such thing.
_BOUND_OPERANDS = re.compile(
    r"s_setreg(?:_imm32)?_b32 hwreg\(HW_REG_(?:MODE|WAVE_MODE|SCHED_MODE|WAVE_SCHED_MODE)\b.*"
    r"|s_getreg_b32 s\d+, hwreg\(HW_REG_(?:SH_MEM_BASES)\b.*|s_sendmsg sendmsg\(MSG_DEALLOC_VGPRS\)"
)
_DIRECTIVE = re.compile(
    r"\.(?:amdgcn_target|amdhsa_\w+|end_amdhsa_kernel|text|globl|hidden|protected|weak|p2align|p2alignl|type|size|set"
    r"|file|loc|cfi_\w+|byte|short|long|quad|ascii|asciz|fill|zero|ident|sleb128|uleb128|addrsig|addrsig_sym|alloca_size)"
)
_SECTION = re.compile(r"\.section\s+(?:\.text\S*|\.AMDGPU\.\S+|\.debug_\S+|\"?\.note\S*|\.llvm\S*|\.rodata\S*)")
_LABEL = re.compile(r"[\w.$]+:")
_METADATA = re.compile(r"^\s*\.amdgpu_metadata\n.*?^\s*\.end_amdgpu_metadata$", re.MULTILINE | re.DOTALL)


def amdgcn_problems(text: str) -> Iterator[str]:
    """The faults of a text of assembly.

    Args:
        text: What Triton's compiler made.
    """
    if "/*" in text:
        yield "a comment `/*` in its assembly"
    for line in _METADATA.sub("", text).splitlines():
        statement = line.partition(";")[0].strip()
        while label := _LABEL.match(statement):
            statement = statement[label.end() :].strip()
        word = statement.split(maxsplit=1)[0] if statement else ""
        if not statement or _is_known(statement, word):
            continue
        if word.startswith("."):
            yield f"the directive `{statement[:40]}`, which is none that a kernel needs"
        else:
            yield f"the instruction `{word}`, which is none that a kernel needs"


def _is_known(statement: str, word: str) -> bool:
    if word == ".section":
        return _SECTION.match(statement) is not None
    if word == ".type" and not statement.endswith("@function"):
        return False
    if word.startswith("."):
        return _DIRECTIVE.fullmatch(word) is not None
    return bool(_INSTRUCTION.fullmatch(word) or _BOUND_OPERANDS.fullmatch(" ".join(statement.split())))
