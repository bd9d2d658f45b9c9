"""Compare, decide, write: stale entries whose machine code is the same hold for the device code of now.

Identical are the machine code, what the compiler tells the launcher (registers, shared memory, warps, clusters), and
what Python decides of each launch: the grid, the arguments in order, and whose memory they are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.remake import tables
from benchmarks.remake.same.machine import differences, facts_that_differ
from benchmarks.remake.same.stale import Stale
from benchmarks.remake.same.trees import Compiled, Tree, compile_in, here
from constrint.select.winners import TunedEntry, TunedTable, read_tuned, write_tuned

#: Most lines about one kernel of a table.
MOST_LINES = 8


@dataclass(frozen=True)
class Verdict:
    """Whether a stale entry is carried over.

    Args:
        stale: The entry.
        reason: Why it stays stale; empty where it is carried over.
    """

    stale: Stale
    reason: str = ""


def judged(
    entries: Sequence[Stale], base: Tree, work: Path, say: Callable[[str], None]
) -> tuple[list[Verdict], dict[str, str], dict[str, str]]:
    """The verdict on each stale entry, the fingerprints of now, and the compilers.

    Args:
        entries: Stale entries.
        base: The checkout with the device code that they were measured with.
        work: Folder in which compiled code is kept.
        say: Told how far it is.
    """
    kernels = sorted({entry.kernel for entry in entries})
    known, _ = compile_in([base, here()], kernels, [], work, say)
    # An entry that was measured with other code needs no compilation.
    held = [entry for entry in entries if entry.before and known.hashes[entry.kernel] == entry.before]
    jobs = {job["id"]: job for entry in held for job in entry.jobs}
    say(f"{len(jobs)} configurations of {len(held)} entries are compiled twice")
    old, new = compile_in([base, here()], kernels, list(jobs.values()), work, say)
    reasons = {job: difference(job, old, new, work / "code") for job in jobs}
    verdicts = [Verdict(entry, _reason(entry, known.hashes[entry.kernel], base, reasons)) for entry in entries]
    return verdicts, new.hashes, new.tools


def _reason(entry: Stale, hash_of_base: str, base: Tree, reasons: Mapping[str, str]) -> str:
    if hash_of_base != entry.before:
        theirs = entry.before or "unknown code"
        return f"it was measured with {theirs}, and the code of {base.name} is {hash_of_base or 'not there'}"
    if not entry.jobs:
        return "there is no configuration to compare"
    return next((reasons[job["id"]] for job in entry.jobs if reasons[job["id"]]), "")


def difference(job: str, old: Compiled, new: Compiled, code: Path) -> str:
    """What differs between what two checkouts compiled of a configuration, in words; empty for the same."""
    for which, compiled in (("the base", old), ("this checkout", new)):
        if job in compiled.errors:
            return f"{which} does not compile it: {compiled.errors[job]}"
    before, after = old.launches[job], new.launches[job]
    if len(before) != len(after):
        return f"{len(before)} launches, now {len(after)}"
    found = []
    for one, other in zip(before, after, strict=True):
        found += facts_that_differ(one["facts"], other["facts"])
        found += facts_that_differ(one.get("metadata", {}), other.get("metadata", {}))
        if one["kind"] != other["kind"] or ("code" in one) != ("code" in other):
            found.append(f"{one['kind']}, now {other['kind']}")
        elif "code" in one:
            was, now = ((code / each["code"]).read_bytes() for each in (one, other))
            form, symbols = one["code"].rpartition(".")[2], (one["symbol"], other["symbol"])
            found += differences(was, now, form, symbols)
    return "; ".join(dict.fromkeys(found))


def write(verdicts: Sequence[Verdict], now: Mapping[str, str], commit: str, tools: Mapping[str, str]) -> list[Path]:
    """Write the fingerprints of now, with a note of how they were carried over, into tables and evidence."""
    carried = [verdict.stale for verdict in verdicts if not verdict.reason]
    with_tools = ", ".join(f"{name} {version}" for name, version in sorted(tools.items()))
    notes = {id(stale): f"{stale.before}, {commit}, {with_tools}" for stale in carried}
    written = []
    for gpu in dict.fromkeys(stale.gpu for stale in carried if stale.entry is not None):
        path = tables.path_of("winners", gpu)
        of_gpu = [stale for stale in carried if stale.gpu == gpu]
        entries = []
        for entry in read_tuned(path).entries:
            stale = next((one for one in of_gpu if one.entry == entry), None)
            entries.append(entry if stale is None else _carried(entry, now[entry.kernel], notes[id(stale)]))
        write_tuned(TunedTable(gpu, tuple(entries)), path)
        written.append(path)
    others = [stale for stale in carried if stale.entry is None]
    if others:
        for stale in others:
            words = f"{notes[id(stale)]}, {stale.compared}"
            tables.carry(stale.gpu, stale.table, stale.kernel, now[stale.kernel], words)
        written.append(tables.EVIDENCE)
    return written


def _carried(entry: TunedEntry, code: str, note: str) -> TunedEntry:
    earlier = () if isinstance(entry.same_code_as, msgspec.UnsetType) else entry.same_code_as
    return msgspec.structs.replace(entry, source_hash=code, same_code_as=(*earlier, note))


def lines_of(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The verdicts by table and kernel, with what differs in those that stay stale."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.stale.gpu, verdict.stale.table, verdict.stale.kernel), []).append(verdict)
    for (gpu, table, kernel), group in groups.items():
        head = f"{table + ' ' + gpu:36} {kernel:24}"
        refused = Counter((verdict.reason, verdict.stale.compared) for verdict in group if verdict.reason)
        same = len(group) - refused.total()
        if group[0].stale.entry is None:
            yield f"{head} {'carried over' if same else 'stays stale'}: {group[0].stale.compared}"
        else:
            yield f"{head} {same} of {len(group)} winners carried over"
        for reason, compared in list(refused)[:MOST_LINES]:
            yield f"    stays stale, {compared}: {reason}"
        if len(refused) > MOST_LINES:
            yield f"    and {len(refused) - MOST_LINES} more"


def carry_over(entries: Sequence[Stale], base: Tree, work: Path, say: Callable[[str], None], *, writes: bool) -> int:
    """Compare, print and write; 1 where anything stays stale.

    Args:
        entries: Stale entries.
        base: The checkout with the device code that they were measured with.
        work: Folder in which compiled code is kept.
        say: Told how far it is.
        writes: Whether the tables are written.
    """
    started = time.monotonic()
    if not entries:
        print("Every table is fresh: there is nothing to carry over.")
        return 0
    verdicts, now, tools = judged(entries, base, work, say)
    for line in lines_of(verdicts):
        print(line)
    stale = sum(bool(verdict.reason) for verdict in verdicts)
    print(f"{len(verdicts) - stale} of {len(verdicts)} carried over, {time.monotonic() - started:.0f} s")
    for path in write(verdicts, now, base.name, tools) if writes else ():
        print(f"written: {path.relative_to(tables.RESULTS.parents[1])}")
    return int(stale > 0)
