"""The kit for registers: what is stored is what the fit gives, families are large enough, and a new kernel fits in."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.resources.check import TITLES, check_rows
from constrint.kernels.resources.fit import LEAST_KERNELS, fit_all, left_out, summaries
from constrint.kernels.resources.margins import fit_with_margins
from constrint.kernels.resources.registers import Family, RegisterModel, name_of_weights, weighted
from constrint.kernels.resources.sample import draw, is_spilling, read_table
from constrint.kernels.resources.scores import SampledKernel
from constrint.kernels.resources.weights import DATA, load_models, read_weights
from constrint.model import Var, const
from constrint.select.limits import most_registers

ROOT = Path(__file__).resolve().parents[3]
needs_scipy = pytest.mark.skipif(
    importlib.util.find_spec("scipy") is None, reason="fitting needs scipy: it is in requirements-dev.txt"
)
#: Families to fit again, by the start of their names: all of one kernel; of the other simple ones, pooled ones, and
#: ones with targets of their own.
REFITTED = {
    "gemm": ("fma", "gfx1 ", "gfx9 mfma tf32", "sm_9x mma descriptor 16", "sm_9x wgmma"),
    "rnn": ("amd", "nvidia"),
}


@needs_scipy
@pytest.mark.parametrize("kernel", REFITTED)
def test_the_fit_gives_the_weights_in_use(kernel: str, tmp_path: Path) -> None:
    script, out = ROOT / "benchmarks" / "registers.py", tmp_path / "weights.json"
    command = [sys.executable, str(script), "fit", "--kernel", kernel, "--out", str(out), "--families"]
    # More threads than cores that are free make these small fits ten times slower.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *REFITTED[kernel]], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    in_use, fitted = load_models(kernel), read_weights(out).models
    assert len(fitted) >= 8
    for name, model in fitted.items():
        assert msgspec.structs.replace(model, left_out=in_use[name].left_out) == in_use[name], name


@pytest.mark.parametrize("kernel", REFITTED)
def test_weights_come_with_what_they_were_fitted_to(kernel: str) -> None:
    weights = read_weights(DATA / f"{kernel}.json")
    assert weights.fitted_on
    assert all(re.fullmatch(r"triton \d+\.\d+\.\d+", compiler) for compiler in weights.compilers)
    for name, model in weights.models.items():
        assert model.targets, name
        assert model.kernels > 0, name
        if model.left_out is None:
            # All its targets have weights of their own, or it is too small to leave kernels out.
            assert len(model.targets) > 1 or model.kernels < LEAST_KERNELS, name
        else:
            # The error of a fit to the same kernels could be zero, that of kernels that were left out is not.
            assert model.left_out.median_error, name


def test_no_two_families_have_the_same_weights() -> None:
    for kernel in REFITTED:
        models = [(model.estimate, model.bound, model.margins) for model in load_models(kernel).values()]
        assert all(model not in models[:number] for number, model in enumerate(models))


#: A kernel that the kit has never seen: 40 registers and one per accumulator, at the end 10 and two per accumulator.
TERMS = {"base": const(1), "accumulators": Var("sums"), "end_accumulators": Var("sums"), "end_base": const(1)}


def toy(rng: random.Random, families: tuple[Family, ...], limit: int = 128) -> SampledKernel:
    config = {"sums": rng.randrange(4, 96)}
    needed = max(40 + config["sums"], 10 + 2 * config["sums"])
    terms = {name: term.value(config) for name, term in TERMS.items()}
    return SampledKernel("sm_90", families, terms, min(needed, limit), limit, spills=needed > limit)


@needs_scipy
def test_another_kernel_needs_terms_and_a_sample_only() -> None:
    rng = random.Random(3)
    kernels = [toy(rng, (Family("toy"),)) for _ in range(200)]
    fits = fit_all(kernels, fit_with_margins)
    judged = summaries(left_out(kernels, fit_with_margins), lambda kernel: kernel.target)["sm_90"]
    assert judged.spilling >= 20
    assert judged.kept == 0
    assert judged.median_error is not None
    assert judged.median_error <= 2
    model = fits["toy"].model()
    for sums in (10, 30, 60):
        assert abs(weighted(model.estimate, TERMS).value({"sums": sums}) - max(40 + sums, 10 + 2 * sums)) <= 2


@needs_scipy
def test_families_with_few_kernels_take_the_weights_of_a_wider_one() -> None:
    rng = random.Random(4)
    wide = Family("any")
    kernels = [toy(rng, (Family("many"), wide)) for _ in range(60)] + [
        toy(rng, (Family("few"), wide)) for _ in range(9)
    ]
    fits = fit_all(kernels, fit_with_margins)
    assert set(fits) == {"many", "any"}
    assert name_of_weights((Family("few"), wide), fits) == "any"
    assert name_of_weights((Family("many", "many of sm_90"), wide), fits) == "many"
    with pytest.raises(UnsupportedError, match="no register weights for 'other'"):
        name_of_weights((Family("other"),), fits)


def test_a_bound_may_rest_on_the_estimate_or_stand_alone() -> None:
    alone = RegisterModel({"base": 1000}, {"base": 2000})
    assert alone.margins_of(is_ragged=True) == (0, 0)
    assert weighted(alone.bound, TERMS).value({}) == 20
    assert weighted({"base": 1001, "end_base": 1500}, TERMS, (100, 50)).value({}) == 11
    assert weighted({"no_term_of_it": 5}, TERMS).value({}) == 0


@pytest.mark.parametrize(("gpu", "num_warps", "registers"), [("h200", 4, 255), ("h200", 16, 128), ("mi300x", 8, 256)])
def test_warps_share_the_register_file(gpu: str, num_warps: int, registers: int) -> None:
    assert most_registers(load_gpu(gpu), const(num_warps)).value({}) == registers


def test_a_few_bytes_spill_by_choice_and_count_only_at_the_limit() -> None:
    assert is_spilling(65, 100, 255)
    assert not is_spilling(64, 100, 255)
    assert is_spilling(4, 253, 255)


@pytest.mark.parametrize("kernel", REFITTED)
def test_draws_yield_rows_that_stand_for_configurations_of_the_space(kernel: str) -> None:
    sample = importlib.import_module(f"constrint.kernels.{kernel}.sample").SAMPLE
    name = next(iter(sample.draws))
    rows = list(draw(sample, "gfx942", {name: 3}, seed=1))
    assert [row["kind"] for row in rows] == [name] * 3
    assert rows == list(draw(sample, "gfx942", {name: 3}, seed=1))
    for row in rows:
        gpu, spec, workload, config = sample.request(row)
        assert gpu.arch.target == "gfx942"
        assert set(config) == set(spec.problem(gpu, workload).variables)


def test_a_check_counts_what_is_stated_too_low_and_what_spills() -> None:
    sample = importlib.import_module("constrint.kernels.gemm.sample").SAMPLE
    _, rows = read_table(ROOT / "tests" / "data" / sample.tables[0])
    some = [row for row in rows if row["target"] == "sm_90"][::20]
    check = check_rows(sample, some)["sm_90"]
    assert check.compiled >= 40
    assert check.under == check.registers.kept == 0
    assert check.registers.spilling >= 2
    assert len(list(check.cells())) == len(TITLES)
    first = next(row for row in some if row["smem_bytes"])
    small = {**first, "smem_bytes": str(int(first["smem_bytes"]) + 10**6)}
    assert check_rows(sample, [small])["sm_90"].under == 1
