"""`base: NAME`: a file states what is its own, and the architecture's blocks come from a GPU that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrint.errors import HardwareModelError, UnknownNameError
from constrint.hwmodels import list_gpus, load_gpu
from constrint.hwmodels.files import DATA, index

TEXT = (DATA / "nvidia" / "rtx-5080.yaml").read_text()
BASED = [name for name in list_gpus() if "\nbase: " in index().files[name].read_text()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONSTRINT_GPU_PATH", str(tmp_path))
    return tmp_path


def refusal(folder: Path, text: str) -> str:
    (folder / "mine.yaml").write_text(text)
    with pytest.raises(HardwareModelError) as refused:
        load_gpu(folder / "mine.yaml")
    assert str(refused.value).startswith(str(folder))
    return str(refused.value)


def test_blocks_of_the_architecture_are_the_bases_and_those_of_the_device_its_own() -> None:
    gpu, base = load_gpu("rtx5080"), load_gpu("rtx5090")
    assert (gpu.sm, gpu.arch, gpu.memory.l1, gpu.matrix) == (base.sm, base.arch, base.memory.l1, base.matrix)
    assert (gpu.device.sm_count, base.device.sm_count) == (84, 170)
    assert gpu.memory.l2.size_bytes == 64 * 2**20
    assert "what this file does not state of arch, sm, memory.l1, matrix is that of RTX-5090" in gpu.notes


def test_a_key_that_the_file_states_stays_and_the_others_of_its_block_are_inherited() -> None:
    thor, base = load_gpu("thor"), load_gpu("b200")
    assert (thor.sm.max_warps_per_sm, base.sm.max_warps_per_sm) == (48, 64)
    assert thor.sm.max_smem_bytes_per_block == base.sm.max_smem_bytes_per_block
    assert set(base.sm.sources) < set(thor.sm.sources)
    assert load_gpu("gb300").matrix == load_gpu("b300").matrix != base.matrix, "a base may have a base"


@pytest.mark.parametrize("name", BASED)
def test_sources_and_unconfirmed_entries_come_with_what_is_inherited(name: str) -> None:
    gpu = load_gpu(name)
    assert set(gpu.sm.sources) | set(gpu.matrix.sources) <= set(gpu.sources)
    paths = [entry.partition(":")[0] for entry in gpu.unconfirmed]
    assert len(paths) == len(set(paths)), "an entry of the base is not repeated where the file has its own"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("base: RTX-5090", "base: RTX-5999", "base: unknown GPU 'RTX-5999'. Nearest: RTX-5090"),
        ("base: RTX-5090", "base: wgmma", "base: unknown GPU 'wgmma'; `constrint gpu` lists all."),
        ("base: RTX-5090", "base: 5", "base: must be the name of a GPU, in quotes; it is 5."),
        ("base: RTX-5090", "base: [RTX-5090]", "base: must be the name of a GPU, in quotes; it is ['RTX-5090']."),
        ("base: RTX-5090", "base: MI300X", "base: MI300X is of the vendor amd; a base is of the file's own."),
        ("base: RTX-5090\n", "", "memory.l1: missing"),
        ("vendor: nvidia\n", "", "base: RTX-5090 is of the vendor nvidia; a base is of the file's own."),
        ("  BW_TUNE: ", "  CUDA_PG: 'mine'\n  BW_TUNE: ", "sources.CUDA_PG: the base has another text for this key"),
        ("memory:\n", "sm: 7\nmemory:\n", "sm: must be a mapping of keys to values; it is 7"),
        ("memory:\n", "sm: {max_warps_per_sm: 7}\nmemory:\n", "sm.max_threads_per_sm: must be max_warps_per_sm times"),
        ("memory:\n", "sm: {sources: [[], RTX_ARCH]}\nmemory:\n", "sm.sources[0]: must be text, in quotes; it is []."),
        ("device:\n", "devices:\n", "devices: unknown key. Did you mean 'device'"),
    ],
)
def test_what_is_wrong_with_a_base_or_beside_it_is_one_sentence(folder: Path, old: str, new: str, message: str) -> None:
    assert old in TEXT
    assert message in refusal(folder, TEXT.replace(old, new, 1))


def test_bases_of_the_user_are_found_and_never_lead_back(folder: Path) -> None:
    (folder / "one.yaml").write_text(TEXT.replace("name: RTX-5080", "name: One").replace("base: RTX-5090", "base: Two"))
    with pytest.raises(HardwareModelError, match=r"one\.yaml: base: unknown GPU 'Two'"):
        load_gpu("One")
    (folder / "two.yaml").write_text(TEXT.replace("name: RTX-5080", "name: Two").replace("aliases:", "aliases: [] #"))
    assert load_gpu("One").sm == load_gpu("rtx5090").sm
    two = TEXT.replace("name: RTX-5080", "name: Two").replace("base: RTX-5090", "base: One")
    (folder / "two.yaml").write_text(two.replace("aliases:", "aliases: [] #"))
    with pytest.raises(HardwareModelError, match=r"base: One leads back to this file; name another GPU"):
        load_gpu("One")
    with pytest.raises(UnknownNameError):
        load_gpu("Three")
