"""Models of the user's own: a folder that every name is looked up in, and files that load back as they were printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from constrint.errors import HardwareModelError, UnknownNameError
from constrint.hwmodels import GpuModel, list_gpus, load_all, load_gpu
from constrint.hwmodels.detection import DetectedDevice, identify
from constrint.hwmodels.files import DATA, user_folders
from constrint.hwmodels.load import load_user_gpus
from constrint.hwmodels.write import text_of, yaml_of

H200 = (DATA / "nvidia" / "h200-sxm.yaml").read_text()
ALIASES = next(line for line in H200.splitlines() if line.startswith("aliases:"))


def named(name: str, *aliases: str) -> str:
    return H200.replace("name: H200-SXM", f"name: {name}").replace(ALIASES, f"aliases: [{', '.join(aliases)}]")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.setenv("CONSTRINT_GPU_PATH", os.pathsep.join(map(str, (first, second, tmp_path / "nowhere"))))
    return first, second


def test_a_file_in_the_folder_is_found_by_name_and_alias_as_soon_as_it_is_there(folders: tuple[Path, Path]) -> None:
    with pytest.raises(UnknownNameError):
        load_gpu("my-h300")
    (folders[1] / "any-name.yaml").write_text(named("My-H300", "h300", "NVIDIA H300"))
    assert load_gpu("My H300").name == load_gpu("h300").name == "My-H300"
    assert identify(DetectedDevice(0, "torch", "NVIDIA H300", target="sm_90")).model == "My-H300"
    assert "My-H300" not in list_gpus()
    with pytest.raises(UnknownNameError) as unknown:
        load_gpu("my-h301")
    assert "My-H300" in unknown.value.nearest


def test_the_users_own_come_before_those_that_ship(folders: tuple[Path, Path]) -> None:
    (folders[0] / "mine.yaml").write_text(named("H200-SXM", "h200").replace("sm_count: 132", "sm_count: 130"))
    assert load_gpu("h200").device.sm_count == 130
    assert load_gpu("h200-141gb").device.sm_count == 132, "an alias that it does not claim is the shipped one's"
    assert next(model for model in load_all() if model.name == "H200-SXM").device.sm_count == 132


def test_of_two_files_of_one_name_the_first_folder_holds_and_two_claims_are_named(folders: tuple[Path, Path]) -> None:
    (folders[0] / "a.yaml").write_text(named("Mine", "one").replace("sm_count: 132", "sm_count: 130"))
    (folders[1] / "a.yaml").write_text(named("Mine", "one"))
    assert load_gpu("one").device.sm_count == 130
    (folders[1] / "b.yaml").write_text(named("Mine", "one"))
    with pytest.raises(HardwareModelError, match=r"an alias of Mine and of Mine \(.*b\.yaml\); take it from one"):
        load_gpu("one")


def test_a_broken_file_of_the_user_breaks_its_own_name_and_nothing_else(folders: tuple[Path, Path]) -> None:
    (folders[0] / "good.yaml").write_text(named("Good"))
    (folders[0] / "broken.yaml").write_text("schema: [")
    assert load_gpu("h200").name == "H200-SXM"
    with pytest.raises(HardwareModelError, match=r"broken\.yaml:2: not YAML"):
        load_gpu("broken")
    models, refused = load_user_gpus()
    assert [model.name for model in models.values()] == ["Good"]
    assert [sentence.partition(": ")[2][:8] for sentence in refused] == ["not YAML"]


def test_without_the_variable_the_folder_is_in_the_users_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONSTRINT_GPU_PATH")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    (folder,) = user_folders()
    assert folder.parts[-2:] == ("constrint", "gpus")


@pytest.mark.parametrize("model", load_all(), ids=lambda model: model.name)
def test_a_printed_model_loads_back_as_the_same(model: GpuModel, tmp_path: Path) -> None:
    (tmp_path / "copy.yaml").write_text(yaml_of(model))
    assert load_gpu(tmp_path / "copy.yaml") == model


@pytest.mark.parametrize(
    "text", ["null", "12", "a: b", "it's", "x\ny", "\x85", "é", "🚀", "- a", "#", "true", "~", "0x1"]
)
def test_any_text_is_written_so_that_it_is_read_as_itself(text: str, tmp_path: Path) -> None:
    quoted = text_of(text)
    (tmp_path / "copy.yaml").write_text(H200.replace("kind: HBM3e", f"kind: {quoted}"), encoding="utf-8")
    assert load_gpu(tmp_path / "copy.yaml").memory.dram.kind == text
