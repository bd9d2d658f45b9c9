"""The tables of measured winners that come with the package: of kernels that there are, and valid by their rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec, spec_or_none
from constrint.select import Workload
from constrint.select.fingerprint import source_hash
from constrint.select.winners import SHIPPED, TunedEntry, read_tuned
from constrint.solve import why_not
from constrint.tune.goals import goals_of

FILES = sorted(SHIPPED.glob("tuned-*.json"))


def is_current(entry: TunedEntry) -> bool:
    spec = spec_or_none(entry.kernel)
    return spec is not None and entry.source_hash == source_hash(spec)


def test_there_is_one_for_the_h200() -> None:
    assert "tuned-h200-sxm.json" in [file.name for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_winner_is_valid_and_of_a_workload_that_stands_for_others(file: Path) -> None:
    table = read_tuned(file)
    assert not table.problem
    gpu = load_gpu(table.gpu)
    stale = {entry.kernel for entry in table.entries if not is_current(entry)}
    asked = set()
    for entry in table.entries:
        key = repr((entry.operation, entry.dtype, entry.sizes, entry.options, entry.fixed))
        assert key not in asked
        asked.add(key)
        if entry.kernel in stale:
            continue
        spec = load_spec(entry.kernel)
        workload = Workload(entry.operation, entry.sizes, entry.dtype, entry.options)
        config = {name: value for name, value in entry.config.items() if isinstance(value, int)}
        broken = [text for text in why_not(spec.problem(gpu, workload), config) if text.constraint is not None]
        assert not [text for text in broken if text.constraint is not None and text.constraint.kind == "certain"]
        assert all(config[name] == value for name, value in entry.fixed.items())
        # What is looked up is what was tuned.
        assert all(goal.workload == workload for goal in goals_of(load_kernel(entry.operation), gpu, [workload]))
    if stale:
        pytest.skip(f"{', '.join(sorted(stale))} changed since {file.name} was measured: its winners are not used")
