"""Spaces in T1: the space of the schema's example forms, and one clear error for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import ConstrintError, UsageError
from constrint.model.python.restrictions import load_space, problem_from_space
from constrint.solve import count

DOCUMENT: dict[str, Any] = {
    "General": {"BenchmarkName": "convolution", "OutputFormat": "JSON"},
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "block", "Type": "int", "Values": "[16, 32, 64]", "Default": 16},
            {"Name": "tile", "Type": "int", "Values": "list(range(1, 9))"},
            {"Name": "mode", "Type": "string", "Values": "('row', 'column')"},
            {"Name": "pad", "Type": "bool", "Values": "[0, 1]"},
            {"Name": "wide", "Type": "int", "Values": "[128 - 2**i * -i // 2 % 7 for i in range(3, 9, 2)]"},
        ],
        "Conditions": [{"Expression": "block * tile <= 128", "Parameters": ["block", "tile"]}],
    },
    "KernelSpecification": {"KernelName": "convolution_kernel"},
}


def load(folder: Path, document: object) -> Any:
    path = folder / "space.json"
    path.write_text(json.dumps(document))
    return load_space(path)


def test_a_t1_file_is_a_space(tmp_path: Path) -> None:
    problem = load(tmp_path, DOCUMENT)
    params: dict[str, Any] = {
        "wide": [128 - 2**i * -i // 2 % 7 for i in (3, 5, 7)],
        "block": [16, 32, 64],
        "tile": list(range(1, 9)),
        "mode": ["row", "column"],
        "pad": [0, 1],
    }
    assert count(problem) == count(problem_from_space(params, ["block * tile <= 128"])) == 168
    assert problem.name == "convolution"


@pytest.mark.parametrize(("values", "kind", "rule"), [
    ("__import__('os').abort()", "int", "must be a list such as"),
    ("[x for x in range(3) if abort()]", "int", "must be a list such as"),
    ("[x.real for x in range(3)]", "int", "must be a list such as"),
    ("[9**9**9**x for x in range(3)]", "int", "must be a list such as"),
    ("[1 // x for x in range(3)]", "int", "must be a list such as"),
    ("[x for x in range(3) for y in range(3)]", "int", "must be a list such as"),
    ("range(10**9)", "int", "must be a list such as"),
    ("range(1000000000)", "int", "must be a list such as"),
    ("list(list(range(2), 3))", "int", "must be a list such as"),
    ("range(1, 4, 0)", "int", "must be a list such as"),
    ("[" * 5000, "int", "must be a list such as"),
    ("", "int", "must be a list such as"),
    ("['a', 1]", "string", "the value '1' is not of the type string"),
    ("[1.5]", "int", "the value '1.5' is not of the type int"),
    ("[1]", "complex", "the type 'complex' is none of int, uint, float, bool, string"),
    ("[]", "int", "no values|empty|at least one"),
    (3, "int", "Values must be text, got '3'"),
])  # fmt: skip
def test_values_that_are_none_are_refused_and_never_evaluated(
    tmp_path: Path, values: object, kind: str, rule: str
) -> None:
    space = {"TuningParameters": [{"Name": "x", "Type": kind, "Values": values}]}
    with pytest.raises(ConstrintError) as told:
        load(tmp_path, {"ConfigurationSpace": space})
    assert any(words in str(told.value) for words in rule.split("|"))


@pytest.mark.parametrize(("space", "rule"), [
    (None, "TuningParameters must be a list, got 'None'"),
    ({"TuningParameters": [3]}, "TuningParameters[0]: Name must be text"),
    ({"TuningParameters": 2 * [{"Name": "x", "Type": "int", "Values": "[1]"}]}, "the parameter 'x' is given twice"),
    ({"TuningParameters": [], "Conditions": "x > 1"}, "Conditions must be a list"),
    ({"TuningParameters": [], "Conditions": [{}]}, "Conditions[0]: Expression must be text"),
])  # fmt: skip
def test_a_document_of_another_form_is_refused(tmp_path: Path, space: object, rule: str) -> None:
    with pytest.raises(UsageError) as told:
        load(tmp_path, {"ConfigurationSpace": space})
    assert rule in str(told.value)
