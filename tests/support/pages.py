"""The examples of our documents: what a fence says, and what stands in it.

A fence `sh` holds commands, one a line. A fence `python` goes on from those before it on the page. A fence with a title
is a file of that name. A fence `text` after one of them is what it prints. What cannot run in a test says why in the
first line of its fence: {.norun reason="needs a GPU"}.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Documents whose examples are run.
PAGES = sorted({*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"})
_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", flags=re.MULTILINE | re.DOTALL)
#: What an example needs that is not there in a test; a reason begins with one of these.
REASONS = ("needs ", "takes ", "changes ", "is a form")


@dataclass(frozen=True)
class Fence:
    """One example.

    Args:
        page: Where it stands.
        line: The number of its first line in the page.
        language: `sh`, `python`, `text`, ...; may be empty.
        title: The name of the file that it is; empty for what is run.
        reason: Why it is not run; empty if it is.
        text: What stands in it.
    """

    page: Path
    line: int
    language: str
    title: str
    reason: str
    text: str

    @property
    def place(self) -> str:
        """The page and the line, as an editor takes them."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command; a line that ends with a backslash goes on, and a comment is no command."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def fences_of(page: Path) -> Iterator[Fence]:
    """The examples of a page in order."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        info = match[2].strip()
        title, reason = re.search(r'title="([^"]*)"', info), re.search(r'\{\.norun reason="([^"]*)"\}$', info)
        yield Fence(
            page,
            text[: match.start()].count("\n") + 2,
            re.split(r"[\s{]", info)[0],
            title[1] if title else "",
            reason[1] if reason else "",
            match[3].replace("\n" + match[1], "\n").removeprefix(match[1]),
        )


def is_shown(line: str, printed: str) -> bool:
    """Whether a line of a document was printed; blanks count as one, and `...` stands for anything."""
    parts = [re.escape(" ".join(part.split())) for part in line.split("...")]
    found = re.compile(r".*".join(parts))
    return any(found.search(" ".join(other.split())) for other in printed.splitlines())
