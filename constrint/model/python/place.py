"""The text of a restriction: how it is parsed, within bounds, and where in it something stands."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final

from constrint.errors import ParseError

MAX_NESTING: Final = 80
TOO_DEEP: Final = f"nested more than {MAX_NESTING} levels deep; split the restriction up"


class Place:
    """A restriction's text, to say where something stands."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source

    def error(self, message: str, line: int, column: int) -> ParseError:
        """An error at a line and a column."""
        lines = self.text.split("\n")
        shown = "".join(ch if ch.isprintable() else " " for ch in lines[line - 1]) if line <= len(lines) else ""
        return ParseError(message, text="\n" * (line - 1) + shown, line=line, column=column, source=self.source)

    def at(self, node: ast.AST, message: str) -> ParseError:
        """An error at a node; ast counts columns in bytes of UTF-8."""
        line = getattr(node, "lineno", 1)
        lines = self.text.split("\n")
        prefix = lines[line - 1].encode()[: getattr(node, "col_offset", 0)] if line <= len(lines) else b""
        return self.error(message, line, len(prefix.decode(errors="replace")) + 1)

    def parsed(self) -> ast.expr:
        """The tree of the text, which is a single expression.

        Raises:
            ParseError: Where it is none, or is nested too deep.
        """
        self._check_nesting()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            lines = self.text.split("\n")
            # Python gives no position for what is missing at the end.
            at = (error.lineno, error.offset) if error.lineno and error.offset else (len(lines), len(lines[-1]) + 1)
            raise self.error(f"not a Python expression: {error.msg}", *at) from None
        except ValueError:
            raise self.error("not a Python expression: it holds characters that Python cannot read", 1, 1) from None
        except (RecursionError, MemoryError):
            message = "too long or nested too deep for Python's parser; split the restriction up"
            raise self.error(message, 1, 1) from None

    def _check_nesting(self) -> None:
        """Counts brackets and prefix operators first: Python's own parser may run out of stack."""
        if sum(map(self.text.count, ("(", "[", "{", "not", "-", "+", "~"))) <= MAX_NESTING:
            return
        depth = prefixes = 0
        for hit in re.finditer(r"\bnot\b|\S", self.text):
            token = hit.group()
            if token in "([{":
                depth += 1
            elif token in ")]}":
                depth -= 1
            prefixes = prefixes + 1 if token in ("not", "-", "+", "~") else 0
            if max(depth, prefixes) > MAX_NESTING:
                line = self.text.count("\n", 0, hit.start()) + 1
                column = hit.start() - self.text.rfind("\n", 0, hit.start())
                raise self.error(TOO_DEEP, line, column)
