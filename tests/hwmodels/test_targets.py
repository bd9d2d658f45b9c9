"""Targets: what no vendor has is refused; what constrint does not know yet loads, and says what stands in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from constrint.errors import HardwareModelError, UnsupportedError
from constrint.hwmodels import GpuModel, load_all, load_gpu
from constrint.hwmodels.checks import check_compilable, nearest_target, target_note
from constrint.hwmodels.files import DATA
from constrint.kernels.registry import load_kernel
from constrint.select.rank import rank

FILES = {
    "nvidia": "nvidia/h200-sxm.yaml",
    "turing": "nvidia/t4.yaml",
    "amd": "amd/mi300x.yaml",
    "rdna": "amd/rx-9070-xt.yaml",
}
Load = Callable[..., GpuModel]
CAPABILITY = "compute_capability: '{}'"


@pytest.fixture
def changed(tmp_path: Path) -> Load:
    """Loads one of the files with some of its text replaced."""

    def load(which: str, *replaced: tuple[str, str]) -> GpuModel:
        text = (DATA / FILES[which]).read_text()
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load_gpu(path)

    return load


def test_the_targets_of_all_models_are_known() -> None:
    for gpu in load_all():
        assert target_note(gpu) == ""
        check_compilable(gpu)
        assert nearest_target(gpu).rstrip("a") == gpu.arch.target.rstrip("a")


@pytest.mark.parametrize(
    ("which", "old", "new", "message"),
    [
        (
            "nvidia",
            "target: sm_90a",
            "target: x",
            r"arch.target: 'x' is no target of NVIDIA's, the vendor of this file: write 'sm_' and",
        ),
        ("nvidia", "target: sm_90a", "target: gfx942", "'gfx942' is no target of NVIDIA's"),
        ("nvidia", "target: sm_90a", "target: compute_90", "'compute_90' is no target of NVIDIA's"),
        ("nvidia", "target: sm_90a", "target: sm_999a", "'sm_999a' is not of compute capability 9.0"),
        ("nvidia", "family: Hopper", "family: Hopperr", "'Hopperr' is not the family of sm_90a, which is 'Hopper'"),
        ("amd", "target: gfx942", "target: sm_90", "'sm_90' is no target of AMD's, .* write 'gfx', the generation"),
        ("amd", "target: gfx942", "target: gfx942:xnack+", "is no target of AMD's"),
        ("amd", "target: gfx942", "target: gfx1100", "'CDNA3' is not the family of gfx1100"),
        ("amd", "target: gfx942", "target: gfx1250", "those of gfx1250 are of the kind wmma; some here are mfma"),
    ],
)
def test_what_a_vendor_cannot_have_is_refused(changed: Load, which: str, old: str, new: str, message: str) -> None:
    with pytest.raises(HardwareModelError, match=message):
        changed(which, (old, new))


def test_a_new_target_has_a_new_family_or_one_of_its_vendor(changed: Load) -> None:
    with pytest.raises(HardwareModelError, match=r"'Hopper' is a family of NVIDIA's; AMD's are CDNA1, CDNA2, CDNA3"):
        changed("amd", ("target: gfx942", "target: gfx943"), ("family: CDNA3", "family: Hopper"))
    assert (
        changed("amd", ("target: gfx942", "target: gfx943"), ("family: CDNA3", "family: CDNA9")).arch.family == "CDNA9"
    )


@pytest.mark.parametrize(
    ("which", "replaced", "target", "nearest"),
    [
        (
            "nvidia",
            [
                ("target: sm_90a", "target: sm_130a"),
                (CAPABILITY.format("9.0"), CAPABILITY.format("13.0")),
                ("family: Hopper", "family: Rubin"),
            ],
            "sm_130a",
            "sm_121",
        ),
        (
            "turing",
            [("target: sm_75", "target: sm_77"), (CAPABILITY.format("7.5"), CAPABILITY.format("7.7"))],
            "sm_77",
            "sm_75",
        ),
        ("amd", [("target: gfx942", "target: gfx943")], "gfx943", "gfx942"),
        ("rdna", [("target: gfx1201", "target: gfx1250")], "gfx1250", "gfx1201"),
    ],
)
def test_an_unknown_target_is_ranked_and_the_ranking_says_so(
    changed: Load,
    which: str,
    replaced: list[tuple[str, str]],
    target: str,
    nearest: str,
) -> None:
    gpu = changed(which, *replaced)
    note = f"{target} is no target that constrint knows (nearest: {nearest})"
    assert target_note(gpu).startswith(note)
    ranking = rank(load_kernel("gemm"), gpu, top=1)
    assert ranking.candidates
    assert any(line.startswith(note) for line in ranking.assumptions)
    with pytest.raises(UnsupportedError, match=f"nothing can be compiled for {target}"):
        check_compilable(gpu)


def test_no_unknown_nvidia_target_reaches_a_compiler(changed: Load) -> None:
    # LLVM ends the process over a processor that it does not know.
    gpu = changed("turing", ("target: sm_75", "target: sm_77"), (CAPABILITY.format("7.5"), CAPABILITY.format("7.7")))
    with pytest.raises(UnsupportedError, match="nearest that it knows is sm_75"):
        gpu.maker.triton_target(gpu)
    assert load_gpu("t4").maker.triton_target(load_gpu("t4")) == ("cuda", 75, 32)


def test_gpus_without_matrix_instructions_are_refused_in_words(changed: Load) -> None:
    gpu = changed("nvidia")
    bare = msgspec.structs.replace(gpu, matrix=msgspec.structs.replace(gpu.matrix, instructions=()))
    with pytest.raises(UnsupportedError, match=r"no matrix instruction for bf16 \(sm_90a\). It has none for a GEMM."):
        rank(load_kernel("gemm"), bare, top=1)
