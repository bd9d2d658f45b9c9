"""CUDA C++ as a compiler reads it: tokens without comments and white space, headers by their content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

#: Raw strings, strings and characters come before comments, so that what looks like one inside them is text.
_TOKEN = re.compile(
    r"""(?P<raw>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<number>\.?[0-9](?:[eEpP][+-]|'(?=\w)|[\w.])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<line>\n)
    |(?P<space>[^\S\n]+)
    |(?P<mark_of>\.\.\.|<<=|>>=|->\*|\#\#|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""",
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r'# include "([^"\n]+)"')
_MACRO = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_DEFINED = re.compile(r"# define (\w+)")


def is_cuda(path: Path) -> bool:
    """Whether a file is CUDA C++."""
    return path.suffix in (".cu", ".cuh")


def normal_texts(files: Iterable[Path]) -> list[str]:
    """Normalised texts of sources, sorted; in each the name of an included header is replaced by its content's hash.

    Headers that are not among the files belong to the toolkit and keep their names.
    """
    paths = [path for path in files if path.is_file()]
    own = {path: _normal(path, path.stat().st_mtime_ns) for path in paths}
    return sorted(_with_headers(path, own, ()) for path in paths)


@lru_cache(maxsize=256)
def _normal(path: Path, _changed: int) -> str:
    return normal_text(path.read_text(encoding="utf-8", errors="replace"))


def _with_headers(path: Path, own: dict[Path, str], around: tuple[Path, ...]) -> str:
    def hashed(match: re.Match[str]) -> str:
        name = match.group(1).rpartition("/")[2]
        headers = sorted((other for other in own if other.name == name), key=lambda p: (p.parent != path.parent, p))
        if not headers or headers[0] in (*around, path):
            return "" if headers else match.group()
        text = _with_headers(headers[0], own, (*around, path))
        return f"# include {hashlib.sha256(text.encode()).hexdigest()}"

    return _INCLUDE.sub(hashed, own[path])


def normal_text(text: str) -> str:
    """Source text as tokens with one space between them; each directive of the preprocessor is a line of its own."""
    parts: list[str] = []
    in_directive, starts_line = False, True
    spliced = text.replace("\r\n", "\n").replace("\\\n", " ")
    for match in _TOKEN.finditer(spliced):
        kind, token = match.lastgroup, match.group()
        if kind == "comment" or kind == "space":
            continue
        if kind == "line":
            parts += ["\n"] if in_directive else []
            in_directive, starts_line = False, True
            continue
        if token == "#" and starts_line:
            parts += ["\n"] if parts and parts[-1] != "\n" else []
            in_directive = True
        starts_line = False
        # `#define F(x)` has an argument, `#define F (x)` has none.
        glued = in_directive and token == "(" and parts[-2:-1] == ["define"] and spliced[match.start() - 1] != " "
        parts.append("( arguments" if glued else token)
    return " ".join(parts).replace(" \n ", "\n").strip()


def outside_macros(texts: Sequence[str]) -> list[str]:
    """Names in capitals that the sources use and do not define: macros that the compiler defines."""
    used = {name for text in texts for name in _MACRO.findall(text)}
    return sorted(used - {name for text in texts for name in _DEFINED.findall(text)})
