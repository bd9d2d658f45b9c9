"""Reports for tests: the command called in this process, and a kernel whose every text would like to be a script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from constrint.cli.app import application
from constrint.hwmodels.files import DATA
from constrint.report import Report
from constrint.tune.store.record import Figures, TuningRecord

#: A kernel without torch: three parameters, one of which has values that no rule allows together.
KERNEL = """\

from constrint.select import BlockUse, KernelSpec, Param, Rule, Size

EVIL = {evil!r}


class Small(KernelSpec):
    operation, summary, dtypes = "small", "a kernel " + EVIL, ("fp16",)
    sizes = (Size("n", 1 << 20, "elements " + EVIL),)

    def params(self, gpu, workload):
        yield Param("tile_m", (32, 64, 128), "rows " + EVIL, "powers of two " + EVIL)
        yield Param("tile_n", (32, 64, 128), "columns " + EVIL, "powers of two")
        yield Param("num_warps", (4, 8), "warps " + EVIL, "two of them")

    def rules(self, gpu, workload, v):
        yield Rule(v["tile_m"] * v["tile_n"] <= 8192, "area " + EVIL, "no more fits " + EVIL, "certain")

    def use(self, gpu, workload, v):
        warps = v["num_warps"] + 0
        return BlockUse(warps, v["tile_m"] * v["tile_n"] // (32 * v["num_warps"]), v["tile_m"] * v["tile_n"] * 2)

    def num_operations(self, workload):
        return 64 * workload.sizes["n"]


SPEC = Small()
"""
#: Texts that run where they are not escaped: in an element, in a script element, in an attribute, in Plotly's labels.
EVIL = "<b>b</b></script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"' &amp; --ink"


def report(*arguments: object) -> int:
    """Call `constrint report` in this process; the exit code."""
    words = ["report", *map(str, arguments)]
    code = application(words)[0](words, prog_name="constrint", standalone_mode=False)
    return code if isinstance(code, int) else 0


def facts_of(text: str) -> Report:
    """What `--json` printed, checked against the records' types."""
    return msgspec.json.decode(text, type=Report)


def small_kernel(folder: Path, evil: str = "") -> str:
    """A kernel's file with its name in it, as `--kernel` takes it."""
    path = folder / "small.py"
    path.write_text(KERNEL.format(evil=evil))
    return f"{path}:SPEC"


def hostile_gpu(folder: Path) -> Path:
    """A GPU's file whose path is a script element."""
    path = folder / "<script>window.hacked=1<" / "script>.yaml"
    path.parent.mkdir(parents=True)
    text = (DATA / "nvidia" / "h200-sxm.yaml").read_text()
    path.write_text(text.replace("name: H200-SXM", "name: MY-GPU", 1))
    return path


def measured_record(config: Mapping[str, int], median_s: float, **changes: object) -> TuningRecord:
    """A record of the usual product on an MI300X."""
    told = {
        "kernel": "gemm.pointer", "operation": "gemm", "gpu": "MI300X", "dtype": "bf16",
        "sizes": {"m": 4096, "n": 4096, "k": 4096}, "config": dict(config), "outcome": "ok", "run": "r", "created": 1.0,
        "figures": Figures(median_s=median_s, spread_s=1e-6, num_rounds=9), "source_hash": "now", "spec_hash": "now",
    }  # fmt: skip
    return TuningRecord(**{**told, **changes})  # type: ignore[arg-type]
