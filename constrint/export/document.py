"""A ranking as plain data, in the form that `constrint docs json` describes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from constrint.select import Candidate, Ranking
from constrint.select.ranking import block_of


def ranking_document(ranking: Ranking) -> dict[str, Any]:
    """What was asked, how many configurations there are, and the candidates with their figures."""
    options = {"options": dict(ranking.workload.options)} if ranking.workload.options else {}
    return {
        "kernel": ranking.operation.name,
        "gpu": ranking.gpu.name,
        "target": ranking.gpu.arch.target,
        "sizes": dict(ranking.workload.sizes),
        **options,
        "dtype": ranking.workload.dtype,
        "figures": "compiled" if any(map(is_compiled, ranking.candidates)) else "modelled",
        "num_product": ranking.num_product,
        "num_valid": ranking.num_valid,
        "seconds": ranking.seconds,
        "roofline_s": ranking.roofline_s,
        "assumptions": list(ranking.assumptions),
        "kernels": [asdict(space) for space in ranking.spaces],
        "candidates": [_candidate(ranking, candidate) for candidate in ranking.candidates],
    }


def is_compiled(candidate: Candidate) -> bool:
    """Whether the candidate's resources are what a compiler says."""
    return candidate.resources is not None and candidate.resources.compiled is not None


def _candidate(ranking: Ranking, candidate: Candidate) -> dict[str, Any]:
    use, cost = candidate.resources, candidate.cost
    operations, moved_bytes = ranking.work_of(candidate)
    compiled = None if use is None or use.compiled is None else asdict(use.compiled)
    return {
        "kernel": candidate.kernel,
        "config": dict(candidate.config),
        **block_of(candidate),
        "compiled": compiled,
        "problem": candidate.problem,
        "predicted_s": cost.seconds,
        "op_per_s": operations / cost.seconds if operations else None,
        "bytes_per_s": moved_bytes / cost.seconds,
        "roofline_share": cost.roofline_share,
        "bound_by": cost.bound_by,
        "parts_s": dict(cost.parts_s),
    }
