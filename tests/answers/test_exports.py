"""JSON, CSV and arguments for CUTLASS; what every format has in common; and formats from outside."""

from __future__ import annotations

import csv
import io
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from constrint import __version__, enumerate_space, load_gpu, load_kernel, load_space, parse, problem_from_space, rank
from constrint.answers.registry import EXPORTS
from constrint.errors import UnknownNameError, UsageError
from constrint.export import Export, Format, export, format_named, list_formats, register
from constrint.model import Var
from constrint.select import Workload
from constrint.select.rank import KernelProblem, Ranking, requests

OBJECTIVE = """
problem "tiles"
var tile_m in {16, 32, 64}
var tile_n in {16, 32}
small: tile_m * tile_n <= 1024 because "it has to fit"
maximise tile_m * tile_n + tile_n
"""


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return rank(load_kernel("gemm"), load_gpu("h200"), top=4)


@pytest.fixture(scope="module")
def descriptor() -> KernelProblem:
    """A small part of the descriptor kernel's space."""
    gpu, operation = load_gpu("h200"), load_kernel("gemm.descriptor")
    ((request,), _) = requests(operation, gpu, operation.default_workload(gpu))
    for name, value in {"group_m": 8, "split_k": 1, "persistent": 0, "tile_k": 64}.items():
        request.problem.add(Var(name) == value)
    return request


def test_a_ranking_as_json_says_what_solve_says_and_where_it_comes_from(ranking: Ranking) -> None:
    document = json.loads(export(ranking, "json", top=3, rename={"tile_m": "BLOCK_M"}))
    assert document["schema"] == "constrint.export/1"
    assert document["provenance"] == {
        "constrint": __version__, "figures": "modelled", "gpu": "H200-SXM", "target": "sm_90a", "operation": "gemm",
        "sizes": {"m": 4096, "n": 4096, "k": 4096}, "options": {}, "dtype": "bf16",
    }  # fmt: skip
    found = document["ranking"]
    assert found["num_valid"] == ranking.num_valid
    assert "seconds" not in found, "the wall time is another one each time"
    assert len(found["candidates"]) == 3
    for entry, candidate in zip(found["candidates"], ranking.candidates, strict=False):
        assert entry["kernel"] == candidate.kernel
        assert entry["predicted_s"] == candidate.cost.seconds
        assert entry["config"].get("BLOCK_M") == candidate.config.get("tile_m")
        assert "tile_m" not in entry["config"]


def test_a_space_as_json_is_read_again_by_space(descriptor: KernelProblem, tmp_path: Path) -> None:
    space = enumerate_space(descriptor.problem)
    path = tmp_path / "space.json"
    path.write_text(export(space, "json", about=descriptor, top=5))
    document = json.loads(path.read_text())
    assert document["title"].startswith("gemm.descriptor m=4096 n=4096 k=4096 bf16 on H200-SXM")
    assert (document["num_valid"], document["num_product"], len(document["configs"])) == (space.size, 720_000, 5)
    assert len(document["rules"]) == len(document["restrictions"])
    assert {"name", "kind", "because", "rule"} == document["rules"][0].keys()
    assert "figures" not in document["provenance"], "nothing was modelled"
    assert enumerate_space(load_space(path)) == space


def test_csv_has_a_row_per_configuration() -> None:
    ranking = rank(load_kernel("gemm"), load_gpu("h200"), top=400)
    rows = list(csv.DictReader(io.StringIO(export(ranking, "csv"))))
    assert [row["rank"] for row in rows] == [str(place) for place in range(1, 401)]
    assert len({row["kernel"] for row in rows}) > 1
    for row, candidate in zip(rows, ranking.candidates, strict=True):
        assert {name: row[name] for name in candidate.config} == {n: str(v) for n, v in candidate.config.items()}
        assert float(row["predicted_s"]) == candidate.cost.seconds
        use = candidate.resources
        assert row["smem_bytes_per_block"] == ("" if use is None else str(use.smem_bytes)), "a library says nothing"
        assert (row["gpu"], row["dtype"], row["size_m"]) == ("H200-SXM", "bf16", "4096")
        lacking = set(rows[0]) & {"persistent", "split_k"} - candidate.config.keys()
        assert all(row[name] == "" for name in lacking)


def test_csv_of_a_space_lists_all_or_the_best() -> None:
    space = enumerate_space(parse(OBJECTIVE))
    every = list(csv.DictReader(io.StringIO(export(space, "csv"))))
    assert len(every) == space.size == 5
    assert every[0] == {"rank": "1", "tile_m": "32", "tile_n": "32"}, "the largest product, and of these the widest"
    best = list(csv.DictReader(io.StringIO(export(space, "csv", top=2))))
    assert best == every[:2]


def test_csv_quotes_what_has_commas_and_refuses_two_columns_of_a_name() -> None:
    hostile = 'a,"b"\n=1'
    space = enumerate_space(problem_from_space({"mode": [hostile]}))
    assert list(csv.DictReader(io.StringIO(export(space, "csv")))) == [{"rank": "1", "mode": hostile}]
    ranks = enumerate_space(problem_from_space({"rank": [1]}))
    with pytest.raises(UsageError, match="another column would both be called 'rank': --rename rank=other_name"):
        export(ranks, "csv")
    assert export(ranks, "csv", rename={"rank": "place"}) == "rank,place\n1,1\n"


