"""Hide a key in the text of an endpoint, in every encoding that a later reader might undo.

`hidden` is the only way by which text leaves `client.py`, and it gets the text whole: what is cut or decoded later is
cut or decoded without the key. It decodes the text again and again, as JSON does and as people do, looks for the key in
every stage, and replaces the characters that it came from. Found are

- escapes `\\u0073`, `\\u{73}`, `\\U00000073`, `\\x73`, `\\163`, `\\/`, of JSON inside strings of JSON, to any depth;
- percent-encoding and HTML's references, to any depth; quoted-printable text; base64 and hexadecimal digits of the key
  in UTF-8 and UTF-16;
- the key with other case, with spaces, line breaks, control characters, combining and invisible characters inside, in
  invisible tags, and in letters that look alike by Unicode's compatibility forms.

Parts of ten characters are found, too. Not found are shorter ones, and ciphers such as ROT13.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.entities import html5
from typing import Final

HIDDEN: Final = "[key]"
#: Shorter keys are not hidden: they would match in every text.
LEAST_KEY: Final = 8
#: A part of the key with as many characters is hidden too, as where a reply was cut inside it; and half of that.
LEAST_PART, BLOCK = 10, 5
#: Most stages of decoding. A text that is encoded more often is not taken.
MOST_STAGES: Final = 8
#: One escape of a string of JSON.
_JSON: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\\/\"bfnrt]))")
_PLAIN: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
#: One character as languages, URLs and HTML escape it. Of repeated escapes of the escape itself one match is made.
_LIBERAL: Final = re.compile(
    r"(?<!\\)\\+(?:u([0-9a-fA-F]{4})|u\{0*([0-9a-fA-F]{1,6})\}|U00([0-9a-fA-F]{6})|x([0-9a-fA-F]{2})|([0-3][0-7]{2}))"
    r"|(?:%(?:25)*|=)([0-9a-fA-F]{2})|&(?:amp;)*(?:#[xX]0*([0-9a-fA-F]{1,6});?|#0*([0-9]{1,7});?|([A-Za-z]{2,24};))"
)
#: The base of the digits of each group of `_LIBERAL`; the last group is a name.
_BASES: Final = (16, 16, 16, 16, 8, 16, 16, 10)
#: Characters between those of a key that hide nothing: spaces, control characters, invisible ones, and backslashes.
_BETWEEN: Final = re.compile(
    r"[\s\\\x00-\x1f\x7f-\xa0\xad\u0300-\u036f\u115f-\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0]+"
)


class EncodedTooOftenError(Exception):
    """Raised for a text that is encoded more often than `MOST_STAGES`."""


@dataclass(frozen=True)
class _Stage:
    """A text after some decoding, with the place in the source where each character begins and ends."""

    text: str
    begins: list[int]
    ends: list[int]

    @staticmethod
    def of(text: str) -> _Stage:
        return _Stage(text, list(range(len(text))), list(range(1, len(text) + 1)))

    def replaced(self, pattern: re.Pattern[str], decoded: Callable[[re.Match[str]], str]) -> _Stage:
        """The text with every match decoded; this very object where there is none."""
        parts, begins, ends, at = [], [], [], 0
        for match in pattern.finditer(self.text):
            first, after = match.span()
            new = decoded(match)
            parts += [self.text[at:first], new]
            begins += [*self.begins[at:first], *[self.begins[first]] * len(new)]
            ends += [*self.ends[at:first], *[self.ends[after - 1]] * len(new)]
            at = after
        if not at:
            return self
        return _Stage("".join(parts) + self.text[at:], begins + self.begins[at:], ends + self.ends[at:])

    def folded(self) -> _Stage:
        """The letters alone, in lower case and in the form of those that they look like."""
        stage = self.replaced(_BETWEEN, lambda match: "")
        if stage.text.isascii():
            return _Stage(stage.text.lower(), stage.begins, stage.ends)
        return stage.replaced(_ODD, _plain_letter)


#: A character that folding may change; the two halves of a surrogate pair are one.
_ODD: Final = re.compile(r"[\ud800-\udbff][\udc00-\udfff]|[A-Z]|[^\x00-\x7f]")


def hidden(text: str, key: str) -> str:
    """The text with the key, and every encoding of it, replaced by `[key]`.

    Raises:
        EncodedTooOftenError: When the text is encoded too often to be looked through.
    """
    if len(key) < LEAST_KEY:
        return text
    found = sorted(_places(text, _forms(key)))
    parts, at = [], 0
    for begin, end in found:
        if begin >= at:
            parts += [text[at:begin], HIDDEN]
        at = max(at, end)
    return "".join(parts) + text[at:] if found else text


def _places(text: str, forms: list[str]) -> Iterator[tuple[int, int]]:
    """The places of the forms, and of long parts of them, in the text."""
    for stage in _stages(text):
        folded = stage.folded()
        for form in forms:
            for begin, end in _parts_of(form, folded.text):
                yield folded.begins[begin], folded.ends[end - 1]


def _parts_of(form: str, text: str) -> Iterator[tuple[int, int]]:
    """The places of at least `LEAST_PART` characters of a form: they contain a whole one of its blocks."""
    for first in range(0, len(form) - BLOCK + 1, BLOCK):
        at = text.find(form[first : first + BLOCK])
        while at >= 0:
            before = _num_alike(form[:first][::-1], text[max(0, at - first) : at][::-1])
            after = _num_alike(form[first:], text[at : at + len(form) - first])
            if before + after >= min(LEAST_PART, len(form)):
                yield at - before, at + after
            at = text.find(form[first : first + BLOCK], at + 1)


def _num_alike(one: str, other: str) -> int:
    """Number of characters with which both begin."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _stages(text: str) -> Iterator[_Stage]:
    """The text decoded as JSON not at all, once, twice and so on; each of them decoded in every other way."""
    for exact in _decodings(_Stage.of(text), _JSON, _of_json):
        yield from _decodings(exact, _LIBERAL, _of_escape)


def _decodings(stage: _Stage, pattern: re.Pattern[str], decoded: Callable[[re.Match[str]], str]) -> Iterator[_Stage]:
    for _ in range(MOST_STAGES):
        yield stage
        after = stage.replaced(pattern, decoded)
        if after.text == stage.text:
            return
        stage = after
    raise EncodedTooOftenError


def _of_json(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _PLAIN.get(match[2], match[2])


def _of_escape(match: re.Match[str]) -> str:
    digits = match[match.lastindex or 0]
    if match.lastindex == len(_BASES) + 1:
        return html5.get(digits, match[0])
    number = int(digits, _BASES[(match.lastindex or 1) - 1])
    return chr(number) if number < 0x110000 else ""


def _plain_letter(match: re.Match[str]) -> str:
    whole = match[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "\U000e0020" <= whole <= "\U000e007e":  # invisible tags, one for each letter of ASCII
        whole = chr(ord(whole) - 0xE0000)
    return unicodedata.normalize("NFKC", whole).casefold()


def _forms(key: str) -> list[str]:
    """The key, and its encodings as digits, as they stand in a folded text."""
    forms = [key]
    for raw in (key.encode(), key.encode("utf-16-le")):
        forms.append(raw.hex())
        for skipped in range(3):
            # Bytes before and after the key share its first and last digits.
            digits = base64.b64encode(bytes(skipped) + raw).decode()
            inner = digits[-(-skipped * 8 // 6) : (skipped + len(raw)) * 8 // 6]
            forms += [inner, inner.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(_Stage.of(form).folded().text for form in forms))
