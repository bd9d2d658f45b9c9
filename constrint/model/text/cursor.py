"""Goes through the tokens of a text, and says what was expected where."""

from __future__ import annotations

from constrint.errors import ParseError
from constrint.model.text.lexer import Source, Token


class Cursor:
    """A place among tokens; inside brackets lines do not end."""

    def __init__(self, source: Source, words: list[Token]) -> None:
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
