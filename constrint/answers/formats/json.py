"""JSON: a ranking with all figures, or a space with its values, rules and configurations.

`constrint docs export` states the schema. `--space` reads a written space: `params` and `restrictions`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from constrint.answers.exported import Export
from constrint.answers.pruned import pruned
from constrint.answers.ranking import RankingResult
from constrint.answers.registry import Format
from constrint.errors import UsageError
from constrint.select.rank import Ranking

SCHEMA = "constrint.export/1"


def write(export: Export) -> str:
    """The document, indented."""
    body = _ranking(export.ranking, export) if export.ranking is not None else _space(export)
    document = {"schema": SCHEMA, "title": export.title, "provenance": export.provenance, **body}
    try:
        return json.dumps(document, indent=1, allow_nan=False, default=_refuse) + "\n"
    except ValueError as error:
        raise UsageError(f"JSON has neither infinity nor not-a-number: {error}; csv takes them.") from None


def _refuse(value: object) -> None:
    raise UsageError(f"{value!r} ({type(value).__name__}) is no value that JSON has; csv takes it.")


def _ranking(ranking: Ranking, export: Export) -> dict[str, Any]:
    """The ranking under its new names, without the wall time, which changes from run to run."""
    body: dict[str, Any] = msgspec.to_builtins(RankingResult.of(ranking))
    del body["seconds"]
    rows = export.rows()
    body["candidates"] = [
        {**candidate, "config": dict(row.config)} for candidate, row in zip(body["candidates"], rows, strict=False)
    ]
    return {"ranking": body}


def _space(export: Export) -> dict[str, Any]:
    assert export.space is not None
    space = pruned(export)
    for name, values in space.params.items():
        wrong = next((value for value in values if isinstance(value, tuple)), None)
        if wrong is not None:
            raise UsageError(f"{name} has the value {wrong!r}, and JSON has no tuples; csv and kernel-tuner take it.")
    rules = [
        {"name": r.rule.name, "kind": r.rule.kind, "because": r.rule.because, "rule": str(r.rule)}
        for r in space.restrictions
    ]
    return {
        "name": export.space.problem.name,
        "num_product": export.space.product_size,
        "num_valid": export.space.size,
        "params": {name: list(values) for name, values in space.params.items()},
        "restrictions": [restriction.text for restriction in space.restrictions],
        "rules": rules,
        "configs": [dict(row.config) for row in export.rows()],
    }


FORMAT = Format("json", "everything that is known, with where it comes from", write)
