"""The registry: built-in kernels, kernels of a program, of an installed package and of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels import registry
from constrint.kernels.registry import list_kernels, load_kernel, load_spec, register
from constrint.model import const
from constrint.plugins import PluginWarning
from constrint.select import BlockUse, KernelSpec, Param, Rule, Size, Workload, rank

SOURCE = '''
"""Two kernels of one operation, and what is none."""

from constrint.model import const
from constrint.select import BlockUse, KernelSpec, Param, Size


class Scale(KernelSpec):
    operation, summary, sizes, dtypes = "scale", "y = 2 x", (Size("n", 1024, "elements"),), ("fp32",)

    def __init__(self, name):
        self.name = name

    def params(self, gpu, workload):
        return (Param("num_warps", (4, 8), "warps per block", "powers of two"),)

    def rules(self, gpu, workload, v):
        return iter(())

    def use(self, gpu, workload, v):
        return BlockUse(v["num_warps"], const(32), const(0))


ONE = Scale("one")
BOTH = [Scale("one"), Scale("two")]
NUMBER = 7
'''


class Triad(KernelSpec):
    """A kernel that streams."""

    operation, summary = "triad", "y = a x + y"
    sizes, dtypes = (Size("n", 1 << 20, "elements"),), ("fp32", "fp16")

    def __init__(self, name: str = "") -> None:
        self.name = name

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return (Param("num_warps", (4, 8), "warps per block", "powers of two"),)

    def rules(self, gpu: GpuModel, workload: Workload, v: Any) -> Iterator[Rule]:
        yield from ()

    def use(self, gpu: GpuModel, workload: Workload, v: Any) -> BlockUse:
        return BlockUse(v["num_warps"], const(32), const(0))


@dataclasses.dataclass
class Entry:
    """An entry point of an installed package."""

    name: str
    offered: Any

    def load(self) -> Any:
        return self.offered


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it; no package of this machine is asked."""
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(registry, "_unread", [])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scale.py"
    path.write_text(SOURCE)
    return path


def test_built_in_operations_have_their_implementations() -> None:
    assert {"gemm", "grouped", "lstm", "gru-backward"} <= set(list_kernels())
    assert [s.full_name for s in load_kernel("gemm").implementations] == [
        "gemm.descriptor",
        "gemm.cuda",
        "gemm.cdna",
        "gemm.skinny",
        "gemm.fp32",
        "gemm.prepared",
        "gemm.library",
        "gemm.pointer",
    ]
    assert all(spec.operation == "lstm" for spec in load_kernel("lstm").implementations)
    assert load_spec("gemm.pointer").name == "pointer"


def test_a_registered_kernel_is_known_by_its_names() -> None:
    triad = Triad()
    register(triad)
    assert "triad" in list_kernels()
    assert load_spec("triad") is triad
    assert load_kernel("TRIAD").implementations == (triad,)
    best = rank(load_kernel("triad"), load_gpu("h200"), top=1).candidates[0]
    assert (best.kernel, dict(best.config)) == ("triad", {"num_warps": 4})


def test_a_kernel_of_the_same_full_name_replaces_the_other() -> None:
    first, second, other = Triad("a"), Triad("a"), Triad("b")
    register(first, other)
    register(second)
    assert load_kernel("triad").implementations == (other, second)
    assert load_spec("triad.a") is second
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'triad'. (Nearest|Known): triad\.[ab]"):
        load_spec("triad")


def test_a_registered_kernel_joins_or_replaces_built_in_ones() -> None:
    before = load_kernel("gemm").implementations
    pointer, added = load_spec("gemm.pointer"), type(load_spec("gemm.pointer"))()
    register(added)
    implementations = load_kernel("gemm").implementations
    assert added in implementations
    assert pointer not in implementations
    assert len(implementations) == len(before)


def test_packages_offer_one_kernel_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [Entry("one", Triad("a")), Entry("two", [Triad("b"), Triad("c")])]
    asked: list[str] = []

    def entry_points(group: str) -> list[Entry]:
        asked.append(group)
        return offered

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    monkeypatch.setattr(registry, "_unread", None)
    load_kernel("gemm")
    assert not asked, "a built-in name needs no packages"
    assert [spec.name for spec in load_kernel("triad").implementations] == ["a", "b", "c"]
    list_kernels()
    assert asked == [registry.ENTRY_POINTS]


def test_a_package_that_offers_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry("odd", 7)])
    monkeypatch.setattr(registry, "_unread", None)
    named = pytest.warns(PluginWarning, match=r"plug-in 'odd' is left out: entry point 'odd' is no KernelSpec but int")
    with pytest.raises(UnknownNameError, match="triad"), named:
        load_kernel("triad")


def test_a_file_offers_one_kernel_or_several(file: Path) -> None:
    assert [spec.full_name for spec in load_kernel(f"{file}:ONE").implementations] == ["scale.one"]
    both = load_kernel(f"{file}:BOTH")
    assert (both.name, [spec.full_name for spec in both.implementations]) == ("scale", ["scale.one", "scale.two"])
    # Once read, its kernels are known by name.
    assert load_spec("scale.two").summary == "y = 2 x"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("{folder}/missing.py:ONE", r"missing\.py:ONE: there is no such Python file"),
        ("{file}:TWO", r"scale\.py:TWO: the file has no 'TWO'\. Its kernels: "),
        ("{file}", r"a kernel of a file is named .*scale\.py:NAME"),
        ("{file}:NUMBER", r"scale\.py:NUMBER is no KernelSpec but int"),
        ("{file}:Scale", r"scale\.py:Scale: it is a class; write Scale = Scale\(\)"),
    ],
)
def test_a_file_that_offers_no_kernel_is_refused(file: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        load_kernel(name.format(file=file, folder=file.parent))


def test_a_name_without_an_attribute_is_no_file(file: Path) -> None:
    with pytest.raises(UsageError, match=r"a kernel of a file is named .*scale\.py:NAME"):
        load_kernel(str(file))