def test_tiles_are_arguments_of_the_profiler() -> None:
    sizes, options = {"m": 512, "n": 1024, "k": 2048}, {"transpose_b": 1, "batch": 3}
    gpu = load_gpu("a100")
    ranking = rank(load_kernel("gemm.pointer"), gpu, Workload("gemm", sizes, "fp16", options), top=2)
    lines = export(ranking, "cutlass-like").splitlines()
    config = ranking.candidates[0].config
    shape = f"{config['tile_m']} {config['tile_n']} {config['tile_k']}"
    assert f"stages({config['num_stages']}) cta({shape}) splitK({config['split_k']}) cluster(1 1)" in "\n".join(lines)
    arguments = dict(word.removeprefix("--").split("=") for word in next(li for li in lines if li[0] != "#").split())
    assert arguments == {
        "operation": "Gemm", "m": "512", "n": "1024", "k": "2048", "A": "f16:row", "B": "f16:column", "accum": "f32",
        "batch_count": "3", "cta_m": str(config["tile_m"]), "cta_n": str(config["tile_n"]),
        "cta_k": str(config["tile_k"]), "cluster_m": "1", "cluster_n": "1", "cluster_k": "1",
        "stages": str(config["num_stages"]), "split_k_slices": str(config["split_k"]),
    }  # fmt: skip


def test_tiles_of_a_users_space_may_have_other_names() -> None:
    space = enumerate_space(problem_from_space({"BM": [64], "BN": [128], "BK": [32], "cluster_m": [2]}))
    with pytest.raises(UsageError, match=r"has no tile_m, tile_n, tile_k.*--rename BLOCK_M=tile_m"):
        export(space, "cutlass-like")
    text = export(space, "cutlass-like", rename={"BM": "tile_m", "BN": "tile_n", "BK": "tile_k"})
    shape = "--cta_m=64 --cta_n=128 --cta_k=32 --cluster_m=2 --cluster_n=1 --cluster_k=1 --split_k_slices=1"
    assert text.endswith(f"--operation=Gemm {shape}\n")


def test_a_recurrent_layer_has_no_tiles_of_a_product() -> None:
    ranking = rank(load_kernel("lstm"), load_gpu("h200"), top=1)
    with pytest.raises(UsageError, match=r"lstm\.\w+ has no tile_m.*json, csv and c-header take any kernel"):
        export(ranking, "cutlass-like")
    for name in ("json", "csv", "c-header"):
        assert ranking.candidates[0].kernel in export(ranking, name)


def test_formats_take_what_they_can_hold(ranking: Ranking, descriptor: KernelProblem) -> None:
    with pytest.raises(UsageError, match=r"kernel-tuner holds a space with its rules.*enumerate_space returns"):
        export(ranking, "kernel-tuner")
    with pytest.raises(UnknownNameError, match=r"unknown export format 'kernel_tuner'\. Nearest: kernel-tuner"):
        export(ranking, "kernel_tuner")
    with pytest.raises(UsageError, match="top must be at least 1, got 0"):
        export(ranking, "csv", top=0)
    too_many = enumerate_space(problem_from_space({name: list(range(1, 40)) for name in "abcd"}))
    with pytest.raises(UsageError, match="2,313,441 configurations are too many for a list"):
        export(too_many, "csv")
    assert export(too_many, "csv", top=1) == "rank,a,b,c,d\n1,1,1,1,1\n"


def test_a_kernel_without_parameters_is_a_row_and_no_space() -> None:
    gpu, operation = load_gpu("h200"), load_kernel("lstm.alternating")
    ((request,), _) = requests(operation, gpu, operation.default_workload(gpu))
    (row,) = csv.DictReader(io.StringIO(export(rank(operation, gpu), "csv")))
    assert row["kernel"] == "lstm.alternating"
    assert row["registers_per_thread"] == ""
    with pytest.raises(UsageError, match="has no parameters, so that there is no space to write"):
        export(enumerate_space(request.problem), "kernel-tuner", about=request)


def test_every_format_is_the_same_each_time_and_says_where_it_is_from(
    ranking: Ranking, descriptor: KernelProblem
) -> None:
    space = enumerate_space(descriptor.problem)
    for name in ("triton", "json", "csv", "c-header", "kernel-tuner", "cutlass-like"):
        found: Any = space if name == "kernel-tuner" else ranking
        about = descriptor if name == "kernel-tuner" else None
        text = export(found, name, about=about)
        assert text == export(found, name, about=about)
        assert "H200-SXM" in text
        assert name == "csv" or __version__ in text
        assert text.isascii()
        assert text.endswith("\n")
        assert max(map(len, text.splitlines()), default=0) < 20_000


def test_a_program_and_a_package_add_formats(ranking: Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(found: Export) -> str:
        return f"{len(found.rows())} of {found.title}\n"

    monkeypatch.setattr(EXPORTS, "_added", {})
    register(Format("count", "how many there are", count, ("ranking",)))
    assert export(ranking, "count").startswith("4 of gemm m=4096")
    assert list_formats()[-1] == "count"

    offered = Format("other", "from a package", count)

    class Entry:
        name = "other"

        @staticmethod
        def load() -> Format:
            return offered

    def entry_points(*, group: str) -> list[type[Entry]]:
        assert group == "constrint.exports"
        return [Entry]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert format_named("other") is offered
    monkeypatch.setattr(Entry, "name", "misnamed")
    with pytest.raises(UsageError, match=r"entry point 'misnamed' of the group constrint\.exports must name"):
        format_named("misnamed")
