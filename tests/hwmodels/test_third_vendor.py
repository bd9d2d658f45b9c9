"""A GPU vendor from outside: this module makes one up and registers it, and nothing in constrint knows its name."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from constrint.cli.app import main
from constrint.errors import HardwareModelError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import (
    DotUnit,
    GpuModel,
    RegisterFile,
    Sm,
    Terms,
    Vendor,
    get_vendor,
    gpu_names,
    list_gpus,
    list_vendors,
    load_gpu,
    occupancy,
    register_vendor,
    roofline,
)
from constrint.hwmodels.numbers import numbers_of
from constrint.hwmodels.occupancy import UNLIMITED, KernelUse, ResourceLimits
from constrint.hwmodels.schema import Block, Positive, Sources
from constrint.hwmodels.vendors import interface
from constrint.hwmodels.vendors.interface import Finding, LimitRow
from constrint.kernels.gemm.units import unit
from constrint.model import Problem
from constrint.select import BlockUse, add_block_limits
from constrint.select.cost import cost_assumptions

YAML = """
schema: 1
name: Kiln-1
vendor: acme
aliases: []
arch: {target: kiln1, family: Kiln, sources: [ACME]}
device: {sm_count: 40, boost_clock_hz: 1000000000, sources: [ACME]}
sm:
  warp_sizes: [16]
  num_partitions: 2
  max_threads_per_block: 512
  max_threads_per_sm: 1024
  max_warps_per_sm: 64
  max_blocks_per_sm: 8
  max_registers_per_thread: 128
  smem_bytes_per_sm: 98304
  max_smem_bytes_per_block: 65536
  smem_alloc_granularity_bytes: 512
  smem_reserved_bytes_per_block: 0
  smem_banks: 32
  smem_bank_width_bytes: 4
  special_functions_per_clk: 8
  register_pages_per_partition: 256
  sources: [ACME]
memory:
  l1: {size_bytes: 65536, line_bytes: 64, bandwidth_bytes_per_s: null, sources: [ACME]}
  l2: {size_bytes: 4194304, line_bytes: 64, bandwidth_bytes_per_s: 1.0e+12, sources: [ACME]}
  dram: {size_bytes: 16000000000, bandwidth_bytes_per_s: 5.0e+11, kind: GDDR7, sources: [ACME]}
compute:
  matrix_flop_per_s: {fp16: 1.0e+14}
  vector_flop_per_s: {fp64: 1.0e+12, fp32: 2.0e+13}
  sources: [ACME]
matrix:
  instructions:
  - {name: slab16, dtype: fp16, kind: slab, m: [16], n: [16], k: 8}
  sources: [ACME]
