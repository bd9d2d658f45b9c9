"""`constrint solve --export`: what it writes where, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
EXAMPLE = Path(__file__).parents[2] / "examples" / "tiles.constrint"


def test_a_ranking_goes_to_stdout_or_to_a_file(run: Call, tmp_path: Path) -> None:
    asked = ("solve", "--gpu", "mi300x", "--top", 3, "--export", "triton")
    code, text, err = run(*asked, "--rename", "tile_m=BLOCK_M", "--rename", "split_k=", "--set", "split_k=1")
    assert (code, err) == (0, "")
    assert text.startswith("# gemm m=4096 n=4096 k=4096 bf16 on MI300X (gfx942)\n")
    assert text.count("triton.Config(") == text.count('"BLOCK_M": ') == 3
    assert "split_k" not in text
    path = tmp_path / "configs.py"
    assert run(*asked, "--output", path) == (0, "", f"wrote {path}\n")
    written = path.read_text()
    assert written.count("triton.Config(") == 3
    code, out, err = run(*asked, "--top", 1, "--output", path)
    assert (code, out) == (2, "")
    assert f"{path} exists; --force writes over it" in err
    assert path.read_text() == written
    assert run(*asked, "--top", 1, "--output", path, "--force")[0] == 0
    assert path.read_text().count("triton.Config(") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["configs.py"], "nothing else is left behind"


def test_what_was_asked_is_in_the_space_that_is_written(run: Call, tmp_path: Path) -> None:
    rules = ("--kernel", "gemm.pointer", "--set", "tile_k=64", "--where", "tile_m == tile_n", "--m", 512)
    code, text, _ = run("solve", "--gpu", "h200", *rules, "--export", "kernel-tuner")
    assert code == 0
    assert text.startswith("# gemm.pointer m=512 n=4096 k=4096 bf16 on H200-SXM (sm_90a)\n")
    assert '"tile_k": [64],' in text
    assert "# where: asked for by --where 'tile_m == tile_n'" in text
    assert "'(tile_m == tile_n) and True'" in text
    path = tmp_path / "space.json"
    assert run("solve", "--gpu", "h200", *rules, "--all", "--export", "json", "--output", path)[0] == 0
    document = json.loads(path.read_text())
    assert len(document["configs"]) == document["num_valid"] > 100
    _, counted, _ = run("count", "--space", path)
    assert f"{document['num_valid']:,} of" in counted


def test_a_problem_of_a_file_is_written(run: Call) -> None:
    code, text, _ = run("solve", "--problem", EXAMPLE, "--export", "csv", "--top", 4)
    assert code == 0
    assert len(list(csv.DictReader(io.StringIO(text)))) == 4
    code, text, _ = run("solve", "--problem", EXAMPLE, "--export", "kernel-tuner")
    assert code == 0
    assert text.startswith(f"# {EXAMPLE}\n")
    assert "'4096 % tile_k == 0'" in text


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--export", "tritn"), 2, "unknown export format 'tritn'. Nearest: triton. Known: c-header, csv"),
        (("--export", "kernel-tuner"), 2, "gemm.cuda, gemm.skinny, gemm.library, gemm.pointer: choose one"),
        (("--export", "csv", "--all"), 2, "csv writes one space, and there are gemm.descriptor"),
        (("--export", "csv", "--rename", "tile_m"), 2, "--rename takes NAME=NEW, such as tile_m=BLOCK_M"),
        (("--export", "csv", "--rename", "tile_q=Q"), 2, "unknown parameter 'tile_q'"),
        (("--export", "triton", "--kernel", "lstm.cuda"), 2, "it is no kernel in Triton"),
        (("--export", "csv", "--where", "tile_k > 1000"), 1, "These 2 constraints cannot hold together"),
        (("--export", "csv", "--json"), 2, "choose one, such as --export json"),
        (("--export", "csv", "--backend", "cpsat"), 2, "--all takes another --backend"),
        (("--export", "csv", "--output", "/nowhere/at/all.csv"), 1, "cannot write /nowhere/at/all.csv: No such file"),
        (("--output", "x.csv"), 2, "--output goes with --export FORMAT; formats are triton, json, csv"),
        (("--force",), 2, "--force goes with --export FORMAT"),
    ],
)  # fmt: skip
def test_mistakes_are_told(run: Call, arguments: tuple[str, ...], code: int, told: str) -> None:
    seen, out, err = run("solve", "--gpu", "h200", *arguments)
    assert (seen, out) == (code, "")
    assert told in " ".join(err.split())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk_is_an_error_and_a_device_stays_one(run: Call) -> None:
    code, _, err = run("solve", "--gpu", "h200", "--export", "csv", "--output", "/dev/full")
    assert code == 1
    assert err == "error: cannot write /dev/full: No space left on device; name another file with --output.\n"
    assert not Path("/dev/full").is_file()
