"""The fit of the CUDA GEMM's cost model: it finds constants again, and named shapes are in no fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from benchmarks.gemm.cuda.fit import NAMES, Judgement, Measured, fit, left_out, product_of, read_measured
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.cost import ASSUMED, CONSTANTS, CudaConstants
from tests.support.cuda_products import columns_of

H200 = load_gpu("h200")
RESULTS = Path(__file__).parents[2] / "benchmarks/results/h200"
PARTS = ("launch_s", "latency_s", "dram_share", "matrix_share", "hand_over_s")
NEW = "m,n,k,dtype,layout,tile_m,tile_n,tile_k,num_stages,consumers,by_columns,in_turns,cluster_m,cluster_n,turned,"
NEW += "split_k,only_last,group_m,us,cublas_us,note\n384,512,640,bf16,rc,152,256,64,4,2,1,0,1,2,1,1,0,8,9.5,8.0,\n"
OLD = "m,n,k,dtype,layout,rows,columns,stages,consumers,by_columns,in_turns,cluster_rows,cluster_columns,turned,"
OLD += "resident,buffers,group,parts,only_last,us,cublas_us,note\n"
OLD += "384,512,640,bf16,rc,256,152,4,2,1,0,2,1,1,1,1,8,1,False,9.5,8.0,\n"

#: As `benchmarks.gemm.candidates` writes it, with a row of another kernel.
DRAWN = "m,n,k,dtype,layout,kernel,config,place,predicted_us,us,cublas_us,note\n"
DRAWN += "384,512,640,bf16,rc,gemm.pointer,tile_m=64 tile_n=64,0,9,9.0,8.0,\n"
DRAWN += (
    "384,512,640,bf16,rc,gemm.cuda,tile_m=152 tile_n=256 tile_k=64 num_stages=4 consumers=2 by_columns=1 in_turns=0 "
)
DRAWN += "cluster_m=1 cluster_n=2 turned=1 split_k=1 only_last=0 group_m=8,0,9,9.5,8.0,\n"


def made(shape: tuple[int, int, int], layout: str, constants: CudaConstants) -> Measured:
    """Configurations of a product whose times are the model's own."""
    product = product_of(shape, "bf16", layout)
    columns = {name: column[::997] for name, column in columns_of(H200, product).items()}
    whole = Measured(product, layout, columns, np.ones(len(columns["tile_m"])), 1.0)
    return replace(whole, seconds=whole.predicted(H200, constants))


def test_constants_are_found_again_from_times_of_the_model() -> None:
    truth = replace(ASSUMED, launch_s=6.5e-6, dram_share=0.55, matrix_share=0.8, hand_over_s=2e-6)
    shapes = ((300, 700, 200), (4000, 3000, 2000), (64, 9000, 8000), (200, 300, 12000), (9000, 5000, 100))
    measured = [
        made(shape, layout, truth) for shape, layout in zip(shapes, ("rr", "rc", "cr", "cc", "rc"), strict=True)
    ]
    found = fit(H200, measured, PARTS, ASSUMED)
    for each in measured:
        assert np.quantile(np.abs(each.predicted(H200, found) / each.seconds - 1), 0.9) < 0.02
    other = made((1000, 1200, 5000), "rr", truth)
    assert Judgement.of(other, other.predicted(H200, found)).share > 0.98


def test_times_of_named_shapes_change_no_constant() -> None:
    drawn = [made((300, 700, 200), "rr", CONSTANTS), made((1000, 1100, 1200), "rc", CONSTANTS)]
    named = made((1536, 1536, 1536), "rc", CONSTANTS)
    slower = replace(named, seconds=2 * named.seconds)
    first, second = ([found for _, found in left_out(H200, [*drawn, each])] for each in (named, slower))
    assert first == second
    assert first[0] != first[-1]


def test_tables_of_all_forms_say_the_same(tmp_path: Path) -> None:
    read = []
    for name, text in (("old.csv", OLD), ("new.csv", NEW), ("drawn.csv", DRAWN)):
        (tmp_path / name).write_text(f"# measured\n{text}")
        (one,) = read_measured(tmp_path / name, H200)
        read.append({key: column.tolist() for key, column in one.columns.items()})
    assert read[0] == read[1] == read[2]
    assert read[0]["tile_m"] == [152]
    assert read[0]["cluster_n"] == [2]


def test_the_constants_in_use_are_fitted_to_random_products_of_the_table() -> None:
    measured = read_measured(RESULTS / "gemm_cuda_present.csv.gz", H200)
    found = fit(H200, [each for each in measured if not each.is_named], NAMES, ASSUMED)
    for name in NAMES:
        assert getattr(CONSTANTS, name) == pytest.approx(getattr(found, name), rel=0.02), name
