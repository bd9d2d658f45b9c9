"""A GPU's file is loaded strictly: every mistake is one error that names the file, the key and the rule."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import HardwareModelError, UsageError
from constrint.hwmodels import list_gpus, load_gpu
from constrint.hwmodels.files import DATA, MAX_BYTES, parse_yaml

H200 = (DATA / "nvidia" / "h200-sxm.yaml").read_text()
MI300X = (DATA / "amd" / "mi300x.yaml").read_text()
RDNA = (DATA / "amd" / "rx-7900-xtx.yaml").read_text()


def load_text(tmp_path: Path, text: str | bytes) -> HardwareModelError:
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HardwareModelError) as caught:
        load_gpu(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("base", "old", "new", "message"),
    [
        (H200, "  sm_count: 132\n", "  sm_count: 132\n  colour: green\n", "device.colour: unknown key"),
        (H200, "vendor: nvidia\n", "vendor: nvidia\ncolour: green\n", "colour: unknown key"),
        (
            H200,
            "    size_bytes: 62914560",
            "    size: 62914560",
            "memory.l2.size: unknown key. Did you mean 'size_bytes'",
        ),
        (
            H200,
            "  boost_clock_hz: 18",
            "  boost_clock_mhz: 18",
            "device.boost_clock_mhz: unknown key. Did you mean 'boost_clock_hz'",
        ),
        (H200, "smem_bytes_per_sm:", "smem_per_sm:", "sm.smem_per_sm: unknown key"),
        (
            H200,
            "{name: mma.m8n8k4,",
            "{name: mma.m8n8k4, cycle: 4,",
            "matrix.instructions[0].cycle: unknown key",
        ),
        (H200, "    sources: [H200_QUERY, CUDA_BPG]\n", "", "memory.l2.sources: missing; every block names"),
        (H200, "  sources: [CUTLASS]\n", "", "matrix.sources: missing"),
        (
            H200,
            "  sources: [CUTLASS]\n",
            "  sources: []\n",
            "matrix.sources: must be a list of at least one item; it is []",
        ),
        (H200, "sources: [CUTLASS]", "sources: [CUTLESS]", "matrix.sources: source 'CUTLESS' is not among"),
        (
            H200,
            "sources:\n  CUDA_OCC_H",
            "sources:\n  EXTRA: nobody uses it\n  CUDA_OCC_H",
            "sources.EXTRA: no block names",
        ),
        (H200, "sm_count: 132", "sm_count: '132'", "device.sm_count: must be a whole number; it is '132'"),
        (H200, "sm_count: 132", "sm_count: 132.5", "device.sm_count: must be a whole number; it is 132.5"),
        (H200, "sm_count: 132", "sm_count: true", "device.sm_count: must be a whole number; it is True"),
        (H200, "sm_count: 132", "sm_count: 0", "device.sm_count: must be a whole number of at least 1; it is 0"),
        (H200, "sm_count: 132", "sm_count: -132", "sm_count: must be a whole number of at least 1; it is -132"),
        (H200, "sm_count: 132", f"sm_count: {10**30}", "device.sm_count"),
        (H200, "sm_count: 132", "sm_count: null", "device.sm_count: must be a whole number; it is null"),
        (H200, "sm_count: 132", "sm_count: [132]", "device.sm_count: must be a whole number; it is [132]"),
        (H200, "fp16: 9.894e+14", "fp16: fast", "compute.matrix_flop_per_s"),
        (H200, "fp16: 9.894e+14", "fp16: .inf", "compute.matrix_flop_per_s"),
        (
            H200,
            "fp16: 9.894e+14",
            "fp17: 9.894e+14",
            "compute.matrix_flop_per_s.fp17: unknown key. Known: fp64, fp32, tf32, fp16, ",
        ),
        (H200, "vendor: nvidia", "vendor: intel", "intel"),
        (H200, "vendor: nvidia", "vendor: amd", "'sm_90a' is no target of AMD's, the vendor of this file"),
        (H200, "schema: 1", "schema: 2", "schema: must be 1; it is 2"),
        (H200, "name: H200-SXM", "name: ../../x", "name: must be text in quotes of the form '^[A-Za-z0-9]"),
        (H200, "name: H200-SXM\n", "", "name: missing"),
        (H200, "sm:\n  warp", "sm:\n  vendor: amd\n  warp", "sm.vendor: unknown key"),
        (H200, "num_gpcs: 8", "num_gpcs: null", ""),
        (H200, "  num_gpcs: 8\n", "", "device.num_gpcs: missing; nvidia files state it"),
        (
            H200,
            "    size_bytes: 62914560",
            "    size_bytes: null",
            "memory.l2.size_bytes: null is unknown, so it must be",
        ),
        (H200, "device.num_gpcs: ass", "device.num_gpc: ass", "'device.num_gpc' is no key of this file"),
        (
            H200,
            "max_smem_bytes_per_block: 232448",
            "max_smem_bytes_per_block: 232449",
            "exceeds smem_bytes_per_sm",
        ),
        (H200, "200704, 233472]", "200704]", "sm.smem_carveouts_bytes: must increase and end with"),
        (H200, "[8, 16, ..., 256]", "[8, 16, ..., 255]", "matrix.instructions[6].n: write a progression as"),
        (
            H200,
            "[8, 16, ..., 256]",
            "[8, 16, ..., 99999999999]",
            "matrix.instructions[6].n: write a progression as",
        ),
        (H200, "[8, 16, ..., 256]", "[...]", "matrix.instructions[6].n: write a progression as"),
        (H200, "[8, 16, ..., 256]", "[]", "matrix.instructions[6].n"),
        (MI300X, "sm_count: 304", "sm_count: 300", "device.sm_count: must be num_xcds times sms_per_xcd"),
        (
            MI300X,
            "size_bytes_per_xcd: 4194304",
            "size_bytes_per_xcd: 1048576",
            "size_bytes_per_xcd times num_xcds",
        ),
        (MI300X, "warp_sizes: [64]", "warp_sizes: [32, 64]", "sm.max_threads_per_sm"),
        (MI300X, "  sgprs_per_simd: 800\n", "", "sm.sgprs_per_simd: goes with"),
        (
            MI300X,
            "  arch_vgpr_alignment_vgprs: 4\n",
            "",
            "sm.arch_vgpr_alignment_vgprs: a unified file needs it",
        ),
        (RDNA, "  smem_bytes_per_wgp: 131072\n", "", "sm.smem_bytes_per_wgp: goes with"),
        (
            RDNA,
            "  wave64: {vgprs_per_lane: 768, alloc_granularity_vgprs: 12}\n",
            "",
            "sm.wave64: must be stated",
        ),
        (RDNA, "    fp64: null", "    fp64: 1.0e+12", ""),
    ],
)
def test_mistakes_name_the_key_and_the_rule(tmp_path: Path, base: str, old: str, new: str, message: str) -> None:
    assert old in base
    text = base.replace(old, new, 1)
    if message:
        assert message in str(load_text(tmp_path, text))
    else:  # a value where null was declared unknown, or the other way round, is fine
        (tmp_path / "mine.yaml").write_text(text)
        assert load_gpu(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("- a\n- b\n", "is a mapping of keys; this is a list"),
        ("just words\n", "this is a text"),
        ("null\n", "this is a null"),
        ("a: [1\n", "not YAML"),
        ("a: 'x\n", "not YAML"),
        ("a:\n\t- 1\n", "not YAML"),
        ("\x00", "not YAML"),
        (b"name: \xff\xfe\xfa", "not UTF-8"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", ":4: duplicate key b.c"),
        ("a: 1\n---\nb: 1\n", "a second document"),
        ("a: &x 1\nb: *x\n", ":1: anchor &x at a"),
        ("a: *x\n", "alias *x at a"),
        ("<<: {a: 1}\n", "<<: unknown key"),
        (
            "a: !!python/object/apply:os.system ['echo']\n",
            "tag tag:yaml.org,2002:python/object/apply:os.system at a",
        ),
        ("!!python/name:os.system\n", "tag tag:yaml.org,2002:python/name:os.system at the top"),
        ("a: !!int '1'\n", "tags are not allowed"),
        ("? [a]\n: 1\n", "a key that is no plain word"),
        ("? &x k\n: 1\n", "anchor &x"),
        ("a: 1\n" * 3, "duplicate key a"),
        ("# " + "x" * MAX_BYTES, "a GPU's file has at most 1,000,000"),
        ("schema: 2026-13-45\n", "schema: must be a whole number; it is '2026-13-45'"),
        ("schema: " + "9" * 5000, "schema"),
        ("%YAML 9.9\n---\na: 1\n", ""),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_bad_yaml_is_one_clear_error(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in str(load_text(tmp_path, text))


class LimitedParser(yaml.SafeLoader):
    """Refuses what is nested deeper than 100 while it looks ahead, as libyaml does since PyYAML 6.0.4 (there: 1000)."""

    def fetch_flow_collection_start(self, token_class: type[yaml.Token]) -> None:
        super().fetch_flow_collection_start(token_class)
        if self.flow_level > 100:
            text = "exceeded maximum nesting depth"
            raise yaml.scanner.ScannerError("while increasing flow level", self.get_mark(), text, self.get_mark())


@pytest.mark.parametrize("parser", [yaml.SafeLoader, LimitedParser, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
@pytest.mark.parametrize("text", ["[" * 500 + "]" * 500, "[" * 50_000, "{a: " * 50_000, "[" * 13 + "]" * 13])
def test_deep_nesting_is_refused_by_our_rule_whatever_the_parser_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parser: type, text: str
) -> None:
    monkeypatch.setattr("constrint.hwmodels.files._Parser", parser)
    assert str(load_text(tmp_path, f"a: {text}")).endswith("mine.yaml:1: more than 12 levels of nesting.")


def test_a_billion_laughs_are_refused_at_the_first_anchor(tmp_path: Path) -> None:
    lines = ['a: &a ["lol","lol"]'] + [
        f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert ":1: anchor &a at a; anchors are not allowed" in str(load_text(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("bad", ["./nowhere.yaml", "nowhere.yml", "/"])
def test_unreadable_paths(bad: str) -> None:
    with pytest.raises(HardwareModelError, match="cannot be read"):
        load_gpu(bad)


@pytest.mark.parametrize("bad", ["", "  ", None, 3, b"h200"])
def test_what_is_no_name_is_refused(bad: object) -> None:
    with pytest.raises(UsageError, match="non-empty string or a path"):
        load_gpu(bad)  # type: ignore[arg-type]


def test_numbers_may_be_written_as_in_yaml_1_2() -> None:
    parsed = parse_yaml("a: 1e12\nb: 9.5e3\nc: 007\nd: 1_000\ne: yes\nf: 1:30\ng: 2026-11-21\nh: 0x10\ni: '5'\nj:", "x")
    expected = {
        "a": 1e12,
        "b": 9500.0,
        "d": 1000,
        "e": "yes",
        "f": "1:30",
        "g": "2026-11-21",
        "h": "0x10",
        "i": "5",
    }
    assert {k: v for k, v in parsed.items() if k not in "cj"} == expected
    assert parsed["j"] is None


@settings(max_examples=150)
@given(st.binary(max_size=60) | st.text(alphabet="ab:-[]{}&*!?'\"|>%@ \n\t#.10,~", max_size=60))
def test_no_text_is_anything_but_a_value_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, text: str | bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HardwareModelError):
        load_gpu(path)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from([H200, MI300X, RDNA]), st.data())
def test_cutting_or_swapping_lines_of_a_good_file_never_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, base: str, data: st.DataObject
) -> None:
    lines = base.splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    change = data.draw(st.sampled_from(["drop", "repeat", "cut", "number", "null", "indent"]))
    line = lines[place]
    head = line.partition(":")[0]
    new = {
        "drop": [],
        "repeat": [line, line],
        "cut": [line[: len(line) // 2]],
        "number": [f"{head}: -7"],
        "null": [f"{head}: null"],
        "indent": [f"  {line}"],
    }[change]
    path = tmp_path_factory.getbasetemp() / "changed.yaml"
    path.write_text("\n".join([*lines[:place], *new, *lines[place + 1 :]]) + "\n")
    # Anything but a HardwareModelError fails the test; a few changes (a number that is free to differ) load.
    with contextlib.suppress(HardwareModelError):
        assert load_gpu(path).schema == 1


def test_one_name_reads_one_file_whole() -> None:
    script = (
        "import builtins, io, pathlib\n"
        "from constrint.hwmodels import load_gpu\n"
        "opened = []\n"
        "real = io.open\n"
        "pathlib.io.open = lambda *a, **k: (opened.append(str(a[0])), real(*a, **k))[1]\n"
        "load_gpu('7900xtx'); load_gpu('RX-7900-XTX')\n"
        "print([o.rpartition('/')[2] for o in opened if 'hwmodels/data' in o])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=DATA.parents[2]
    )
    opened = ast.literal_eval(done.stdout)
    assert len(opened) == len(set(opened)) + 1 == len(list_gpus()) + 1, "of the others the first lines are read once"
    assert opened[-1] == "rx-7900-xtx.yaml"


def test_importing_is_light() -> None:
    script = "import constrint.hwmodels, sys; print({*sys.modules} & {'torch', 'rich', 'typer', 'pynvml'})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=DATA.parents[2]
    )
    assert done.stdout.strip() == "set()"
