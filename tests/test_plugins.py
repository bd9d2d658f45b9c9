"""Plug-ins of installed packages: one that fails is named in a warning, and costs no other."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from constrint import plugins
from constrint.answers.registry import EXPORTS, PAGES
from constrint.errors import ConstrintError
from constrint.hwmodels.vendors import interface, list_vendors
from constrint.kernels import registry as kernels
from constrint.tune.engine import registry as engines
from constrint.tune.search import registry as searches
from tests.cli.conftest import Call, run
from tests.hwmodels.test_third_vendor import ACME

__all__ = ["run"]
FAULTS = {
    "missing": "raise ImportError('no \\x1b[31mlibrary\\nFORGED')",
    "raises": "1 / 0",
    "leaves": "import sys; sys.exit('bye')",
    "odd": "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd",
    "prints": "print('printed at import'); raise RuntimeError('x' * 10_000)",
    "syntax": "def (",
    "other": "THEIRS = 7",
    "sizes": "from their_healthy import Scale\nclass Odd(Scale): sizes = ('rows',)\nTHEIRS = Odd()",
    "name": "from their_healthy import Scale\nclass Odd(Scale): name = 'x; import os'\nTHEIRS = Odd()",
}
HEALTHY = """
from constrint.answers.registry import Format, PageFormat
from constrint.select import BlockUse, KernelSpec, Param, Size

class Scale(KernelSpec):
    operation, summary, dtypes, sizes = "theirs", "y = a * x", ("fp32",), (Size("rows", 1024, "rows"),)
    def params(self, gpu, workload): return [Param("num_warps", (4, 8), "warps", "few", "w")]
    def rules(self, gpu, workload, v): return ()
    def use(self, gpu, workload, v): return BlockUse(v["num_warps"], 32, 0)

SPEC = Scale()
PAGE = PageFormat("rows", lambda shown: ["a page"])
EXPORT = Format("theirs", "rows", lambda export: "an export")
def make(*anything): return "made"
"""
GROUPS = {
    "constrint.kernels": "SPEC",
    "constrint.formats": "PAGE",
    "constrint.exports": "EXPORT",
    "constrint.engines": "make",
    "constrint.searches": "make",
}


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Packages with a broken plug-in of every kind, and one healthy one; the names of the plug-ins that were loaded."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {**FAULTS, "healthy": HEALTHY}.items():
        (tmp_path / f"their_{name}.py").write_text(text)
    names: list[str] = []

    def entry_points(group: str) -> list[EntryPoint]:
        broken = [EntryPoint(f"broken-{name}", f"their_{name}:THEIRS", group) for name in FAULTS]
        healthy = [EntryPoint("theirs", f"their_healthy:{GROUPS[group]}", group)] if group in GROUPS else []
        return [*broken, *healthy]

    load = EntryPoint.load

    def noted(point: EntryPoint) -> Any:
        names.append(point.name)
        return load(point)

    monkeypatch.setattr(EntryPoint, "load", noted)
    monkeypatch.setattr(metadata, "entry_points", entry_points)
    for registry in (kernels, engines, searches):
        monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(kernels, "_unread", None)
    interface._load.cache_clear()
    yield names
    interface._load.cache_clear()


def check(caught: list[warnings.WarningMessage], group: str) -> None:
    """Each broken plug-in has one warning, which is one printable line of bounded length."""
    texts = [str(one.message) for one in caught if issubclass(one.category, plugins.PluginWarning)]
    assert len(texts) == len(FAULTS)
    for name, text in zip(FAULTS, texts, strict=True):
        assert text.startswith(f"the plug-in 'broken-{name}' ({group} their_{name}:THEIRS) is left out: ")
        assert text.isprintable()
        assert len(text) < 400


def test_a_broken_kernel_costs_no_other_kernel(loaded: list[str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert kernels.load_kernel("gemm")
        assert kernels.load_kernel("theirs").name == "theirs"
        assert loaded == ["theirs"], "an entry point with the operation's name is loaded alone"
        assert "theirs" in kernels.list_kernels()
        assert "theirs" in kernels.list_kernels()
    check(caught, "constrint.kernels")
    assert len(loaded) == 1 + len(FAULTS)


def test_a_broken_vendor_costs_no_other_vendor() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [vendor.name for vendor in list_vendors()][:2] == ["nvidia", "amd"]
    check(caught, "constrint.vendors")


def test_engines_searches_and_formats_are_listed_without_being_loaded(loaded: list[str]) -> None:
    listed: Any
    for listed in (engines.list_engines(), searches.list_searches(), PAGES.names(), EXPORTS.names()):
        assert {"theirs", "broken-raises"} <= {*listed}
    assert not loaded
    made: object = engines.open_fleet("theirs", engines.DeviceRequest())
    assert made == "made"
    assert callable(searches.find_search("theirs"))
    assert PAGES.named("theirs").summary == "rows"
    assert EXPORTS.named("theirs").summary == "rows"
    assert loaded == ["theirs"] * 4


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_one_that_is_asked_for_by_name_is_one_line(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"broken-{fault}"
    for ask in (lambda: engines.open_fleet(name, engines.DeviceRequest()), lambda: searches.find_search(name),
                lambda: PAGES.named(name), lambda: EXPORTS.named(name)):  # fmt: skip
        with pytest.raises(ConstrintError, match=name) as caught:
            ask()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 450
    assert not capsys.readouterr().out


def test_the_command_line_says_so_in_lines_and_goes_on(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        # As outside of pytest, which keeps warnings for itself.
        monkeypatch.setattr(warnings, "showwarning", lambda *told: sys.stderr.write(warnings.formatwarning(*told[:4])))
        code, out, err = run("kernels", "--format", "csv")
        told = err.splitlines()
        assert (code, run("kernels", "gemm")[2], run("solve", "--gpu", "h200")[2]) == (0, "", "")
    assert "theirs,theirs" in out
    assert "printed at import" in told
    told.remove("printed at import")
    assert len(told) == len(FAULTS)
    assert all(line.startswith("warning: the plug-in 'broken-") for line in told)


def test_a_package_with_a_broken_list_of_entry_points_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Package:
        def __init__(self, name: str, points: Any) -> None:
            self.metadata, self._points = {"Name": name}, points

        @property
        def entry_points(self) -> Any:
            if self._points is None:
                raise TypeError("__new__() missing 1 required positional argument: 'value'")
            return metadata.EntryPoints(self._points)

    def broken(group: str) -> Any:
        raise TypeError

    point = EntryPoint("theirs", "their_healthy:make", "constrint.engines")
    monkeypatch.setattr(metadata, "entry_points", broken)
    monkeypatch.setattr(metadata, "distributions", lambda: [Package("bad", None), Package("good", [point])])
    with pytest.warns(plugins.PluginWarning, match="the package 'bad' has a broken list of entry points"):
        assert plugins.offered("constrint.engines") == [point]


def test_a_vendor_that_breaks_a_rule_is_left_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking: Any = type("Lacking", (type(ACME),), {"name": "lacking"})
    points = [EntryPoint("lacking", "x:y", "constrint.vendors")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lacking())
    with pytest.warns(plugins.PluginWarning, match=r"left out: the SM struct of the vendor 'lacking' needs"):
        assert "lacking" not in [vendor.name for vendor in list_vendors()]
