"""A stand-in for Nsight Compute's command: it runs the program that it is given, and prints what the real one does."""

from __future__ import annotations

import sys
from pathlib import Path

from constrint.tune.search.llm.profiler import DURATION, METRICS

DRAM, TENSOR = "dram__throughput.avg.pct_of_peak_sustained_elapsed", METRICS[1]
#: The output of `ncu --csv --page raw` for two kernels: messages, names, units, then a line for each.
OUTPUT = f"""\
==PROF== Connected to process 4242
==PROF== Profiling "reduce" - 0: 0%....50%....100% - 3 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","{DURATION}","{DRAM}","{TENSOR}"
"","","","","","","","ns","%","%"
"0","4242","python3.11","127.0.0.1","reduce(float*, int)","1","7","1,024","12.25","0"
"1","4242","python3.11","127.0.0.1","matmul","1","7","180,224","91.50","n/a"
==PROF== Disconnected from process 4242
"""


def write_ncu(path: Path, output: str = OUTPUT, *, runs_it: bool = True) -> None:
    """Put the command at a path; with `runs_it` it runs the program first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = [f"#!{sys.executable}", "import subprocess, sys"]
    if runs_it:
        body.append("command = sys.argv[sys.argv.index('--metrics') + 2 :]")
        body.append("subprocess.run(command, check=True)")
    body.append(f"sys.stdout.write({output!r})")
    path.write_text("\n".join(body) + "\n")
    path.chmod(0o755)
