"""Reads PTX as a whole: every directive, instruction, modifier and register has to be on a list.

The text is lexed and parsed, so one line may hold many statements, a predicate or a block hides nothing, and what this
reader does not understand is refused. Text that a source states in `asm` is read by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INSTRUCTIONS = _words(
    "abs activemask add addc and atom bar barrier bfe bfi bfind bmsk bra brev brx call clz cnot copysign cos cp "
    "createpolicy cvt cvta div dp2a dp4a elect ex2 exit fence fma fns isspacep ld ldmatrix ldu lg2 lop3 mad mad24 "
    "madc mapa match max mbarrier membar min mma mov movmatrix mul mul24 neg not or popc prmt rcp red redux rem ret "
    "rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stmatrix sub subc szext tanh tcgen05 testp "
    "vote wgmma wmma xor"
)
#: Types, shapes, rounding, comparison, state spaces, scopes, orders, and hints of caches that end with the kernel.
_MODIFIERS = _words(
    "b1 b4x16 b4x16_p64 b6x16_p32 b8 b8x16 b16 b32 b64 b128 u4 u8 u16 u16x2 u32 u64 s4 s8 s16 s16x2 s32 s64 f16 "
    "f16x2 bf16 bf16x2 tf32 f32 f32x2 f64 pred e4m3 e5m2 e4m3x2 e5m2x2 e2m1 e2m1x2 e2m1x4 e3m2 e2m3 ue8m0 ue8m0x2 v2 "
    "v4 v8 rn rz rm rp rna rs rni rzi rmi rpi ftz sat satfinite relu approx full noftz scaled xorsign abs nan num "
    "NaN eq ne lt le gt ge equ neu ltu leu gtu geu lo ls hi hs and or xor not popc add sub inc dec min max exch cas "
    "wide cc wrap clamp shiftamt l r left right b4e f4e rc8 ecl ecr rc16 finite infinite number notanumber normal "
    "subnormal sync aligned all any uni ballot none idx up down bfly red arrive wait warp cluster cta gpu sys global "
    "shared gl shared::cta shared::cluster local param const generic to tensor nc volatile relaxed acquire release "
    "acq_rel sc weak ca cg cs cv lu wb wt noinc L1::no_allocate L1::evict_first L1::evict_normal L1::evict_unchanged "
    "L1::evict_last L2::64B L2::128B L2::256B L2::evict_first L2::evict_normal async bulk commit_group wait_group "
    "wait_all read mbarrier mbarrier::complete_tx::bytes mbarrier::arrive::one init inval expect_tx complete_tx "
    "arrive_drop reduce pack pending_count test_wait try_wait parity proxy alias mbarrier_init async::generic 1d 2d "
    "3d 4d 5d tile im2col tile::gather4 tile::scatter4 tensormap multicast::cluster mma_async fence m8n8 m8n8k4 "
    "m8n8k16 m8n8k32 m8n8k128 m16n8k4 m16n8k8 m16n8k16 m16n8k32 m16n8k64 m16n8k128 m16n8k256 m16n16k8 m16n16k16 "
    "m32n8k16 m8n32k16 m16n16 m16n8 row col trans x1 x2 x4 x8 x16 x32 x64 x128 a d load store mma sp "
    "sp::ordered_metadata kind::f16 kind::tf32 kind::f8f6f4 kind::i8 kind::mxf8f6f4 kind::mxf4 kind::mxf4nvf4 "
    "block_scale scale_vec::1X scale_vec::2X scale_vec::4X cta_group::1 cta_group::2 alloc dealloc "
    "relinquish_alloc_permit ld st cp shift commit before_thread_sync after_thread_sync 16x64b 16x128b 16x256b "
    "32x32b 16x32bx2 128x256b 4x256b 128x128b 64x128b 32x128b warpx4 warpx2::02_13 pack::16b unpack::16b "
    "collector::a::fill collector::a::use collector::a::lastuse collector::a::discard fractional L2::cache_hint "
    "L2::evict_unchanged bulk_group wait::ld wait::st"
)
_KEEPS = "keeps lines in the L2 (in Triton: leave eviction_policy='evict_last' out)"
_WHY = {
    "trap": "ends all",
    "brkpt": "ends all",
    "nanosleep": "waits for its own sake",
    "L2::evict_last": _KEEPS,
    "discard": "changes what the L2 keeps",
    "applypriority": "changes what the L2 keeps",
    "prefetch": "changes what the L2 keeps",
}
_WGMMA_SHAPE = re.compile(r"m64n\d{1,3}k\d{1,3}")
#: Names that compilers give to registers. ptxas takes a declared `%clock` for the clock, so other names are none.
_REGISTER = re.compile(r"%(?:(?:p|rs|r|rd|rq|f|fd|h|hh|[a-d])\d*|SPL?|temp|[a-d](?:lo|hi))")
#: What a thread may ask about its place; neither a clock nor a counter nor a number of the launch.
_SPECIAL = _words(
    "%tid %ntid %ctaid %nctaid %laneid %lanemask_eq %lanemask_lt %lanemask_le %lanemask_gt %lanemask_ge %clusterid "
    "%nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank %is_explicit_cluster "
    "%dynamic_smem_size %total_smem_size"
)
#: Tables of the mathematical functions that every kernel may read.
TABLES = _words("__cudart_i2opi_f __cudart_i2opi_d __cudart_sin_cos_coeffs")
_BOUNDS = _words(".maxntid .reqntid .minnctapersm .maxnreg .noreturn .explicitcluster .reqnctapercluster")
_DECLARED = _words(".reg .local .shared .param")
_FRAGMENT_DECLARED = frozenset({".reg"})
_TOKEN = re.compile(
    r"""(?P<space>[ \t\n]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
    |(?P<text>"[^"\\\n]*")
    |(?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?\b|\d+(?:\.\d+)?U?(?![\w$]))
    |(?P<dotted>\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)
    |(?P<name>(?:[A-Za-z]|[_$%][A-Za-z0-9_$]|_(?![\w$]))[A-Za-z0-9_$]*)
    |(?P<sign>[{}()\[\]<>,;:=+\-!@|])""",
    re.VERBOSE,
)


class _Unreadable(Exception):
    """Raised where the text is none that this reader knows."""


@dataclass(frozen=True)
class _PtxToken:
    kind: str
    text: str
    line: int


@dataclass
class PtxFindings:
    """The findings of one text of PTX.

    Args:
        problems: What no candidate may have, each once.
        dead: Variables that last, and that no instruction names; their memory is never used.
        target: The architecture, `sm_90a`.
        has_tensor_memory: Whether it takes tensor memory, for which ptxas adds instructions of its own.
    """

    problems: list[str] = field(default_factory=list)
    dead: frozenset[str] = frozenset()
    target: str = ""
    has_tensor_memory: bool = False


def read_ptx(text: str) -> PtxFindings:
    """Read a module.

    Args:
        text: What the compiler made.
    """
    reader = _PtxReader()
    try:
        reader.tokens = list(_tokens(text))
        reader.read_module()
    except _Unreadable as error:
        reader.say(str(error))
    dead = frozenset(reader.lasting) - reader.named
    return PtxFindings(list(dict.fromkeys(reader.problems)), dead, reader.target, reader.has_tensor_memory)


def fragment_problems(text: str) -> list[str]:
    """The faults of a text of `asm`.

    Args:
        text: The instructions, with `%0` for an operand and `%%` for a percent sign.
    """
    reader = _PtxReader(declared=_FRAGMENT_DECLARED)
    try:
        if "$" in text:
            raise _Unreadable("`$` in assembly")
        written = re.sub(r"%(%|\d)", lambda found: "%" if found[1] == "%" else f"%r{found[1]}", text)
        reader.tokens = list(_tokens(f"{{{written}}}"))
        reader.read_block()
        reader.expect_end()
        reader.check_policies()
        outside = reader.named - reader.own
        if outside:
            raise _Unreadable(f"`{min(outside)}`, which the assembly does not define,")
    except _Unreadable as error:
        reader.say(str(error))
    return list(dict.fromkeys(reader.problems))


def _tokens(text: str) -> Iterator[_PtxToken]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _Unreadable(f"`{text[at : at + 20].splitlines()[0]}`, which is no PTX that is known (line {line}),")
        if found.lastgroup != "space":
            yield _PtxToken(str(found.lastgroup), found[0], line)
        line += found[0].count("\n")
        at = found.end()


class _PtxReader:
    """Goes through the tokens of one text once."""

    def __init__(self, declared: frozenset[str] = _DECLARED) -> None:
        self.tokens: list[_PtxToken] = []
        self.problems: list[str] = []
        self.lasting: dict[str, bool] = {}
        self.named: set[str] = set()
        self.own: set[str] = set()
        self.target, self.has_tensor_memory = "", False
        self._written: dict[str, set[str]] = {}
        self._policies: set[str] = set()
        self._declared, self._at = declared, 0
        self._functions: set[str] = set()
        self._called: dict[str, int] = {}

    def say(self, what: str) -> None:
        """Note a problem."""
        self.problems.append(what)

    def read_module(self) -> None:
        """Everything, then what only the whole can tell."""
        while self._at < len(self.tokens):
            self._read_directive()
        for name in sorted(self.lasting.keys() & self.named):
            if name not in TABLES or not self.lasting[name]:
                self.say(f"a variable in global memory, which would outlive a call (`{name}`)")
        self.check_policies()
        for name in sorted(self._called.keys() - self._functions):
            self.say(f"a call of what it does not define (`{name}`: printf, malloc, assert, or by an address)")

    def check_policies(self) -> None:
        """See that a hint of the L2 is one that was made here, and none that keeps lines."""
        for name in sorted(self._policies):
            if self._written.get(name) != {"createpolicy"}:
                self.say(f"a hint of the L2 in `{name}` that no createpolicy made")

    def _read_directive(self) -> None:
        word = self._next()
        if word.text == ".target":
            self.target = self._peek()
        if word.text in (".version", ".target", ".address_size", ".file", ".pragma"):
            while self._peek() not in (";", "") and not self._is_directive():
                self._next()
            self._take(";")
        elif word.text == ".section":
            self._read_debug_section()
        elif word.text in (".visible", ".weak", ".extern", ".entry", ".func", ".global", ".const", ".shared"):
            self._at -= 1
            self._read_definition()
        else:
            raise _Unreadable(f"`{word.text}`, which is no directive of a kernel (line {word.line}),")

    def _is_directive(self) -> bool:
        return self.tokens[self._at].kind == "dotted"

    def _read_debug_section(self) -> None:
        name = self._next()
        if not name.text.startswith(".debug_"):
            raise _Unreadable(f"the section `{name.text}`")
        self._expect("{")
        while self._peek() not in ("}", "{", ""):
            self._next()
        self._expect("}")

    def _read_definition(self) -> None:
        words = []
        while self._is_directive() and self._peek() not in (".align", ".entry", ".func", ".global", ".const"):
            words.append(self._next().text)
        kind = self._peek()
        if kind in (".entry", ".func"):
            self._next()
            self._read_function(is_extern=".extern" in words)
        else:
            if kind in (".global", ".const"):
                words.append(self._next().text)
            if not frozenset(words) <= {".visible", ".weak", ".extern", ".global", ".const", ".shared"}:
                raise _Unreadable(f"`{' '.join(words)}`, which is no variable of a kernel,")
            self._read_variable(lasts=".shared" not in words, is_extern=".extern" in words)

    def _read_variable(self, *, lasts: bool, is_extern: bool) -> None:
        while self._is_directive():
            alignment = self._next().text == ".align"
            if alignment:
                self._next()
        name = self._next()
        has_values = False
        while self._peek() not in (";", ""):
            token = self._next()
            has_values |= token.text == "="
            if has_values and token.kind == "name":
                self.named.add(token.text)
        self._expect(";")
        if lasts:
            self.lasting[name.text] = has_values
            if is_extern:
                self.named.add(name.text)

    def _read_function(self, *, is_extern: bool) -> None:
        self._skip_brackets()
        name = self._next().text
        self._skip_brackets()
        while self._peek() in _BOUNDS or self._peek() == "," or self._peek().isdecimal():
            self._next()
        if self._take(";"):
            if is_extern:
                self._called.setdefault(name, 0)
            return
        self._functions.add(name)
        self.read_block()

    def _skip_brackets(self) -> None:
        if self._take("("):
            while self._peek() not in (")", "(", ""):
                self._next()
            self._expect(")")

    def read_block(self) -> None:
        """Statements between braces."""
        self._expect("{")
        depth = 1
        while depth:
            if self._take("{"):
                depth += 1
            elif self._take("}"):
                depth -= 1
            else:
                self._read_statement()

    def _read_statement(self) -> None:
        token = self._next()
        if token.text == ".loc":
            self._read_location()
        elif token.text == ".pragma":
            self._next()
            self._expect(";")
        elif token.text in self._declared:
            self._read_names()
        elif token.kind == "dotted":
            what = "a variable in global memory, which would outlive a call" if token.text in (
                ".global", ".const") else "a directive that no kernel needs"  # fmt: skip
            raise _Unreadable(f"{what} (`{token.text}`)")
        elif token.kind == "name" and self._take(":"):
            self.own.add(token.text)
            if self._take(".branchtargets"):
                self._read_operands()
        elif token.text == ";":
            pass
        else:
            if token.text == "@":
                self._take("!")
                self._operand(self._next())
                token = self._next()
            self._read_instruction(token)

    def _read_location(self) -> None:
        for _ in range(3):
            self._next()
        while self._peek() == ",":
            self._next()
            if self._next().text == "function_name":
                self._next()
                if self._take("+"):
                    self._next()
            else:
                for _ in range(3):
                    self._next()

    def _read_names(self) -> None:
        while not self._take(";"):
            token = self._next()
            if token.kind == "name":
                if token.text.startswith("%") and not _REGISTER.fullmatch(token.text):
                    self.say(f"a register with the name `{token.text}`")
                self.own.add(token.text)
            elif token.kind not in ("dotted", "number") and token.text not in ("<", ">", ",", "[", "]"):
                raise _Unreadable(f"`{token.text}` in a declaration (line {token.line})")

    def _read_instruction(self, token: _PtxToken) -> None:
        if token.text not in _INSTRUCTIONS:
            self.say(f"the instruction `{token.text}`, which {_WHY.get(token.text, 'is none that a kernel needs')}")
        words = [token.text]
        while self._at < len(self.tokens) and self._is_directive():
            modifier = self._next().text[1:]
            words.append(modifier)
            if modifier not in _MODIFIERS and not (token.text == "wgmma" and _WGMMA_SHAPE.fullmatch(modifier)):
                why = _WHY.get(modifier, "is none that a kernel needs")
                self.say(f"`{'.'.join(words)}`, whose `.{modifier}` {why}")
        operands = self._read_operands()
        self.has_tensor_memory |= token.text == "tcgen05" and "alloc" in words
        is_cleared = token.text == "mov" and [one.text for one in operands[-2:]] in ([",", "0"], [",", "0x0"])
        for name in _destinations(operands):
            self._written.setdefault(name, set()).update(() if is_cleared else (token.text,))
        if "L2::cache_hint" in words and operands:
            self._policies.add(operands[-1].text)
        if token.text == "call":
            target = next((one for one in operands if one.kind == "name" and self._is_target(one, operands)), token)
            self._called[target.text] = target.line

    def _is_target(self, one: _PtxToken, operands: list[_PtxToken]) -> bool:
        """Whether an operand of a call stands outside of its lists of values."""
        before = operands[: operands.index(one)]
        return sum(t.text == "(" for t in before) == sum(t.text == ")" for t in before)

    def _read_operands(self) -> list[_PtxToken]:
        operands = []
        while not self._take(";"):
            token = self._next()
            if token.text in ("@", ":", "=") or token.kind == "text":
                raise _Unreadable(f"`{token.text}` in an instruction (line {token.line})")
            self._operand(token)
            operands.append(token)
        return operands

    def _operand(self, token: _PtxToken) -> None:
        if token.kind != "name":
            return
        if token.text.startswith("%"):
            if token.text not in _SPECIAL and not _REGISTER.fullmatch(token.text):
                self.say(f"the register `{token.text}`: a clock, a counter, or what else no kernel needs")
        elif token.text != "_":
            self.named.add(token.text)

    def _peek(self) -> str:
        return self.tokens[self._at].text if self._at < len(self.tokens) else ""

    def _next(self) -> _PtxToken:
        if self._at >= len(self.tokens):
            raise _Unreadable("PTX that ends before it is complete")
        self._at += 1
        return self.tokens[self._at - 1]

    def _take(self, text: str) -> bool:
        is_here = self._peek() == text
        self._at += is_here
        return is_here

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise _Unreadable(f"`{self._peek()}` where `{text}` should stand")

    def expect_end(self) -> None:
        """See that nothing follows."""
        if self._at != len(self.tokens):
            raise _Unreadable(f"`{self._peek()}` after its end")


def _destinations(operands: list[_PtxToken]) -> Iterator[str]:
    """The registers that an instruction may write: its first operand, or all of a vector in its place."""
    depth = 0
    for token in operands:
        depth += (token.text == "{") - (token.text == "}")
        if token.text == "," and not depth:
            return
        if token.kind == "name":
            yield token.text
