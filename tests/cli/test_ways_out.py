"""Every way out that `explain` proposes is applied, and the changed request has a solution."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select.rank import requests

TOO_LARGE = ("tile_m=256", "tile_n=256", "tile_k=128", "num_stages=5")
#: GPU, kernel and settings that cannot hold together.
CONFLICTS = [
    ("h200", "gemm", TOO_LARGE),
    ("h100-sxm", "gemm", TOO_LARGE),
    ("b200", "gemm", TOO_LARGE),
    ("a100", "gemm", TOO_LARGE),
    ("mi300x", "gemm", ("tile_m=256", "tile_n=256", "tile_k=128", "num_stages=4")),
    ("mi300x", "gemm", ("tile_m=256", "tile_n=128,256", "tile_k=128,256", "num_stages=4")),
    ("7900xtx", "gemm", ("tile_m=256", "tile_n=256", "num_warps=1")),
    ("t4", "gemm", ("tile_m=256", "tile_n=256", "num_warps=4")),
    ("mi300x", "lstm", ("num_warps=16", "tile_batch=16")),
    ("h200", "gru", ("tile_out=16", "num_warps=16", "tile_batch=64")),
]


def ways_out(err: str) -> dict[str, list[str]]:
    """The advice of an error, by kernel; "" where the request has only one."""
    advice: dict[str, list[str]] = {}
    kernel = ""
    for line in err.splitlines():
        if named := re.match(r"([\w-]+\.\w+): ", line):
            kernel = named[1]
        elif re.match(r"  (without --|\w+ = \d+ instead of )", line):
            advice.setdefault(kernel, []).append(line.strip())
    return advice


def applied(settings: tuple[str, ...], way: str) -> list[str]:
    """The settings after a way out."""
    changed = dict(setting.split("=", 1) for setting in settings)
    for change in way.split(" and "):
        dropped = re.fullmatch(r"without --set (\w+)=\S+", change)
        moved = re.fullmatch(r"(\w+) = (\d+) instead of [\d or]+", change)
        if dropped:
            del changed[dropped[1]]
        else:
            assert moved, f"{change!r} names no change of a --set"
            changed[moved[1]] = moved[2]
    return [f"{name}={value}" for name, value in changed.items()]


def options(settings: Any) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def check_advice(run: Any, gpu: str, kernel: str, settings: tuple[str, ...]) -> int:
    """Asks, applies every way out to the kernel that it is for, and asks again; gives how many there were."""
    code, _, err = run("explain", "--gpu", gpu, "--kernel", kernel, *options(settings))
    if code == 0:
        return 0
    assert code == 1, err
    assert "allow " not in err
    assert "drop " not in err
    advice = ways_out(err)
    for name, ways in advice.items():
        for way in ways:
            again = run("count", "--gpu", gpu, "--kernel", name or kernel, *options(applied(settings, way)))
            assert again[0] == 0, again[2]
            assert not re.search(r": 0 of ", again[1]), f"{way!r} does not help {name or kernel} on {gpu}: {settings}"
    return sum(map(len, advice.values()))


@pytest.mark.parametrize(("gpu", "kernel", "settings"), CONFLICTS)
def test_every_way_out_works(run: Any, gpu: str, kernel: str, settings: tuple[str, ...]) -> None:
    assert check_advice(run, gpu, kernel, settings) >= 1


@pytest.mark.parametrize("kernel", ["gemm", "lstm", "slstm-backward"])
@pytest.mark.parametrize("gpu", ["h200", "a100", "mi300x", "9070xt"])
def test_every_way_out_of_random_settings_works(run: Any, gpu: str, kernel: str) -> None:
    operation, model = load_kernel(kernel), load_gpu(gpu)
    able, _ = requests(operation, model, operation.default_workload(model))
    source = random.Random(f"{gpu} {kernel}")
    num_ways = 0
    for _ in range(6):
        variables = source.choice([r.problem.variables for r in able if r.problem.variables])
        names = source.sample(list(variables), min(len(variables), 5))
        # Large values exclude each other more often.
        settings = tuple(f"{name}={source.choice(variables[name].values[-2:])}" for name in names)
        num_ways += check_advice(run, gpu, kernel, settings)
    assert num_ways


def test_a_conflict_of_several_kernels_is_explained(run: Any) -> None:
    code, _, err = run("explain", "--gpu", "h200", *options(TOO_LARGE))
    assert code == 1
    assert set(ways_out(err)) == {"gemm.descriptor", "gemm.cuda", "gemm.pointer"}


def test_a_rule_of_the_users_own_is_moved_or_dropped(run: Any) -> None:
    code, _, err = run("explain", "--gpu", "mi300x", "--where", "tile_m * tile_n >= 65536", "--set", "tile_k=256")
    assert code == 1
    assert "tile_m * tile_n >= " in err.partition("Nearest ways out:")[2]
    code, _, err = run("explain", "--gpu", "mi300x", "--where", "tile_m > 100 * tile_n")
    assert code == 1
    assert "  without --where 'tile_m > 100 * tile_n'" in err
