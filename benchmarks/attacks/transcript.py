"""Transcripts that someone changed: `constrint propose --replay` and `--resume` meet them without a traceback.

    python -m benchmarks.attacks.transcript --count 2000 --seed 1

A transcript of three rounds is changed at places that are drawn: values of its JSON, its lines, its bytes. What is
printed has to be printable (in a JSON document, without control characters), and the exit code one of those that are
documented.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.attacks import asked_of, ended
from benchmarks.attacks.endpoint import told
from tests.tune import tiny

#: Values that replace others.
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**70, 1e400, 0.5, "", "\x1b[2J", "\u202e", "x" * 300_000, "\n\n", [], {}, [[]],
    {"proposals": []}, "spent", "refused", "late", "propose", "judge", "../../x", "=1+1", "\ud800", "\x00",
)  # fmt: skip
#: Replies that replace the text of an answer; `{}` is a hostile value.
REPLIES = (
    '{{"proposals": [{{"type": "space", "kernel": "tiny", "values": {}}}]}}',
    '{{"proposals": [{{"type": "space", "kernel": "tiny", "rules": [{{"rule": {}}}]}}]}}',
    '{{"proposals": [{{"type": "strategy", "name": {0}, "text": {0}, "kernel": "tiny"}}, {{"type": "action", "kernel": '
    '"tiny", "action": "tile", "strategy": {0}}}]}}',
    '{{"proposals": [{{"type": "action", "kernel": "tiny", "action": {}, "config": {{"what": 3}}}}]}}',
    '{{"proposals": [{{"type": "source", "task": {0}, "language": "cuda", "source": {0}}}]}}',
    '{{"type": "failure", "critical_issue": {0}, "why_it_matters": {0}, "minimal_fix_hint": {0}}}',
    "```{}```",
)


def attack(count: int, seed: int, folder: Path) -> Iterator[str]:
    """Replay changed transcripts; the faults found."""
    store, good = folder / "s.sqlite", folder / "good.jsonl"
    command = ["propose", "--gpu", "h200", "--kernel", f"{tiny.__file__}:SPEC", "--modelled", "--store", str(store)]
    told("", *command, "--rounds", "3", "--trials", "2", "--transcript", str(good))
    for number in range(count):
        draw = random.Random(f"{seed}:{number}")
        path = folder / "changed.jsonl"
        path.write_bytes(changed(good.read_bytes(), draw))
        how = ["--replay", str(path)] if draw.random() < 0.8 else ["--transcript", str(path), "--resume"]
        code, printed = told("", *command, *how, *(["--json"] if draw.random() < 0.5 else []))
        if "Traceback" in printed or code not in (0, 1, 2):
            yield f"seed {seed}, case {number}: exit code {code}: {printed[-500:]}"
        elif not printed.replace("\n", "").isprintable():
            yield f"seed {seed}, case {number}: unprintable: {printed[-500:]!a}"


def changed(text: bytes, draw: random.Random) -> bytes:
    """The transcript with one to three changes."""
    for _ in range(draw.randint(1, 3)):
        lines = text.split(b"\n")
        at = draw.randrange(len(lines))
        kind = draw.random()
        if kind < 0.15:
            place = draw.randrange(len(text) + 1)
            text = (
                text[:place]
                + bytes(draw.choices(range(256), k=draw.randint(0, 4)))
                + text[place + draw.randint(0, 4) :]
            )
        elif kind < 0.3:
            lines.insert(draw.randrange(len(lines)), lines.pop(at) if draw.random() < 0.5 else lines[at])
            text = b"\n".join(lines)
        else:
            try:
                message = json.loads(lines[at])
                _change(message, draw)
            except (ValueError, TypeError, RecursionError):
                continue
            lines[at] = json.dumps(message).encode()
            text = b"\n".join(lines)
    return text


def _change(told: Any, draw: random.Random) -> None:
    """Change one value of an object, or of one inside it."""
    name = draw.choice(list(told))
    if isinstance(told[name], dict) and told[name] and draw.random() < 0.8:
        _change(told[name], draw)
    elif name == "text" and draw.random() < 0.8:
        told[name] = draw.choice(REPLIES).format(json.dumps(draw.choice(HOSTILE)))
    elif draw.random() < 0.1:
        del told[name]
    else:
        told[name] = draw.choice(HOSTILE)


def main() -> int:
    """Run as a program."""
    chosen = asked_of(__doc__, 2000)
    with tempfile.TemporaryDirectory() as folder:
        found = list(attack(chosen.count, chosen.seed, Path(folder)))
    return ended(found, f"transcript: {chosen.count} changed transcripts, seed {chosen.seed}, {len(found)} faults")


if __name__ == "__main__":
    sys.exit(main())
