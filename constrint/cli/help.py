"""The help of a sub-command: examples first, then its options in groups."""

from __future__ import annotations

from textwrap import wrap
from typing import Any, Final

from constrint.cli.options import FILE_OPTIONS, SIZE

#: Commands that a user may type as they stand, and what each does. Files in capitals are the user's own.
EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "solve": (
        ("--gpu mi300x", "rank the configurations of a product for an MI300X"),
        ("--gpu h200 --kernel lstm --batch 64 --head-dim 96 --where 'num_warps <= 4'", "a layer, with a rule"),
        ("--gpu a100 --top 5 --export triton", "the five best as a list of triton.Config"),
        ("--gpu mi300x --plot", "the roofline and a heat map in the terminal, too"),
        ("--problem TILES.constrint", "solve a problem of your own"),
    ),
    "compare": (("--gpu h200 --gpu mi300x --dtype fp16", "the best of each GPU, side by side"),),
    "explain": (
        ("--gpu h200", "what each rule removes"),
        ("--gpu t4 --where 'tile_m >= 512'", "why nothing fits, and what would"),
    ),
    "why": (("matmul --gpu h200 --m 512 --n 4096 --k 4096 --bias 1", "the kernel that this product runs, and why"),),
    "why-not": (
        (
            "--gpu a100 --kernel gemm.pointer tile_m=256 tile_n=256 tile_k=64 num_warps=8 num_stages=4 split_k=1 "
            "persistent=0 group_m=8",
            "the rules that a configuration breaks",
        ),
    ),
    "count": (("--gpu mi300x", "the number of valid configurations"),),
    "sample": (("--gpu mi300x --count 20 --seed 1", "twenty of them at random"),),
    "verify": (("--gpu mi300x --top 5", "compile the five best; predicted beside compiled"),),
    "report": (("--gpu h200 --out gemm.html", "one page about a product on an H200"),),
    "limits": (("--gpu mi355x", "what limits a block, a CU and the device"),),
    "kernels": (("", "all kernels"), ("gemm", "one of them")),
    "gpus": (("--family CDNA3", "the models of a family"),),
    "gpu": (("mi300x", "a model with its sources"), ("--detect", "the GPUs of this machine")),
    "occupancy": (("--gpu h200 --threads 256 --registers 128 --smem 100000", "blocks on an SM, and the limit"),),
    "banks": (
        ("--gpu mi355x --tile 32x64 --dtype bf16 --access mfma_16x16x32", "the conflicts of one access"),
        ("--gpu h200 --tile 64x64 --access ldmatrix --solve", "a layout without any"),
    ),
    "compile": (
        ("KERNEL.py:NAME --gpu mi300x --signature '*fp16,*fp16,i32,64'", "registers, spills and shared memory"),
    ),
    "tune": (
        ("--gpu h200 --budget 2m", "measure on this machine's GPU for two minutes"),
        ("--workloads SHAPES.yaml", "all workloads of a file"),
    ),
    "propose": (("--gpu h200 --rounds 2", "built-in rules propose, and a model where one is configured"),),
    "evaluate": (
        ("--suggestions DIR --kernel spmv --model triton", "score a model's answers to one prompt"),
        ("--suggestions DIR --plot scores.html", "a folder KERNEL/MODEL/FILE, and a plot"),
    ),
    "prune": (
        ("KERNEL.py:NAME --gpu mi300x --signature '*_ptr=*fp16,*=i32:16'", "its own list, for a GPU"),
        (
            "KERNEL.py:NAME --gpu mi300x --signature '*fp16,*fp16,*fp16,i32' --like gemm.pointer --write CONFIGS.py",
            "a product's list in the order of a model, as Python",
        ),
    ),
    "docs": (("", "all pages"), ("language", "one of them"), ("--man", "the manual page, for man")),
    "doctor": (("", "what is missing, stale or broken here"),),
}
#: Groups of options in the order of the help: the title and its options. Sizes are a group of their own.
GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "Problem",
        (
            "--gpu",
            "--kernel",
            "--dtype",
            "--set",
            "--where",
            "--strict",
            *FILE_OPTIONS,
            "--dialect",
            "--implicit-variables",
        ),
    ),
    ("Sizes", ()),
    (
        "Output",
        (
            "--top",
            "--all",
            "--format",
            "--json",
            "--columns",
            "--sort",
            "--wide",
            "--legend",
            "--raw",
            "--export",
            "--output",
            "--out",
            "--plot",
            "--rename",
            "--force",
        ),
    ),
    ("Limits", ("--backend", "--max-seconds", "--max-memory", "--budget", "--timeout")),
)
OTHERS: Final = "Options"


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the examples of a command, its arguments, and its options by groups.

    Args:
        command: The command of the command line library.
        ctx: Its context.
        formatter: The library's formatter of help texts.
    """
    examples = EXAMPLES.get(str(ctx.info_name), ())
    if examples:
        with formatter.section("Examples"):
            for words, meaning in examples:
                formatter.write_text(f"# {meaning}")
                whole, indent = f"constrint {ctx.info_name} {words}".rstrip(), " " * formatter.current_indent
                lines = wrap(whole, formatter.width - 6, break_long_words=False, break_on_hyphens=False)
                formatter.write(indent + f" \\\n{indent}  ".join(lines) + "\n")
    records: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            records.setdefault(group_of(param), []).append(record)
    for title in ("Arguments", OTHERS, *(title for title, _ in GROUPS)):
        if title in records:
            with formatter.section(title):
                formatter.write_dl(records[title])


def group_of(param: Any) -> str:
    """The title of the group that a parameter stands in."""
    if param.param_type_name == "argument":
        return "Arguments"
    if str(param.name).startswith(SIZE):
        return "Sizes"
    return next((title for title, options in GROUPS if param.opts[0] in options), OTHERS)