unconfirmed: ['memory.l1.bandwidth_bytes_per_s: nobody asked']
disagreements: []
sources: {ACME: 'vendor: the ACME data sheet, which is made up'}
"""
#: A page of registers: one for each of the 16 threads of a bundle, 8 times.
PAGE_REGISTERS = 128


class AcmeCore(Sm, Block, frozen=True, tag_field="vendor", tag="acme"):
    warp_sizes: tuple[Positive, ...]
    num_partitions: Positive
    max_threads_per_block: Positive
    max_threads_per_sm: Positive
    max_warps_per_sm: Positive
    max_blocks_per_sm: Positive
    max_registers_per_thread: Positive
    smem_bytes_per_sm: Positive
    max_smem_bytes_per_block: Positive
    smem_alloc_granularity_bytes: Positive
    smem_reserved_bytes_per_block: int
    smem_banks: Positive | None
    smem_bank_width_bytes: Positive | None
    special_functions_per_clk: Positive | None
    register_pages_per_partition: Positive
    sources: Sources


class Acme(Vendor):
    name = "acme"
    title = "ACME"
    terms = Terms(
        sm="core",
        sms="cores",
        a_sm="a core",
        partition="half",
        block="team",
        blocks="teams",
        warp="bundle",
        warps="bundles",
        smem="scratchpad",
        smem_column="pad",
    )
    sm_type = AcmeCore
    matrix_kinds = ("slab",)

    def register_file(self, gpu: GpuModel) -> RegisterFile:
        assert isinstance(gpu.sm, AcmeCore)
        capacity = gpu.sm.register_pages_per_partition * PAGE_REGISTERS
        return RegisterFile(capacity, PAGE_REGISTERS, "registers per half of a core", per_thread=gpu.sm.warp_size)

    def occupancy_limits(self, gpu: GpuModel, use: KernelUse) -> ResourceLimits:
        sm, file = gpu.sm, self.register_file(gpu)
        warps = -(-use.threads_per_block // sm.warp_size)
        per_warp = -(-use.registers_per_thread * sm.warp_size // PAGE_REGISTERS) * PAGE_REGISTERS
        of_half = -(-warps // sm.num_partitions) * np.maximum(per_warp, 1)
        too_many = use.registers_per_thread > sm.max_registers_per_thread
        return ResourceLimits(
            warps=np.where(use.threads_per_block > sm.max_threads_per_block, 0, sm.max_warps_per_sm // warps),
            registers=np.where(too_many, 0, file.capacity // of_half),
            smem=np.where(use.smem_bytes_per_block == 0, UNLIMITED, sm.smem_bytes_per_sm // use.smem_bytes_per_block),
            blocks=np.int64(sm.max_blocks_per_sm),
            warps_per_block=warps,
            registers_per_block=per_warp * warps,
            smem_bytes_per_block=use.smem_bytes_per_block,
            max_warps_per_sm=sm.max_warps_per_sm,
        )

    def findings(self, gpu: GpuModel) -> Iterator[Finding]:
        assert isinstance(gpu.sm, AcmeCore)
        if gpu.sm.register_pages_per_partition % 2:
            yield "sm.register_pages_per_partition", "must be even"

    def limit_rows(self, gpu: GpuModel) -> list[LimitRow]:
        assert isinstance(gpu.sm, AcmeCore)
        pages = gpu.sm.register_pages_per_partition
        return [LimitRow("register_pages_per_partition", "pages", pages, "register pages per half")]

    def dot_unit(self, gpu: GpuModel, dtype: str) -> DotUnit | None:
        return DotUnit("slab", ((16, 16, 8),))


ACME = Acme()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor, for one test."""
    list_vendors()
    monkeypatch.setattr(interface, "_registered", dict(interface._registered))
    register_vendor(ACME)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "kiln-1.yaml"
    file.write_text(YAML)
    return file


def test_its_file_is_read_with_its_own_struct_and_its_own_rules(path: Path) -> None:
    gpu = load_gpu(path)
    assert isinstance(gpu.sm, AcmeCore)
    assert (gpu.sm.warp_size, gpu.terms.a_sm) == (16, "a core")
    for old, new, message in (
        ("register_pages_per_partition: 256", "register_pages: 256", "sm.register_pages: unknown key. Did you mean"),
        ("register_pages_per_partition: 256", "register_pages_per_partition: 255", "must be even"),
        ("kind: slab", "kind: mfma", "'mfma' is none of ACME's: slab"),
        ("vendor: acme", "vendor: acne", "vendor: unknown vendor 'acne'. Nearest: acme."),
    ):
        path.write_text(YAML.replace(old, new, 1))
        with pytest.raises(HardwareModelError, match=message):
            load_gpu(path)


def test_its_numbers_have_names(path: Path) -> None:
    numbers = {number.name: number for number in numbers_of(load_gpu(path))}
    names = gpu_names(load_gpu(path))
    own = set(AcmeCore.__annotations__) - set(Sm.__annotations__)
    assert any(f"gpu.{name}" in numbers for name in own)
    assert all(number.meaning for name, number in numbers.items() if name.removeprefix("gpu.") not in own)
    assert names["gpu.warp_size"] == load_gpu(path).sm.warp_size
    assert "models of NVIDIA have it" in str(names["gpu.max_registers_per_block"])


def test_occupancy_limits_and_roofline(path: Path) -> None:
    gpu = load_gpu(path)
    result = occupancy(gpu, threads_per_block=256, registers_per_thread=[60, 64, 129], smem_bytes_per_block=8192)
    assert result.blocks_per_sm.tolist() == [4, 4, 0]
    assert result.limited_by[0] == "warps+registers"
    problem = Problem("block")
    warps, registers = problem.int_var("warps", lower=1, upper=40), problem.int_var("registers", lower=1, upper=200)
    smem = problem.int_var("smem", lower=0, upper=100_000)
    add_block_limits(problem, gpu, BlockUse(warps, registers, smem, least_registers=registers))
    reasons = {c.name: c.because for c in problem.constraints}
    assert reasons["smem"] == "a block of Kiln-1 has at most 65,536 bytes of scratchpad"
    fits = "one block fits the register file: 32,768 registers per half of a core"
    assert reasons["register_file"] == f"{fits}, and what must be live at once alone needs more"
    rows = {"warps": np.array([32, 33, 32]), "registers": np.array([128, 8, 129]), "smem": np.array([0, 0, 0])}
    holds = np.all([c.holds_columns(rows) for c in problem.constraints], axis=0)
    assert holds.tolist() == [True, False, False]
    assert roofline(gpu, "fp16").attainable_flop_per_s(100.0) == 5e13
    assert unit(gpu, "fp16") == DotUnit("slab", ((16, 16, 8),))


