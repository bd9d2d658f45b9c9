"""T1, the input format of the autotuning community (github.com/odgaard/TuningSchema, version 1.0.0).

A T1 file states a space without results, so it is only written: the parameters with the values of the records.
`constrint count --space` and the like read T1 files as spaces (`constrint.model.python.t1`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from constrint.answers.formats.records import of_one_kernel, workload_text
from constrint.answers.registry import RecordFormat
from constrint.answers.text import identifier
from constrint.errors import UsageError
from constrint.tune.store.record import TuningRecord, Value

#: Types of the schema; the first type of all values counts, and `bool` comes first since it is an `int` in Python.
TYPES: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "string": (str,)}


def write(records: Iterable[TuningRecord]) -> Iterator[str]:
    """A document whose space is all combinations of the records' values."""
    listed = of_one_kernel(records, "a T1 file")
    first = listed[0]
    parameters = [_parameter(name, [one.config[name] for one in listed]) for name in first.config]
    document = {
        "General": {"BenchmarkName": f"{first.kernel} on {first.gpu}, {workload_text(first)}", "OutputFormat": "JSON"},
        "ConfigurationSpace": {"TuningParameters": parameters, "Conditions": []},
        "KernelSpecification": {
            "Language": "CUDA",
            "KernelName": first.kernel,
            "KernelFile": f"{identifier(first.kernel)}.py",
            "Device": {"Name": first.gpu},
            "GlobalSizeType": "CUDA",
            "ProblemSize": list(first.sizes.values()),
            # The schema demands a grid; constrint's kernels compute their own.
            "GlobalSize": {"X": "1"},
            "LocalSize": {"X": "1"},
            "Arguments": [],
        },
    }
    yield json.dumps(document, indent=1) + "\n"


def _parameter(name: str, values: list[Value]) -> dict[str, object]:
    kinds = [kind for kind, types in TYPES.items() if all(isinstance(value, types) for value in values)]
    if not kinds:
        raise UsageError(
            f"T1 has parameters of one type each, and {name!r} has values of several, such as {values[0]!r}."
        )
    unique = list(dict.fromkeys(values))
    return {"Name": name, "Type": kinds[0], "Values": repr(unique), "Default": values[0]}


RECORDS = RecordFormat("t1", "parameters and values in the T1 format of the autotuning community", write)
