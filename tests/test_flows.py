"""The flows execute code of few files: a newcomer can step through all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Prints the files below `constrint/` of which a function runs, beside what runs while modules are imported.
COUNT = """
import sys
from contextlib import suppress
from pathlib import Path
package, files, importing = str(Path("constrint").resolve()), set(), 0

def seen(frame, event, argument):
    global importing
    if frame.f_code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing and frame.f_code.co_filename.startswith(package):
        files.add(frame.f_code.co_filename)

FLOW
sys.setprofile(None)
print(len(files), file=sys.stderr)
"""
#: What each flow of CONTRIBUTING.md runs, and how the page says the number of its files.
FLOWS = {
    r"executes code of (\d+) files of the package": """
sys.argv = ["constrint", "solve", "--gpu", "mi300x"]
sys.setprofile(seen)
from constrint.cli.entry import main
with suppress(SystemExit):
    main()
""",
    r"executes code of (\d+) files where no": """
sys.setprofile(seen)
from constrint.choose.decide import decide
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.gemm.product import Product
from constrint.kernels.registry import load_kernel
from constrint.select.workload import workload_of
gpu = load_gpu("h200")
sizes = {"m": 4000, "n": 4096, "k": 4096}
decide(request_of(gpu, Product.of(workload_of(load_kernel("gemm"), gpu, sizes, "bf16"))))
""",
    r"decision of a first one code of (\d+) files": """
sys.setprofile(seen)
from constrint.choose.decide import decide
from constrint.choose.decision import Request
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select.workload import workload_of
gpu = load_gpu("h200")
sizes = {"batch": 64, "time": 512, "heads": 1, "head_dim": 768}
decide(Request("lstm", workload_of(load_kernel("lstm"), gpu, sizes, "bf16"), gpu))
""",
}
#: How many files the number in CONTRIBUTING.md may be off: a file more or less is no reason to write it anew.
SLACK = 3


@pytest.mark.parametrize("said", FLOWS)
def test_a_flow_passes_as_many_files_as_contributing_says(said: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    number = re.search(said, text)
    assert number is not None
    environment = {**os.environ, "CONSTRINT_CACHE": "0"}
    script = COUNT.replace("FLOW\n", FLOWS[said])
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert abs(int(done.stderr.split()[-1]) - int(number[1])) <= SLACK
