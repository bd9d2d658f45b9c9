"""`constrint solve` executes code of few files: a newcomer can step through all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Prints the files below `constrint/` of which a function runs, beside what runs while modules are imported.
COUNT = """
import sys
from pathlib import Path
package, files, importing = str(Path("constrint").resolve()), set(), 0

def seen(frame, event, argument):
    global importing
    if frame.f_code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing and frame.f_code.co_filename.startswith(package):
        files.add(frame.f_code.co_filename)

sys.argv = ["constrint", "solve", "--gpu", "mi300x"]
sys.setprofile(seen)
from constrint.cli.entry import main
try:
    main()
except SystemExit:
    sys.setprofile(None)
print(len(files), file=sys.stderr)
"""
#: How many files the number in CONTRIBUTING.md may be off: a file more or less is no reason to write it anew.
SLACK = 3


def test_solve_passes_as_many_files_as_contributing_says() -> None:
    said = re.search(r"executes code of (\d+) files", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert said is not None
    environment = {**os.environ, "CONSTRINT_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert abs(int(done.stderr.split()[-1]) - int(said[1])) <= SLACK