def test_what_it_does_not_state_is_refused_by_name(path: Path) -> None:
    gpu = load_gpu(path)
    for ask, what in (
        (lambda: gpu.traits, "the traits that kernels ask for"),
        (lambda: gpu.figure("dram_latency_s"), "the figure 'dram_latency_s'"),
        (lambda: cost_assumptions(gpu), "the figure 'dram_latency_s'"),
        (lambda: gpu.maker.triton_target(gpu), "a Triton back-end"),
    ):
        with pytest.raises(UnsupportedError, match=f"Kiln-1: the vendor 'acme' does not state {what}"):
            ask()
    with pytest.raises(UnsupportedError, match="Kiln-1: rules are known for the Triton back-ends cuda, not None"):
        gpu.of_triton_backend({"cuda": 1}, "rules")
    with pytest.raises(UsageError, match=r"carveout_percent is for NVIDIA GPUs; Kiln-1 is one of ACME's"):
        occupancy(gpu, threads_per_block=32, registers_per_thread=8, carveout_percent=50)
    with pytest.raises(UsageError, match=r"wgp_mode is for AMD GPUs; H200-SXM is one of NVIDIA's"):
        occupancy("h200", threads_per_block=32, registers_per_thread=8, wgp_mode=True)


def call(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["constrint", *line.split()])
    with contextlib.suppress(SystemExit):
        main()
    out, err = capsys.readouterr()
    assert not err
    return out


def test_commands_speak_its_words(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = call(f"gpu {path}", monkeypatch, capsys)
    assert "Kiln-1 (acme, Kiln, kiln1)" in shown
    assert "register_pages_per_partition: 256" in shown
    page = call(f"limits --gpu {path}", monkeypatch, capsys)
    assert "one core\n" in page
    assert "register pages per half" in page
    assert any(line.split() == ["cores", "40"] for line in page.splitlines())
    held = call(f"occupancy --gpu {path} --threads 256 --registers 60 --smem 8192", monkeypatch, capsys)
    assert "Kiln-1 (kiln1): teams per core: 4" in held
    assert "bundles per core: 64 (100.0% of what it holds)" in held
    assert "8,192 B of scratchpad" in held


def test_other_vendors_answer_as_before(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("limits --gpu mi300x --json", "occupancy --gpu h200 --threads 256 --registers 168 --json")
    here = [json.loads(call(line, monkeypatch, capsys)) for line in lines]
    names = list_gpus()
    monkeypatch.delitem(interface._registered, "acme")
    assert [json.loads(call(line, monkeypatch, capsys)) for line in lines] == here
    assert list_gpus() == names
    with pytest.raises(UnknownNameError, match="unknown vendor 'acme'"):
        get_vendor("acme")


def test_an_entry_point_registers_a_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(interface._registered, "acme")
    points = {"constrint.vendors": [SimpleNamespace(name="acme", load=lambda: ACME)]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points[group])
    interface._load.cache_clear()
    assert [vendor.name for vendor in list_vendors()] == ["nvidia", "amd", "acme"]
    assert get_vendor("acme") is ACME


def test_a_name_is_given_once_and_a_struct_must_fit_it() -> None:
    register_vendor(ACME)
    with pytest.raises(UsageError, match="a vendor named 'acme' is registered already"):
        register_vendor(Acme())
    lacking: Any = type("Lacking", (Acme,), {"name": "lacking"})
    with pytest.raises(UsageError, match="needs tag_field='vendor', tag='lacking'"):
        register_vendor(lacking())
    short: Any = msgspec.defstruct("Short", [("num_partitions", int)], bases=(Sm, Block), kw_only=True, frozen=True)
    with pytest.raises(UsageError, match="the SM struct of the vendor 'lacking' lacks warp_sizes, max_threads"):
        register_vendor(type("Lacking", (Acme,), {"name": "lacking", "sm_type": short})())
    assert "lacking" not in {vendor.name for vendor in list_vendors()}
