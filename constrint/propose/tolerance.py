"""The bound on an output's error: the rounding of one computation in fp32, and no more.

With unit roundoff v of the output's type and n terms in the longest sum, an output may be off by

    v |value| + (8 + 2 sqrt(n)) 2^-24 magnitude

where `magnitude` is that of what is added up to the element (`Expected`). The first part is one rounding, at the end.
The second is a computation in fp32: a few roundings of its own, and a sum whose errors are independent. A second
rounding to a shorter type on the way is outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected
from constrint.propose.worker.tensors import dtype_name

#: Unit roundoff of an output's type; half a unit in the last place, and a little for a rounding that was a tie.
ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
#: Roundings of fp32 on the way that are no sum: exponentials, divisions, products.
OTHER_ROUNDINGS = 8
#: Errors that a shorter type would explain, by name, with this margin; the shortest last.
SHORTER = {"fp16 or tf32": 2.0**-11, "bf16": 2.0**-8}
ROOM = 4.0


def error_over_bound(output: Any, expected: Expected, num_terms: int) -> float:
    """The largest error over its bound: right up to 1; infinite where the output is not finite and should be."""
    bound = _bound(output, expected, 2.0**-24 * (OTHER_ROUNDINGS + 2 * math.sqrt(num_terms)))
    return _largest((output.double() - expected.value).abs() / bound)


def shorter_type(output: Any, expected: Expected) -> str:
    """The type whose roundings on the way explain an error that fp32 does not; empty where none does."""
    error = (output.double() - expected.value).abs()
    for name, roundoff in SHORTER.items():
        if _largest(error / _bound(output, expected, ROOM * roundoff)) <= 1:
            return name
    return ""


def compare(
    outputs: Mapping[str, Any], expected: Mapping[str, Expected], num_terms: int, where: str
) -> tuple[float, str]:
    """The largest error of all outputs over its bound, and what is wrong; empty where nothing is.

    Args:
        outputs: The candidate's outputs by name.
        expected: The reference's outputs by name.
        num_terms: The length of the longest sum.
        where: The input set, in words.
    """
    worst = 0.0
    for name, output in outputs.items():
        error = error_over_bound(output, expected[name], num_terms)
        worst = max(worst, error)
        if error <= 1:
            continue
        missing = int((~output.isfinite() & expected[name].value.isfinite()).sum())
        if missing:
            return worst, f"{name} has {missing} elements that are not finite or were not written ({where})."
        low = shorter_type(output, expected[name])
        if low:
            return worst, (
                f"{name} is off by {error:.3g} times what fp32 explains, as if it was rounded to {low} on the way: "
                f"lower precision than asked ({where}). Compute in fp32 and round once, at the end."
            )
        return worst, f"{name} is off by {error:.3g} times what rounding explains ({where})."
    return worst, ""


def _bound(output: Any, expected: Expected, relative: float) -> Any:
    import torch

    facts = torch.finfo(output.dtype)
    roundoff = ROUNDOFF[dtype_name(output.dtype)]
    # Fast instructions make zero of what is less than the least normal number of fp32; fp16 has larger steps there.
    least = max(torch.finfo(torch.float32).smallest_normal, facts.smallest_normal * facts.eps)
    return (1 + 2.0**-6) * roundoff * expected.value.abs() + relative * expected.magnitude + least


def _largest(error: Any) -> float:
    return float(error.nan_to_num(nan=math.inf, posinf=math.inf).max().item()) if error.numel() else 0.0
