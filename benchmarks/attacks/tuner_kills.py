"""Runs of the tuner that are killed at any moment, and go on with `--resume`, until nothing is left to try.

    python -m benchmarks.attacks.tuner_kills --count 20 --seed 3

The candidates are those of `tests/tune/hostile.py`, which crash, print, fork and write to their inputs. A find is a
record that is gone, a configuration that was tried twice without need, a process or a file that outlives its run, or a
run that does not go on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.attacks import asked_of, ended
from benchmarks.attacks.workers import left_over
from constrint.tune.store.store import RecordStore

KERNEL = Path(__file__).parents[2] / "tests" / "tune" / "hostile.py"
#: Longest time from a run's first record to its end, and that a whole run may take, in seconds.
MOST_S, PATIENCE_S = 4.0, 600.0
TRIALS = 14


class KilledRuns:
    """Runs with one store.

    Args:
        folder: Where the store and all temporary files are.
        rng: Source of the moments.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.finds = folder, rng, list[str]()
        (folder / "tmp").mkdir()

    def start(self, more: Sequence[str] = ()) -> subprocess.Popen[str]:
        """A run in a session of its own."""
        asked = ["--kernel", f"{KERNEL}:PATIENT", "--gpu", "h200", "--device", "cpu", "--search", "random"]
        environment = os.environ | {"CONSTRINT_CACHE": str(self.folder), "TMPDIR": str(self.folder / "tmp")}
        command = [sys.executable, "-m", "constrint.cli.app", "tune", *asked, "--timeout", "5", "--json"]
        return subprocess.Popen(
            [*command, "--trials", str(TRIALS), "--resume", *more],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def records(self) -> dict[str, str]:
        """Configurations by the ids of the records of their trials."""
        if not (self.folder / "records.sqlite").exists():
            return {}
        with RecordStore.open(self.folder / "records.sqlite") as store:
            tried = [record for record in store.find() if record.figures is None or not record.figures.is_final]
            return {record.id: json.dumps(record.config, sort_keys=True) for record in tried}

    def killed(self, number: int) -> None:
        """Start a run, and kill it at a moment that is drawn: before, at or after its first record."""
        before, process = self.records(), self.start()
        # Until the command has loaded nothing happens that could go wrong.
        until = time.monotonic() + self.rng.choice([1.0, 30.0, 30.0])
        while process.poll() is None and len(self.records()) <= len(before) and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(self.rng.uniform(0.0, MOST_S))
        process.send_signal(self.rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        _, error = process.communicate(timeout=PATIENCE_S)
        self.finds += [f"kill {number}: {error[-300:]}"] * ("Traceback" in error)
        self._looked_after(number, before)

    def ended(self) -> None:
        """The last run goes on to its end, and another one has nothing to do."""
        for more in ((), ()):
            before, process = self.records(), self.start(more)
            out, error = process.communicate(timeout=PATIENCE_S)
            if process.returncode != 0:
                self.finds.append(f"the last run ends with {process.returncode}: {error[-300:]}")
                return
            (result,) = json.loads(out)["results"]
            self.finds += [f"{result['known']} of {len(before)} are known"] * (result["known"] < len(before))
        self.finds += [f"{len(self.records())} records"] * (len(self.records()) < TRIALS)

    def _looked_after(self, number: int, before: dict[str, str]) -> None:
        after = self.records()
        gone = set(before) - set(after)
        self.finds += [f"kill {number}: {len(gone)} records are gone"] * bool(gone)
        twice = [config for config, times in Counter(after.values()).items() if times > 1]
        self.finds += [f"kill {number}: {len(twice)} configurations were tried twice"] * bool(twice)
        left = left_over(str(self.folder))
        self.finds += [f"kill {number}: {len(left)} processes are left: {left}"] * bool(left)
        files = [path.name for path in (self.folder / "tmp").iterdir() if path.name.startswith("constrint")]
        self.finds += [f"kill {number}: files are left: {files}"] * bool(files)


def attack(count: int, seed: int) -> tuple[list[str], int]:
    """Kill runs; returns what was found, and the number of records at the end."""
    finds: list[str] = []
    number = records = 0
    while number < count:
        with tempfile.TemporaryDirectory() as name:
            runs = KilledRuns(Path(name), random.Random(seed + number))
            for _ in range(min(4, count - number)):
                runs.killed(number)
                number += 1
            runs.ended()
            finds += runs.finds
            records += len(runs.records())
    return finds, records


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print a summary, and return the exit code."""
    options = asked_of(__doc__, 20, arguments)
    finds, records = attack(options.count, options.seed)
    told = f"{records} records; {len(finds)} finds"
    return ended(finds, f"tuner_kills: {options.count} kills from seed {options.seed}: {told}")


if __name__ == "__main__":
    sys.exit(main())
