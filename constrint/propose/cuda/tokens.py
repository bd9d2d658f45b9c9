"""Tokens of a text in CUDA C++, by a part of the language in which no two readers can differ.

The compiler's phases of translation (trigraphs, splices, raw strings, universal names, digraphs, white space that looks
like none) exist for old keyboards and generated text. A text that uses one of them is refused, so that what remains is
lexed here as the compiler lexes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from constrint.errors import ConstrintError

_TOKEN = re.compile(
    r"""(?P<newline>\n)
    |(?P<space>[ \t]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
    |(?P<text>"(?:[^"\\\n]|\\[nt])*"(?![\w"']))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*(?!["'\w]))
    |(?P<number>(?:0[xX][0-9a-fA-F]+[uUlL]*|0[bB][01]+[uUlL]*
        |(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[fFlL]|[uUlL]+)?)(?![\w.'"]))
    |(?P<odd>%:|<%|%>|<:|:>)
    |(?P<sign>::|->\*?|\+\+|--|<<=?|>>=?|<=|>=|==|!=|&&|\|\||\.\.\.|\#\#?|[-+*/%&|^]=|[-+*/%&|^~!=<>?:;,.(){}\[\]])""",
    re.VERBOSE,
)


class UnreadableText(ConstrintError):
    """Raised where a text leaves the part of the language that is read."""


@dataclass(frozen=True)
class CudaToken:
    """A token.

    Args:
        kind: `name`, `number`, `text` or `sign`.
        text: Its characters.
        line: Its line.
        directive: The number of the directive of the preprocessor that it is in; 0 outside.
        is_joined: Whether it follows the token before it without white space.
    """

    kind: str
    text: str
    line: int
    directive: int
    is_joined: bool


def lex(source: str) -> Iterator[CudaToken]:
    """The tokens of a text, in their order.

    Raises:
        UnreadableText: For what two compilers may read in two ways, or not at all.
    """
    _check_characters(source)
    at, line, directive, count = 0, 1, 0, 0
    is_first, is_joined = True, False
    while at < len(source):
        found = _TOKEN.match(source, at)
        kind = "" if found is None else str(found.lastgroup)
        if found is None or kind == "odd":
            raise UnreadableText(f"line {line}: {_reason(source[at : at + 24])}")
        if kind == "newline":
            directive, is_first = 0, True
        elif kind != "space":
            if found[0] == "#" and is_first:
                count += 1
                directive = count
            yield CudaToken(kind, found[0], line, directive, is_joined)
            is_first = False
        is_joined = kind not in ("space", "newline")
        line += found[0].count("\n")
        at = found.end()


def _check_characters(source: str) -> None:
    """See that every reader sees the same lines."""
    for number, line in enumerate(source.split("\n"), 1):
        odd = next((one for one in line if not (" " <= one <= "~" or one == "\t")), "")
        if odd:
            raise UnreadableText(f"line {number} has the character {odd!a}; write it in printable ASCII.")
        if re.search(r"\\[ \t]*$", line):
            raise UnreadableText(f"line {number} ends with a backslash; write it in one line.")
        if re.search(r"\?\?[=/'()!<>-]", line):
            raise UnreadableText(f"line {number}: `??` begins a trigraph; write the character itself.")


def _reason(rest: str) -> str:
    shown = rest.split("\n")[0]
    for pattern, why in (
        (r"\w+[\"']", "a text with a prefix, or a raw one, is not read; write a plain text"),
        (r"\"", "a text holds no backslash but \\n and \\t, ends in its line, and has nothing joined to it"),
        (r"'", "a kernel needs no character in quotes; write its number"),
        (r"\\", "a backslash stands in no kernel"),
        (r"/\*", "the comment does not end"),
        (r"\d|\.\d", "no number that is read; write it without separators and suffixes of your own"),
        (r"%:|<%|%>|<:|:>", "a digraph is not read; write the character itself, with blanks between < and :"),
    ):
        if re.match(pattern, rest):
            return f"`{shown}`: {why}."
    return f"`{shown}` is no token that is read."
