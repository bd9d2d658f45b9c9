"""`constrint count`: how many configurations are valid, without listing them."""

from __future__ import annotations

from constrint.cli.kernel_options import Backend, Choice, Json, KernelCommand
from constrint.cli.output import print_json, say, wrap
from constrint.cli.request import check_backend, question_of
from constrint.solve import enumerate_space

SCHEMA = "constrint.count/1"


@KernelCommand
def count(choice: Choice, backend: Backend = "native", json: Json = False) -> None:
    """Count the solutions; exact, and quick even where no one could list them."""
    check_backend(backend)
    question = question_of(choice)
    spaces = [(asked, enumerate_space(asked.problem, backend=backend)) for asked in question.asked]
    if json:
        documents = [
            {
                **({"kernel": asked.kernel} if question.several else {}),
                "title": asked.title,
                "num_valid": space.size,
                "num_product": space.product_size,
            }
            for asked, space in spaces
        ]
        print_json({"schema": SCHEMA, "backend": backend, "results": documents})
        return
    for asked, space in spaces:
        say(wrap(f"{asked.title}: {space.size:,} of {space.product_size:,} combinations"))
    if len(spaces) > 1:
        valid, product = (sum(sizes) for sizes in zip(*((s.size, s.product_size) for _, s in spaces), strict=True))
        say(wrap(f"all kernels: {valid:,} of {product:,} combinations"))
    for note in question.notes:
        say(wrap(note))
