"""A Python file for Kernel Tuner: `tune_params` and `restrictions` of the pruned space.

`tune_kernel(..., tune_params, restrictions=restrictions)` builds the same configurations. Kernel Tuner hands text to
python-constraint, which rewrites a plain comparison by its looks, and some wrongly: of `x // 2 == 3` it makes
`x == 3 ** 2`, and bounds of sums and products are taken for those of positive numbers. It leaves alone what has an
`and` in it, so every comparison that is not known to be read right gets one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from constrint.errors import UsageError
from constrint.export.found import Found
from constrint.export.pruned import pruned
from constrint.export.registry import Format
from constrint.export.text import comment
from constrint.model.python.write import write_value

#: Names that Kernel Tuner needs for itself.
FORBIDDEN = frozenset(("grid_size_x", "grid_size_y", "grid_size_z", "time"))
#: Names whose product Kernel Tuner keeps below the device's threads by itself.
BLOCK_SIZES = ("block_size_x", "block_size_y", "block_size_z")
#: `tile_m % 16 == 0`, and a product of positive parameters and numbers with a bound that floats hold.
_REMAINDER = re.compile(r"\w+ % \w+ == 0")
_PRODUCT = re.compile(r"\w+(?: \* \w+)* (?:<=|>=) \d{1,15}")


def write(found: Found) -> str:
    """The file."""
    space = pruned(found)
    for name in space.params:
        if name in FORBIDDEN:
            raise UsageError(f"Kernel Tuner takes no parameter called {name!r}: --rename {name}=other_name.")
    lines = [comment(line) for line in _header(found)]
    lines += ["", "tune_params = {"]
    lines += [f'    "{name}": [{", ".join(map(write_value, values))}],' for name, values in space.params.items()]
    lines += ["}", "", "restrictions = ["]
    for restriction in space.restrictions:
        rule = restriction.rule
        if rule.name or rule.because:
            lines.append(f"    {comment(': '.join(filter(None, (rule.name, rule.because))))}")
        lines.append(f"    {as_read(restriction.text, space.params)!a},")
    return "\n".join([*lines, "]", ""])


def _header(found: Found) -> list[str]:
    assert found.space is not None
    problem = found.space.problem
    lines = [
        *found.header,
        f"{found.space.size} configurations satisfy the restrictions, of {found.space.product_size} combinations.",
        "tune_params has the values that occur in one of them.",
        "Kernel Tuner evaluates a text with an (and) in it as it stands, and rewrites some others: hence (and True).",
    ]
    if problem.objectives or problem.soft_constraints:
        lines.append("Objectives and soft rules are not in this file: Kernel Tuner has no such thing.")
    if any(name in found.shown.values() for name in BLOCK_SIZES):
        lines.append("Kernel Tuner keeps the product of block_size_x, _y and _z below the device's threads by itself.")
    return lines


def as_read(text: str, params: Mapping[str, tuple[Any, ...]]) -> str:
    """A restriction so that python-constraint evaluates it as it stands, or rewrites it rightly."""
    if " and " in text or " or " in text:
        return text
    if _REMAINDER.fullmatch(text):
        return text
    names = [word for word in re.findall(r"\w+", text) if word in params]
    are_positive = all(type(value) is int and 0 < value < 2**31 for name in names for value in params[name])
    if _PRODUCT.fullmatch(text) and are_positive and len(set(names)) == len(names):
        return text
    return f"({text}) and True"


FORMAT = Format("kernel-tuner", "tune_params and restrictions of the pruned space", write, ("space",))
