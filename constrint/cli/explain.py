"""`constrint explain`: why a kernel's space is as it is - per rule what it removes - or why nothing fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.cli.request import Dtype, Gpu, Json, Kernel, Request, Set, Size, Where, requests
from constrint.errors import InfeasibleError

if TYPE_CHECKING:
    from constrint.solve import SearchSpace

SCHEMA = "constrint.explain/1"


def explain(
    gpu: Gpu,
    kernel: Kernel = None,
    m: Size = None,
    n: Size = None,
    k: Size = None,
    dtype: Dtype = None,
    set_: Set = None,
    where: Where = None,
    json: Json = False,
) -> None:
    """Say per rule how many configurations it removes; for an infeasible request, the conflict and the way out."""
    from constrint.solve import enumerate_space

    documents = []
    for request in requests(gpu, kernel, {"m": m, "n": n, "k": k}, dtype, set_, where):
        space = enumerate_space(request.problem)
        if space.size == 0:
            raise _no_config(request)
        documents.append(_document(request, space))
    if json:
        from constrint.cli.output import print_json

        print_json({"schema": SCHEMA, "results": documents})
        return
    for document in documents:
        _print(document)


def _no_config(request: Request) -> InfeasibleError:
    from constrint.select.rank import infeasible
    from constrint.solve import relaxations

    error = infeasible(request.spec, request.gpu, request.workload, request.problem)
    ways = relaxations(request.problem)
    if not ways:
        return error
    return InfeasibleError(f"{error}\nNearest ways out:\n" + "\n".join(f"  {way}" for way in ways), error.conflict)


def _document(request: Request, space: SearchSpace) -> dict[str, object]:
    from constrint.solve import pruning

    return {
        "kernel": request.workload.kernel,
        "gpu": request.gpu.name,
        "sizes": dict(request.workload.sizes),
        "dtype": request.workload.dtype,
        "num_product": space.product_size,
        "num_valid": space.size,
        "parameters": [
            {"name": p.name, "values": list(p.values), "meaning": p.meaning, "because": p.because}
            for p in request.spec.params(request.gpu, request.workload)
        ],
        "rules": [
            {
                "name": found.constraint.name,
                "rule": str(found.constraint),
                "because": found.constraint.because,
                "removes_alone": found.removes_alone,
                "removes_only": found.removes_only,
            }
            for found in pruning(request.problem)
        ],
    }


def _print(document: dict[str, object]) -> None:
    from constrint.cli.output import print_table, say, wrap

    sizes = document["sizes"]
    assert isinstance(sizes, dict)
    text = " ".join(f"{name}={size}" for name, size in sizes.items())
    say(f"{document['kernel']} {text} {document['dtype']} on {document['gpu']}")
    product = document["num_product"]
    assert isinstance(product, int)
    say(f"{product:,} configs in the full product, {document['num_valid']:,} valid")
    say()
    say("parameters")
    parameters, rules = document["parameters"], document["rules"]
    assert isinstance(parameters, list)
    assert isinstance(rules, list)
    print_table(
        ["name", "values", "meaning"],
        [[p["name"], " ".join(str(v) for v in sorted(p["values"])), p["meaning"]] for p in parameters],
        left=("name", "values", "meaning"),
    )
    say()
    say("rules, by how many configs of the full product each removes on its own")
    ordered = sorted(rules, key=lambda r: -r["removes_alone"])
    print_table(
        ["rule", "alone", "only it", "because"],
        [[r["name"], f"{r['removes_alone'] / product:.1%}", f"{r['removes_only']:,}", r["because"]] for r in ordered],
        left=("rule", "because"),
    )
    say()
    say(wrap("alone: share of the full product that breaks the rule; only it: configs that break no other rule"))
