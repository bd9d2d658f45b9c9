"""Hooks of MkDocs: add the generated pages, and make links work without a network.

A page is written for GitHub and for the site alike, so it links to files beyond `docs/`. The site has no address of a
repository to send a reader to. So each text file that is linked becomes a page of its own, below `repository/`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from constrint.cli.docs import MARKS
from docs.hooks import api, command_line, gallery, parameters

ROOT = Path(__file__).resolve().parents[2]
#: A link of Markdown with its label, its target and the part of the page.
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCES = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)
#: Languages of files that are shown verbatim, by suffix; Markdown becomes an ordinary page.
SHOWN = {".py": "python", ".cu": "cpp", ".constrint": "text", ".yaml": "yaml"}


#: References that a browser loads by itself from another site.
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*\bhref=[\"']?(?:https?:)?//"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages of the Python reference where the navigation says `reference/api`, others where it says `guides/*`."""
    named = set(re.findall(r"'([\w/]+\.md)'", str(config.nav)))
    pages = {path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")}
    config.nav = _filled(config.nav, sorted(pages - named))
    return config


def on_post_build(config: MkDocsConfig) -> None:
    """Raise for a site that loads anything from a network."""
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        found = LOADED.search(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path} loads from a network: {found[0]}. Take it away, or ship it with the site.")


def _filled(nav: Any, others: list[str]) -> Any:
    """The navigation with its pages; `guides/*` stands for the unnamed pages of the folder."""
    if isinstance(nav, list):
        return [page for entry in nav for page in _entries(entry, others)]
    if isinstance(nav, dict):
        return {title: _filled(entry, others) for title, entry in nav.items()}
    return api.nav() if nav == "reference/api" else nav


def _entries(entry: Any, others: list[str]) -> list[Any]:
    if isinstance(entry, str) and entry.endswith("/*"):
        return [page for page in others if page.startswith(entry.removesuffix("*"))]
    return [_filled(entry, others)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference generated from the code, the gallery, and linked files outside `docs/`."""
    pages = (("gallery.md", gallery.page()), *gallery.reports())
    for path, text in (*api.pages(), *command_line.pages(), *parameters.pages(), *pages):
        files.append(File.generated(config, path, content=text))
    waiting = ["CHANGELOG.md", "CONTRIBUTING.md"]
    waiting += [path for file in files.documentation_pages() for path in _beyond(file.src_uri, file.content_string)]
    while waiting:
        path = waiting.pop()
        place = _page_of(path)
        if place in files.src_uris:
            continue
        text = _shown(path)
        files.append(File.generated(config, place, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
        waiting += _beyond(place, text)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links to files outside `docs/` to their pages; remove the tests' marks from fences."""
    markdown = MARKS.sub(r"\1", markdown)
    place = page.file.src_uri
    kept: list[str] = []

    def aside(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    def linked(match: re.Match[str]) -> str:
        label, target, part = match[1], match[2], match[3] or ""
        path = _outside(place, target)
        if path is None:
            within = _target(place, target) if place.startswith("repository/") else None
            return match[0] if within is None else f"[{label}]({_relative(within, place)}{part})"
        page_of = _page_of(path)
        return f"[{label}]({_relative(page_of, place)}{part})" if _has_page(path) else f"{label} (`{path}`)"

    text = LINK.sub(linked, FENCES.sub(aside, markdown))
    return re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)


def _target(place: str, target: str) -> str | None:
    """The page of `docs/` that a link from a file outside leads to; None where it leads elsewhere."""
    if ":" in target:
        return None
    full = posixpath.normpath(posixpath.join(_folder(place), target))
    return full.removeprefix("docs/") if full.startswith("docs/") else None


def _folder(place: str) -> str:
    """The repository folder that a page's links are relative to."""
    if place.startswith("repository/"):
        return posixpath.dirname(place.removeprefix("repository/"))
    return posixpath.join("docs", posixpath.dirname(place))


def _outside(place: str, target: str) -> str | None:
    """A link's target as a path from the repository's root, if it is outside `docs/`."""
    if ":" in target:
        return None
    path = posixpath.normpath(posixpath.join(_folder(place), target))
    return None if path.startswith("docs/") or not (ROOT / path).exists() else path


def _beyond(place: str, text: str) -> list[str]:
    """The linked files outside `docs/` that become pages."""
    paths = [_outside(place, match[2]) for match in LINK.finditer(FENCES.sub("", text))]
    return [path for path in paths if path is not None and _has_page(path)]


def _has_page(path: str) -> bool:
    return (ROOT / path).is_file() and Path(path).suffix in {".md", *SHOWN}


def _page_of(path: str) -> str:
    # MkDocs would make a README the page of its folder.
    return f"repository/{path if path.endswith('.md') else path + '.md'}".replace("README", "readme")


def _relative(target: str, place: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(place) or ".")


def _shown(path: str) -> str:
    """A file as the text of a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return text if path.endswith(".md") else f"# {path}\n\n```{SHOWN[Path(path).suffix]}\n{text}```\n"
