"""Builds the compiled core when constrint is installed or packed, and the README that a package index shows.

Without a C++ compiler the core is left out.

The extension uses the stable interface of CPython 3.10, so one wheel serves every later version. It is compiled in
place, so that an editable install finds it too.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.tags import sys_tags

FOLDER = Path("constrint/core")
#: Environment variable that leaves the core out: the wheel is then for every platform.
PURE = "CONSTRINT_PURE"

#: A fence of code; a picture of this repository, in a link or not; a link to a file of this repository.
_FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"\[?!\[[^\]]*\]\((?!https?:)[^)]*\)(?:\]\([^)]*\))?")
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#]*)[^)]*\)")


class IndexReadmeHook(MetadataHookInterface):
    """States the README of a package index, where links to files of this repository lead nowhere."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the README."""
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(Path(self.root))}


def index_readme(root: Path) -> str:
    """The README with the command that prints a page in place of a link to it, and without pictures.

    Args:
        root: The folder of the project.
    """
    stems = [path.stem for path in (root / "docs").rglob("*.md")]

    def linked(link: re.Match[str]) -> str:
        text, place = link[1], Path(link[2])
        if place.parts[0] != "docs" or place.suffix != ".md":
            return text
        name = place.stem if stems.count(place.stem) == 1 else f"{place.parent.name}/{place.stem}"
        return f"{text} (`constrint docs {name}`)"

    parts = _FENCE.split((root / "README.md").read_text(encoding="utf-8"))
    return "".join(part if part.startswith("```") else _LINK.sub(linked, _PICTURE.sub("", part)) for part in parts)


class CoreBuildHook(BuildHookInterface[Any]):
    """Compiles `constrint.core._core`, and takes in the pages that `constrint docs` prints."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Takes in the pages and the compiled core; where it cannot be compiled the wheel is a pure one."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        if version == "standard":  # an editable install reads the pages where they are
            pages = root.glob("docs/**/*.md")
            build_data["force_include"] |= {str(page): f"constrint/{page.relative_to(root)}" for page in pages}
        if os.environ.get(PURE):
            return
        try:
            built = compile_core(root)
        except (OSError, ImportError) as error:
            self.app.display_warning(f"the compiled core was not built ({error}); constrint works without it, slower")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{next(sys_tags()).platform}"
        build_data["artifacts"].append(str(built.relative_to(root)))


def compile_core(root: Path) -> Path:
    """Compiles the sources and puts the extension beside its package."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    windows = os.name == "nt"
    flags = ["/O2", "/std:c++17"] if windows else ["-O3", "-g0", "-std=c++17", "-fwrapv", "-fvisibility=hidden"]
    extension = Extension(
        "constrint.core._core",
        sources=[str(FOLDER / "src" / "unity.cpp")],
        extra_compile_args=flags,
        extra_link_args=[] if sys.platform != "linux" else ["-Wl,--strip-all"],
        language="c++",
        py_limited_api=True,
        optional=True,
    )
    before = Path.cwd()
    os.chdir(root)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            command = build_ext(Distribution({"name": "constrint", "ext_modules": [extension]}))
            command.build_temp, command.build_lib, command.force = scratch, scratch, True
            command.ensure_finalized()
            command.run()
            made = Path(command.get_ext_fullpath("constrint.core._core"))
            if not made.exists():
                raise FileNotFoundError("the C++ compiler failed or there is none")
            target = root / FOLDER / made.name
            # A process may have the old one open: replace the file instead of writing into it.
            new = target.with_name(f"{target.name}.new")
            new.write_bytes(made.read_bytes())
            new.replace(target)
    finally:
        os.chdir(before)
    for other in (root / FOLDER).glob(f"_core*{sysconfig.get_config_var('SHLIB_SUFFIX') or '.so'}"):
        if other != target:
            other.unlink()
    return target


def main() -> None:
    """Compiles the core alone, for a checkout that is installed (`python hatch_build.py`)."""
    try:
        compile_core(Path(__file__).resolve().parent)
    except (OSError, ImportError) as error:
        print(f"note: the compiled core was not built ({error}); constrint works without it, slower", file=sys.stderr)


if __name__ == "__main__":
    main()
