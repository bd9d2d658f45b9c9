"""Triton's version is part of the resource rules: verified ones are named, others draw a caution."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from constrint.cli.app import main
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import KernelSpec, toolchain
from constrint.select.toolchain import CHECKED, NEWEST, caution, is_verified, rules_of
from constrint.tune import CompiledKernel

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("version", "verified"),
    [
        *((version, True) for version in ("3.9.0", "3.6.0+git1234", "3.9", "3.8.1", "3.7.0")),
        *((version, False) for version in ("3.5.1", "3.10.0", "4.0")),
    ],
)
def test_verified_versions_go_by_major_and_minor(version: str, verified: bool) -> None:
    assert is_verified(version) is verified
    assert bool(caution(version)) is not verified


def test_caution_names_the_version_what_is_verified_and_the_way_out() -> None:
    text = caution("4.0.1")
    assert "4.0.1" in text
    assert all(version in text for version in CHECKED)
    assert "constrint verify" in text


def test_another_version_or_none_has_the_rules_of_the_newest_one() -> None:
    """A laptop without Triton gets the answers that it got; a newer Triton is looked at as compiled."""
    for version in ("", "3.10.0", "4.0", "2.1.0"):
        assert rules_of(version) is CHECKED[NEWEST]
    assert max(CHECKED, key=lambda version: [int(part) for part in version.split(".")]) == NEWEST
    assert rules_of("3.8.0").reads_weights_again
    assert not any(rules_of(version).reads_weights_again for version in ("3.6.0", "3.7.1", "3.9.0"))


def test_what_is_stored_for_one_version_is_not_found_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, spec = load_gpu("h200"), load_spec("lstm.triton")
    keys = set()
    for version in ("3.8.0", "3.9.0"):
        monkeypatch.setattr(toolchain, "triton_version", lambda version=version: version)
        keys.add(toolchain.key_of(gpu, (spec,), "decision"))
    assert len(keys) == 2


def test_evidence_named_for_a_version_is_in_the_repository() -> None:
    for checked in CHECKED.values():
        for word in checked.evidence.replace(",", " ").replace("(", " ").replace(")", " ").split():
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


@pytest.mark.parametrize("version", ["3.9.0", "4.0.1"])
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
    assert ("not with 4.0.1" in verify().replace("\n", " ")) is (version == "4.0.1")
    document = json.loads(verify("--json"))
    assert document["results"][0]["compiled"]["is_verified_version"] is (version == "3.9.0")


def test_compiled_kernel_has_no_other_fields_than_the_fake() -> None:
    assert {field.name for field in dataclasses.fields(CompiledKernel)} == set(vars(compiled_by("3.9.0")))
