"""`constrint explain`: why a space is as it is - per rule what it removes - or why nothing fits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from constrint.cli.request import Asked, Choice, Json, takes_choice
from constrint.errors import InfeasibleError, LimitReachedError

if TYPE_CHECKING:
    from constrint.solve import SearchSpace

SCHEMA = "constrint.explain/1"
#: Larger domains are described by their bounds.
MAX_VALUES = 4096
#: A longer rule is shortened in the table; `--json` has all of it.
MAX_TEXT = 60


@takes_choice
def explain(choice: Choice, json: Json = False) -> None:
    """Say per rule how many configurations it removes; for an infeasible request, the conflict and the way out."""
    documents = []
    for asked in choice.asked():
        try:
            space = asked.space()
        except InfeasibleError as error:
            raise _with_ways_out(asked, error) from None
        documents.append(_document(asked, space))
    if json:
        from constrint.cli.output import print_json

        print_json({"schema": SCHEMA, "results": documents})
        return
    for document in documents:
        _print(document)


def _with_ways_out(asked: Asked, error: InfeasibleError) -> InfeasibleError:
    from constrint.solve import relaxations

    ways = relaxations(asked.problem, error.conflict) if error.conflict is not None else []
    if not ways:
        return error
    return InfeasibleError(f"{error}\nNearest ways out:\n" + "\n".join(f"  {way}" for way in ways), error.conflict)


def _document(asked: Asked, space: SearchSpace) -> dict[str, Any]:
    return {
        **_asked_for(asked),
        "num_product": space.product_size,
        "num_valid": space.size,
        "parameters": _parameters(asked),
        "rules": _rules(asked),
    }


def _rules(asked: Asked) -> list[dict[str, Any]]:
    from constrint.solve import pruning

    try:
        counts = {id(f.constraint): (f.removes_alone, f.removes_only) for f in pruning(asked.problem)}
    except LimitReachedError as error:
        print(f"note: what each rule removes is not counted: {error}", file=sys.stderr)
        counts = {}
    rules = []
    for constraint in asked.problem.constraints:
        alone, only = counts.get(id(constraint), (None, None))
        rules.append(
            {
                "name": constraint.name,
                "rule": str(constraint),
                "because": constraint.because,
                "removes_alone": alone,
                "removes_only": only,
            }
        )
    return rules


def _asked_for(asked: Asked) -> dict[str, Any]:
    request = asked.request
    if request is None:
        return {"title": asked.title}
    return {
        "title": asked.title,
        "kernel": request.workload.kernel,
        "gpu": request.gpu.name,
        "sizes": dict(request.workload.sizes),
        "dtype": request.workload.dtype,
    }


def _parameters(asked: Asked) -> list[dict[str, Any]]:
    if asked.request is not None:
        params = asked.request.spec.params(asked.request.gpu, asked.request.workload)
        return [{"name": p.name, "values": list(p.values), "meaning": p.meaning, "because": p.because} for p in params]
    return [
        {
            "name": name,
            "values": list(domain) if domain.size <= MAX_VALUES else None,
            "meaning": "",
            "because": domain.because,
            "lower": domain.lower,
            "upper": domain.upper,
            "num_values": domain.size,
        }
        for name, domain in asked.problem.variables.items()
    ]


def _values(parameter: dict[str, Any]) -> str:
    values = parameter["values"]
    if values is None:
        return f"{parameter['lower']:,} .. {parameter['upper']:,} ({parameter['num_values']:,} values)"
    ordered = sorted(values)
    step = ordered[1] - ordered[0] if len(ordered) > 1 else 0
    if len(ordered) > 12 and ordered == list(range(ordered[0], ordered[-1] + 1, step)):
        return f"{ordered[0]} .. {ordered[-1]}" + (f" step {step}" if step > 1 else "")
    return " ".join(map(str, ordered))


def _print(document: dict[str, Any]) -> None:
    from constrint.cli.output import print_table, say, wrap

    product, parameters, rules = document["num_product"], document["parameters"], document["rules"]
    say(wrap(document["title"]))
    say(wrap(f"{product:,} configs in the full product, {document['num_valid']:,} valid"))
    say()
    say("parameters")
    last = "meaning" if any(p["meaning"] for p in parameters) else "because"
    print_table(
        ["name", "values", last],
        [[p["name"], _values(p), p[last]] for p in parameters],
        left=("name", "values", last),
    )
    if not rules:
        return
    say()
    say("rules, by how many configs of the full product each removes on its own")
    ordered = sorted(rules, key=lambda r: -(r["removes_alone"] or 0))
    print_table(
        ["rule", "alone", "only it", "because"],
        [[_rule(r), *_removed(r, product), r["because"]] for r in ordered],
        left=("rule", "because"),
    )
    say()
    say(wrap("alone: share of the full product that breaks the rule; only it: configs that break no other rule"))


def _rule(rule: dict[str, Any]) -> str:
    text: str = rule["name"] or rule["rule"]
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _removed(rule: dict[str, Any], product: int) -> tuple[str | None, str | None]:
    if rule["removes_alone"] is None:
        return None, None
    return f"{rule['removes_alone'] / product:.1%}", f"{rule['removes_only']:,}"
