"""Scripted strategies: what an expert would write down for products and recurrent layers before measuring anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constrint.tune.search.llm.records import Proposal, Restriction, StrategyProposal, TaskFacts, Values

#: Strategies of a kernel whose full name ends so: (text, values of parameters, rules). Sizes and limits go in by name.
SCRIPTS: Mapping[str, Sequence[tuple[str, Mapping[str, int], Sequence[str]]]] = {
    ".descriptor": (
        ("Large tiles for the matrix units.", {"tile_k": 64, "num_warps": 8}, ["tile_m * tile_n == 32768"]),
        ("Square tiles, two blocks on an SM.", {"tile_m": 128, "tile_n": 128, "tile_k": 64, "num_warps": 4}, []),
        ("Persistent blocks that walk tiles in groups.", {"persistent": 1, "group_m": 8, "tile_k": 64}, []),
        ("One wave: no more blocks than SMs.", {}, [
            "ceildiv({m}, tile_m) * ceildiv({n}, tile_n) * split_k <= {num_sms}",
            "2 * ceildiv({m}, tile_m) * ceildiv({n}, tile_n) * split_k >= {num_sms}",
        ]),
        ("Split K until every SM has work.", {}, [
            "split_k > 1", "ceildiv({m}, tile_m) * ceildiv({n}, tile_n) * split_k >= {num_sms}",
        ]),
        ("A deep pipeline hides the latency of DRAM.", {}, ["num_stages >= 5", "tile_k >= 64"]),
        ("Long slices of K, few barriers.", {"tile_k": 128}, ["num_stages >= 3"]),
    ),
    ".pointer": (
        ("Small tiles that asynchronous copies feed.", {"tile_k": 64, "num_warps": 4}, ["tile_m * tile_n <= 8192"]),
    ),
    # Its configurations are in no recorded table of products.
    "gemm.cuda": (),
    "gemm.skinny": (),
    ".cuda": (
        ("A cluster holds the weights of a head.", {"placement": 1}, []),
        ("Tiles of four sequences halve what is sent.", {"tile_batch": 4}, []),
        ("Weights stay in registers.", {}, ["register_pairs >= 4"]),
        ("Many warps share the depth.", {}, ["warps_depth >= warps_rows"]),
        ("Many warps share the rows.", {}, ["warps_rows >= warps_depth"]),
        ("Few units in a block: more SMs work.", {}, ["units <= 16"]),
        ("The whole grid works on one head.", {"placement": 2}, []),
    ),
}  # fmt: skip


class Experts:
    """Proposes the scripted strategies in turn, again and again."""

    name = "experts"

    def __init__(self, width: int = 4) -> None:
        self._width, self._at = width, 0

    def propose(self, facts: TaskFacts) -> Sequence[Proposal]:
        """The next ones."""
        scripted = list(strategies(facts))
        chosen = [scripted[(self._at + n) % len(scripted)] for n in range(min(self._width, len(scripted)))]
        self._at += len(chosen)
        return chosen


def strategies(facts: TaskFacts) -> list[StrategyProposal]:
    """The scripted strategies of a task's kernels."""
    given = {**facts.sizes, **{name: int(limit) for name, limit in facts.limits.items()}}
    found = []
    for kernel in facts.kernels:
        script = next((lines for name, lines in SCRIPTS.items() if kernel.name.endswith(name)), ())
        known = {param.name for param in kernel.params}
        for number, (text, values, rules) in enumerate(script):
            written = (rule.format(**given) if "{" in rule else rule for rule in rules)
            found.append(
                StrategyProposal(
                    name=f"{kernel.name} {number}",
                    text=text,
                    kernel=kernel.name,
                    values=tuple(Values(parameter=n, values=(v,)) for n, v in values.items() if n in known),
                    rules=tuple(Restriction(rule=rule) for rule in written),
                )
            )
    return found
