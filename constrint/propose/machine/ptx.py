"""Reads PTX as a whole: every directive, instruction, modifier and register has to be on a list.

The text is lexed and parsed, so one line may hold many statements, a predicate or a block hides nothing, and what this
reader does not understand is refused. Text that a source states in `asm` is read by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from constrint.propose.machine.ptx_lists import (
    BOUNDS,
    DECLARED,
    FRAGMENT_DECLARED,
    INSTRUCTIONS,
    MODIFIERS,
    REGISTER,
    SPECIAL,
    TABLES,
    WGMMA_SHAPE,
    WHY,
)

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
    reader = _PtxReader(declared=FRAGMENT_DECLARED)
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

    def __init__(self, declared: frozenset[str] = DECLARED) -> None:
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
        while self._peek() in BOUNDS or self._peek() == "," or self._peek().isdecimal():
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
                if token.text.startswith("%") and not REGISTER.fullmatch(token.text):
                    self.say(f"a register with the name `{token.text}`")
                self.own.add(token.text)
            elif token.kind not in ("dotted", "number") and token.text not in ("<", ">", ",", "[", "]"):
                raise _Unreadable(f"`{token.text}` in a declaration (line {token.line})")

    def _read_instruction(self, token: _PtxToken) -> None:
        if token.text not in INSTRUCTIONS:
            self.say(f"the instruction `{token.text}`, which {WHY.get(token.text, 'is none that a kernel needs')}")
        words = [token.text]
        while self._at < len(self.tokens) and self._is_directive():
            modifier = self._next().text[1:]
            words.append(modifier)
            if modifier not in MODIFIERS and not (token.text == "wgmma" and WGMMA_SHAPE.fullmatch(modifier)):
                why = WHY.get(modifier, "is none that a kernel needs")
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
            if token.text not in SPECIAL and not REGISTER.fullmatch(token.text):
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
