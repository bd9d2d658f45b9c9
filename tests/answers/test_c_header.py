"""The header is compiled into programs in C and in C++ that use every part of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from constrint import enumerate_space, load_gpu, load_kernel, problem_from_space, rank
from constrint.answers.text import c_literal
from constrint.errors import UsageError
from constrint.export import export
from constrint.select.rank import Ranking

PROGRAM = """
#include "found.h"
#include "found.h"
#define TILE_M CONSTRINT_TILE_M
#include <stdio.h>
static_assert(CONSTRINT_SMEM_BYTES_PER_BLOCK <= CONSTRINT_MAX_SMEM_BYTES_PER_BLOCK, "it fits");
static_assert(CONSTRINT_THREADS_PER_BLOCK <= CONSTRINT_MAX_THREADS_PER_BLOCK, "it can be launched");
static_assert(CONSTRINT_NUM_WARPS * CONSTRINT_WARP_SIZE == CONSTRINT_THREADS_PER_BLOCK, "warps are whole");
static_assert(CONSTRINT_0_PREDICTED_NS <= CONSTRINT_1_PREDICTED_NS, "the best stands first");
#if CONSTRINT_TILE_M * CONSTRINT_TILE_N < 1
#error "the preprocessor computes with them"
#endif
int main(void) {
    printf("%d %d %d %d %s %s", TILE_M, CONSTRINT_1_TILE_M, CONSTRINT_NUM_CONFIGS, CONSTRINT_SIZE_M,
           CONSTRINT_KERNEL, CONSTRINT_GPU);
    return 0;
}
"""
COMPILERS = {"c": ("cc", "-std=c11", "-include", "assert.h"), "cpp": ("c++", "-std=c++17")}


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return rank(load_kernel("gemm.pointer"), load_gpu("h200"), top=3)


@pytest.mark.parametrize("language", COMPILERS)
def test_a_program_compiles_with_the_header(language: str, ranking: Ranking, tmp_path: Path) -> None:
    compiler, *options = COMPILERS[language]
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler} on this machine")
    (tmp_path / "found.h").write_text(export(ranking, "c-header"))
    source = tmp_path / f"main.{language}"
    source.write_text(PROGRAM)
    strict = ("-Wall", "-Wextra", "-Werror", "-pedantic", str(source), "-o")
    configs = [candidate.config for candidate in ranking.candidates]
    for place in (0, 2):
        subprocess.run(
            [compiler, *options, *strict, f"./{place}", f"-DCONSTRINT_CONFIG={place}"], cwd=tmp_path, check=True
        )
        done = subprocess.run([tmp_path / str(place)], check=True, capture_output=True, text=True)
        assert done.stdout == f"{configs[place]['tile_m']} {configs[1]['tile_m']} 3 4096 gemm.pointer H200-SXM"
    beyond = subprocess.run(
        [compiler, *options, "-E", str(source), "-DCONSTRINT_CONFIG=3"], cwd=tmp_path, capture_output=True, text=True
    )
    assert beyond.returncode != 0
    assert "CONSTRINT_CONFIG must be at least 0 and less than CONSTRINT_NUM_CONFIGS" in beyond.stderr


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler on this machine")
def test_values_of_any_type_are_what_c_reads(tmp_path: Path) -> None:
    hostile = 'a"\\\n*/é%s??/'
    values = {"low": -(2**63), "wide": 2**62, "ratio": -0.5, "fast": True, "text": hostile, "none": None}
    space = enumerate_space(problem_from_space({name: [value] for name, value in values.items()}))
    (tmp_path / "found.h").write_text(export(space, "c-header", title='x */ "\n#error'))
    program = """
    #include "found.h"
    #include <stdio.h>
    int main(void) {
        long long low = CONSTRINT_LOW, wide = CONSTRINT_WIDE CONSTRINT_NONE;
        printf("%lld %lld %g %d %s", low, wide, 1 - CONSTRINT_RATIO, CONSTRINT_FAST, CONSTRINT_TEXT);
        return 0;
    }
    """
    (tmp_path / "main.c").write_text(program)
    command = ["cc", "-std=c99", "-Wall", "-Werror", "-Wno-trigraphs", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True)
    assert done.stdout == f"{-(2**63)} {2**62} 1.5 1 {hostile}"


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (
            {"x": [1], "X": [2]},
            r"'X' cannot be the name of a C macro of its own \(CONSTRINT_X\): --rename X=other_name",
        ),
        ({"1_x": [1]}, "'1_x' cannot be the name of a C macro of its own"),
        ({"num_configs": [1]}, "'num_configs' cannot be the name of a C macro of its own"),
        ({"∆": [1]}, "'∆' cannot be the name of a C macro"),
        ({"x": [2**63]}, "x: 9223372036854775808 has more than the 64 bits of a C integer"),
        ({"x": [(1, 2)]}, r"x: \(1, 2\) cannot be written in C"),
        ({"x": [float("inf")]}, "x: inf cannot be written in C"),
    ],
)
def test_what_c_cannot_hold_is_refused(params: dict[str, list[object]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        export(enumerate_space(problem_from_space(params)), "c-header")


def test_the_least_integer_is_an_expression() -> None:
    assert c_literal(-(2**63)) == "(-9223372036854775807 - 1)"
