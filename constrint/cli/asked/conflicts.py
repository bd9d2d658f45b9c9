"""What has no solution, for a program: the document that stands on stdout where the answer would."""

from __future__ import annotations

from typing import Any

from constrint.errors import ConstrintError, InfeasibleError

SCHEMA = "constrint.infeasible/1"


def infeasible_document(error: InfeasibleError) -> dict[str, Any]:
    """The whole document of an error."""
    return {"schema": SCHEMA, "error": str(error), **conflict_document(error)}


def conflict_document(error: ConstrintError | None) -> dict[str, Any]:
    """The rules that cannot hold together: of the file or the one kernel, or of each kernel that was asked."""
    if not isinstance(error, InfeasibleError):
        return {"conflict": []}
    if len(error.by_kernel) < 2:
        return {"conflict": _members(error.conflict)}
    kernels = [{"kernel": name, "conflict": _members(conflict)} for name, conflict in error.by_kernel.items()]
    return {"conflict": [], "kernels": kernels}


def _members(conflict: Any) -> list[dict[str, str]]:
    """The rules as plain data; none where the conflict could not be narrowed down."""
    members = getattr(conflict, "members", ())
    return [{"rule": m.text, "because": m.because, "variable": m.variable} for m in members]
