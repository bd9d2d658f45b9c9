"""`constrint gpus`, `gpu` and `occupancy`: what a user types, what stdout holds, and the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import constrint
from constrint.cli.app import main
from constrint.hwmodels import DetectedDevice, detect, list_gpus, load_gpu

Call = Callable[[str], tuple[int, str, str]]


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["constrint", *line.split()])
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    return int(str(code or 0)), out, err


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return lambda line: run(capsys, monkeypatch, line)


def test_gpus_lists_every_model(call: Call) -> None:
    code, out, err = call("gpus")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:27]] == list(list_gpus())
    assert all(len(line) <= 80 for line in out.splitlines()[:27])
    code, out, _ = call("gpus --json")
    document = json.loads(out)
    assert document["schema"] == "constrint.gpus/1"
    assert [gpu["name"] for gpu in document["gpus"]] == list(list_gpus())
    assert next(gpu for gpu in document["gpus"] if gpu["name"] == "GH200")["l2_bytes"] is None


def test_gpu_shows_sources_and_what_is_unconfirmed(call: Call) -> None:
    code, out, _ = call("gpu mi300x")
    assert code == 0
    assert "sm  [LLVM_RUN," in out
    assert "CDNA3_WP: vendor: AMD CDNA 3 white paper" in out
    assert "device.num_shader_engines: no source read states it" in out
    assert "num_shader_engines: unknown (unconfirmed)" in out
    assert "v_mfma_f32_32x32x8_f16  fp16  32 x 32 x 8  32 cycles" in out
    assert call("gpu --gpu MI300X")[1] == out


@pytest.mark.parametrize("name", list_gpus())
def test_gpu_prints_every_model_both_ways(call: Call, name: str) -> None:
    code, out, err = call(f"gpu {name}")
    assert (code, err) == (0, "")
    assert out.startswith(f"{name} (")
    assert "None" not in out
    document = json.loads(call(f"gpu {name} --json")[1])
    assert document["schema"] == "constrint.gpu/1"
    assert document["gpu"]["name"] == name
    assert document["gpu"]["unconfirmed"]


def test_gpu_says_what_modelled_times_were_held_against(call: Call, tmp_path: Path) -> None:
    out = call("gpu mi355x")[1]
    assert "modelled times of products over times measured elsewhere" in out
    assert "bf16, 10-100 us: " in out
    assert "ROCm/aiter" in out
    held = json.loads(call("gpu mi355x --json")[1])["held_against"]
    assert held["made_by"] == "python -m benchmarks.elsewhere --write"
    assert {"bf16", "fp8", "int8"} == {row["dtype"] for row in held["products"]}
    assert all(
        row["n"] > 0 and row["low"] <= row["median"] <= row["high"] and row["source"] for row in held["products"]
    )
    assert "held against nothing" in call("gpu mi100")[1]
    assert json.loads(call("gpu mi100 --json")[1])["held_against"]["products"] == []
    edited = tmp_path / "edited.yaml"
    text = (Path(constrint.__file__).parent / "hwmodels" / "data" / "amd" / "mi355x.yaml").read_text()
    edited.write_text(text.replace("sm_count: 256", "sm_count: 128"))
    code, out, _ = call(f"gpu {edited}")
    assert "held against nothing" in out or code != 0, "another GPU of the same name"


def test_gpu_takes_a_users_own_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: X\n")
    code, out, err = call(f"gpu {path}")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {path}: schema: missing")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gpu", "name one GPU"),
        ("gpu h200 --detect", "name one GPU"),
        ("gpu h200 --gpu h200", "name one GPU"),
        ("gpu h20", "unknown GPU 'h20'. Nearest: "),
        ("occupancy --gpu h20 --threads 32 --registers 8", "unknown GPU 'h20'"),
        (
            "occupancy --gpu h200 --threads 0 --registers 8",
            "threads_per_block: expected whole numbers from 1",
        ),
        ("occupancy --gpu h200 --threads 32 --registers 8 --wgp", "wgp_mode is for AMD GPUs"),
        ("occupancy --gpu mi300x --threads 32 --registers 8 --wave 32", "wave_size = 32"),
    ],
)
def test_mistakes_exit_with_2_and_one_message(call: Call, line: str, message: str) -> None:
    code, out, err = call(line)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_occupancy(call: Call) -> None:
    code, out, _ = call("occupancy --gpu h200 --threads 256 --registers 168 --smem 49152")
    assert code == 0
    assert "H200-SXM (sm_90a): blocks per SM: 1\nlimited by: registers\n" in out
    document = json.loads(call("occupancy --gpu h200 --threads 256 --registers 168 --smem 49152 --json")[1])
    assert document == {
        "schema": "constrint.occupancy/1",
        "gpu": "H200-SXM",
        "blocks_per_sm": 1,
        "warps_per_sm": 8,
        "occupancy": 0.125,
        "limited_by": ["registers"],
        "limits": {"warps": 8, "registers": 1, "smem": 4, "blocks": 32, "barriers": None, "sgprs": None},
        "registers_per_block": 43008,
        "smem_bytes_per_block": 50176,
        "waves_per_simd": None,
        "impossible": [],
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--gpu h200 --threads 1025 --registers 32", ["1,025 threads, the limit is 1,024"]),
        ("--gpu h200 --threads 256 --registers 300", ["300 registers a thread, the limit is 255"]),
        (
            "--gpu h200 --threads 32 --registers 8 --smem 300000",
            ["300,000 bytes of shared memory, the limit is 232,448"],
        ),
        (
            "--gpu h200 --threads 32 --registers 8 --smem 60000 --no-opt-in",
            ["60,000 bytes of shared memory, the limit is 49,152"],
        ),
        (
            "--gpu h200 --threads 1025 --registers 300",
            ["1,025 threads, the limit is 1,024", "300 registers a thread, the limit is 255"],
        ),
        ("--gpu h200 --threads 1024 --registers 128", ["32 warps of 128 registers a thread, the limit is 16"]),
        # A block is checked as if its warps came in fours, and each sub-partition holds six.
        ("--gpu h200 --threads 800 --registers 80", ["25 warps of 80 registers a thread, the limit is 24"]),
        ("--gpu mi300x --threads 1024 --registers 512", ["16 waves of 512 registers a thread, the limit is 4"]),
        ("--gpu mi300x --threads 64 --registers 300 --acc-vgprs 10", ["300 arch VGPRs a thread, the limit is 256"]),
        ("--gpu 7900xtx --threads 64 --registers 8 --smem 70000", ["70,000 bytes of LDS, the limit is 65,536"]),
    ],
)
def test_a_block_that_cannot_be_launched_is_explained(call: Call, line: str, said: list[str]) -> None:
    code, out, err = call(f"occupancy {line}")
    assert (code, err) == (1, "")
    sentences = [text.partition("cannot be launched: ")[2] for text in out.splitlines() if "cannot be" in text]
    assert sentences == said
    code, out, _ = call(f"occupancy {line} --json")
    assert code == 1
    impossible = json.loads(out)["impossible"]
    assert len(impossible) == len(said)
    for entry, sentence in zip(impossible, said, strict=True):
        assert entry["asked"] > entry["most"]
        assert sentence.startswith(f"{entry['asked']:,} ")


def test_limits_are_in_the_units_that_their_keys_name(call: Call) -> None:
    for name in ("h200", "mi300x"):
        document = json.loads(call(f"limits --gpu {name} --json")[1])
        assert document["schema"] == "constrint.limits/2"
        assert list(document["limits"]) == ["block", "sm", "device", "heads", "rates"]
        gpu = load_gpu(name)
        found = {row["key"]: row for rows in document["limits"].values() for row in rows}
        assert found["boost_clock_hz"]["value"] == gpu.device.boost_clock_hz
        assert found["dram_bandwidth_bytes_per_s"]["value"] == gpu.memory.dram.bandwidth_bytes_per_s
        assert found["dram_size_bytes"]["value"] == gpu.memory.dram.size_bytes
        assert found["bf16_flop_per_s"]["value"] == gpu.peak_flop_per_s("bf16")
        assert found["int8_op_per_s"]["value"] == gpu.peak_flop_per_s("int8")
        units = {"_flop_per_s": "flop/s", "_op_per_s": "op/s", "_hz": "hertz", "_bytes_per_s": "bytes/s"}
        for key, row in found.items():
            for ending, unit in units.items():
                if key.endswith(ending):
                    assert row["unit"] == unit
    table = call("limits --gpu h200")[1]
    assert any(line.split() == ["fp64", "67.0", "TFLOP/s"] for line in table.splitlines())


def test_occupancy_on_amd_prints_llvms_figure(call: Call) -> None:
    _, out, _ = call("occupancy --gpu mi300x --threads 256 --registers 101 --acc-vgprs 27")
    assert "waves per SIMD as LLVM counts them: 3" in out
    assert "workgroups per CU: 3" in out


def test_detect_without_a_device_exits_with_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["constrint.hwmodels.detection"], "SOURCES", (("torch", lambda: ([], "sees no device")),)
    )
    code, out, err = call("gpu --detect")
    assert (code, out) == (1, "")
    assert err == "error: no GPU found on this machine (torch: sees no device).\n"


def test_detect_shows_model_and_disagreements(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        DetectedDevice(0, "torch", "NVIDIA H200", target="sm_90", sm_count=131),
        DetectedDevice(1, "torch", "NVIDIA L4", target="sm_89", sm_count=58),
        DetectedDevice(2, "torch", "Unheard of", target="sm_999"),
    ]
    monkeypatch.setattr(sys.modules["constrint.hwmodels.detection"], "SOURCES", (("torch", lambda: (found, "")),))
    code, out, _ = call("gpu --detect")
    assert code == 0
    assert "model: H200-SXM\n  disagrees: the device reports 131 SMs, the model states 132\n" in out
    assert "model: L4\n  the device agrees with the model" in out
    assert "Unheard of (sm_999, through torch)\n  model: no model of this device" in out
    document = json.loads(call("gpu --detect --json")[1])
    assert [device["model"] for device in document["devices"]] == ["H200-SXM", "L4", None]
    assert len(detect()) == 3
