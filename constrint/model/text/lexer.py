"""Tokens of the text language, a cursor over them, and how a file of text is read, in linear time and memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

from constrint.errors import LimitReachedError, ParseError, UsageError

MAX_TEXT: Final = 16_000_000
#: Memory of the tokens of one text, in bytes.
MAX_TOKEN_BYTES: Final = 1 << 28
MAX_DIGITS: Final = 3_900

# Of a token with its position and its place in the list; text adds its characters, which equal tokens share.
_TOKEN_BYTES: Final = 120
_TOKEN: Final = re.compile(
    r"(?P<space>[ \t\r\f\v\ufeff]+)"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<decimal>[0-9][0-9_]*(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)(?![0-9A-Za-z_]))"
    r"|(?P<number>[0-9][0-9_]*)"
    r"|(?P<name>`(?:[^`\\\n]|\\.)*`)"
    r"|(?P<dotted>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r'|(?P<text>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<sign>->|==|!=|<=|>=|\.\.|//|\*\*|[-+*/%^<>=()\[\]{},;:|])"
)
_BARE_QUOTE: Final = re.compile(r'(\\.)|"')
# Common spellings of other languages, and how this one writes the same.
_HINTS: Final = {
    "&": "write `and`",
    "!": "write `not`, or `!=` for unequal",
    "~": "write `not`",
    ".": "a fraction is written 0.5, a range a..b",
    "`": "the name is not closed; end it with a backquote on the same line",
    "'": 'put text in double quotes: because "..."',
    '"': "the text is not closed; end it with a double quote on the same line",
}


def read_text(path: Path, what: str, most: int) -> str:
    """Read a UTF-8 text file, at most `most` + 1 characters of it.

    Args:
        path: The file.
        what: Name of the file in error messages: "the problem file".
        most: Characters.

    Raises:
        UsageError: When it cannot be read, or is no text.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(most + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {what} {path}: {reason}.") from None


class Token(NamedTuple):
    """One word of the text."""

    #: number, decimal, dotted (`gpu.sm_count`), word, name (a word between backquotes), text, sign, newline or end.
    kind: str
    value: str  #: The characters, or the decoded text.
    start: int  #: Position in the whole text.


class SourceText:
    """The text being read, with positions for errors."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name

    def position(self, start: int) -> tuple[int, int]:
        """Line and column, both from 1."""
        line = self.text.count("\n", 0, start) + 1
        return line, start - (self.text.rfind("\n", 0, start) + 1) + 1

    def error(self, message: str, start: int) -> ParseError:
        """Builds the error for what stands at a position."""
        line, column = self.position(start)
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", begin)
        shown = self.text[begin : end if end >= 0 else len(self.text)].replace("\t", " ")
        # Only this line is handed on, as line `line`: the rest may be megabytes.
        padded = "\n" * (line - 1) + "".join(ch if ch.isprintable() else "?" for ch in shown)
        return ParseError(message, text=padded, line=line, column=column, source=self.name)


def tokens(source: SourceText) -> list[Token]:
    """Splits the text; comments and spaces are left out."""
    text = source.text
    if len(text) > MAX_TEXT:
        raise LimitReachedError(f"the text has {len(text)} characters; at most {MAX_TEXT} are read.")
    tokens_read: list[Token] = []
    at, match = 0, _TOKEN.match
    values: dict[str, str] = {}
    num_bytes = 0
    while at < len(text):
        hit = match(text, at)
        if hit is None:
            char = text[at]
            hint = f"; {_HINTS[char]}" if char in _HINTS else ""
            raise source.error(f"unexpected character {char!r}{hint}", at)
        kind = hit.lastgroup or ""
        if kind not in ("space", "comment"):
            value = hit.group()
            if kind == "text":
                value = _decoded(value, source, at)
            elif kind == "name":
                value = _decoded('"' + _BARE_QUOTE.sub(_escaped, value[1:-1]) + '"', source, at)
                if not value:
                    raise source.error("a name has at least one character", at)
            elif kind in ("number", "decimal"):
                value = _digits(value, source, at)
            num_bytes += _TOKEN_BYTES + (0 if value in values else 2 * len(value) + 150)
            tokens_read.append(Token(kind, values.setdefault(value, value), at))
            if num_bytes > MAX_TOKEN_BYTES:
                limit = f"{MAX_TOKEN_BYTES >> 20} MiB of memory"
                raise source.error(f"the text's words and signs take more than {limit}; split it up", at)
        at = hit.end()
    tokens_read.append(Token("end", "", len(text)))
    return tokens_read


def _digits(value: str, source: SourceText, start: int) -> str:
    if len(value) > MAX_DIGITS:
        raise source.error(f"a number of {len(value)} digits; at most {MAX_DIGITS} are read", start)
    if value.endswith("_") or "__" in value:
        raise source.error("single underscores may stand between digits (1_000), nowhere else", start)
    return value.replace("_", "")


def _escaped(hit: re.Match[str]) -> str:
    """A double quote inside a name needs no escape: only the backquote ends the name."""
    return hit.group(1) or '\\"'


def _decoded(value: str, source: SourceText, start: int) -> str:
    try:
        return str(json.loads(value, strict=False))
    except ValueError:
        raise source.error('an escape in this text is not known; use \\" \\\\ \\n \\t or \\uXXXX', start) from None


class Cursor:
    """A place among tokens; inside brackets lines do not end."""

    def __init__(self, source: SourceText, words: list[Token]) -> None:
        self.source, self.tokens = source, words
        self.at = 0
        self.brackets = 0

    @property
    def token(self) -> Token:
        """The next token; inside brackets, lines do not end."""
        if self.brackets:
            while self.tokens[self.at].kind == "newline":
                self.at += 1
        return self.tokens[self.at]

    def next(self) -> Token:
        """Takes the next token."""
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def skip_lines(self) -> None:
        """Skips line ends: after an operator a statement goes on."""
        while self.tokens[self.at].kind == "newline":
            self.at += 1

    def accept(self, value: str) -> bool:
        """Takes a sign or a word if it comes next."""
        token = self.token
        if token.value == value and token.kind in ("sign", "word"):
            self.at += 1
            return True
        return False

    def expect(self, value: str, why: str) -> Token:
        """Takes a sign or a word, or says what is missing."""
        token = self.token
        if not self.accept(value):
            raise self.error(f"expected `{value}` {why}, found {self.describe(token)}", token)
        return token

    def describe(self, token: Token) -> str:
        """Names a token in a message."""
        if token.kind == "end":
            return "the end of the text"
        return "the end of the line" if token.kind == "newline" else f"`{token.value[:40]}`"

    def error(self, message: str, token: Token) -> ParseError:
        """Builds an error at a token."""
        return self.source.error(message, token.start)
