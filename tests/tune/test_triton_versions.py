"""Triton's version is part of the resource rules: verified ones are named, others draw a caution."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from constrint.cli.app import main
from constrint.select import KernelSpec
from constrint.tune import CompiledKernel
from constrint.tune.triton_versions import VERIFIED, caution, is_verified

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("version", "verified"),
    [("3.9.0", True), ("3.6.0+git1234", True), ("3.9", True), ("3.8.1", False), ("3.10.0", False), ("4.0", False)],
)
def test_verified_versions_go_by_major_and_minor(version: str, verified: bool) -> None:
    assert is_verified(version) is verified
    assert bool(caution(version)) is not verified


def test_caution_names_the_version_what_is_verified_and_the_way_out() -> None:
    text = caution("3.8.1")
    assert "3.8.1" in text
    assert all(version in text for version in VERIFIED)
    assert "constrint verify" in text


def test_evidence_named_for_a_version_is_in_the_repository() -> None:
    for evidence in VERIFIED.values():
        for word in evidence.replace(",", " ").replace("(", " ").replace(")", " ").split():
            if word.endswith(".csv"):
                assert any((ROOT / folder / Path(word).name).is_file() for folder in ("tests/data",)), word


def compiled_by(version: str) -> CompiledKernel:
    return CompiledKernel(
        target="gfx942",
        triton_version=version,
        smem_bytes=1024,
        registers_per_thread=64,
        accumulator_registers=0,
        spill_bytes=0,
        instruction="v_mfma_f32_16x16x16_bf16",
    )


@pytest.mark.parametrize("version", ["3.9.0", "3.8.1"])
def test_verify_cautions_about_a_version_that_is_not_verified(
    version: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(*further: str) -> str:
        monkeypatch.setattr(sys, "argv", ["constrint", "verify", "--gpu", "mi300x", "--top", "1", *further])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    monkeypatch.setattr(KernelSpec, "compile", lambda *_: compiled_by(version))
    assert ("not with 3.8.1" in verify().replace("\n", " ")) is (version == "3.8.1")
    document = json.loads(verify("--json"))
    assert document["results"][0]["compiled"]["is_verified_version"] is (version == "3.9.0")


def test_compiled_kernel_has_no_other_fields_than_the_fake() -> None:
    assert {field.name for field in dataclasses.fields(CompiledKernel)} == set(vars(compiled_by("3.9.0")))
