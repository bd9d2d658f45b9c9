"""`constrint count`: how many configurations are valid, without listing them."""

from __future__ import annotations

from constrint.cli.request import Backend, Choice, Json, check_backend, takes_choice

SCHEMA = "constrint.count/1"


@takes_choice
def count(choice: Choice, backend: Backend = "native", json: Json = False) -> None:
    """Count the solutions; exact, and quick even where no one could list them."""
    from constrint.cli.output import print_json, say, wrap
    from constrint.solve import enumerate_space

    check_backend(backend)
    results = []
    for asked in choice.asked():
        space = enumerate_space(asked.problem, backend=backend)
        results.append((asked.title, space.size, space.product_size))
    if json:
        documents = [{"title": t, "num_valid": valid, "num_product": product} for t, valid, product in results]
        print_json({"schema": SCHEMA, "backend": backend, "results": documents})
        return
    for title, valid, product in results:
        say(wrap(f"{title}: {valid:,} of {product:,} combinations"))
