"""Mutated models of GPUs: each is loaded, and one that loads is solved for; nothing ends in a traceback or in nonsense.

`python -m benchmarks.attacks.gpu_models --count 2000 --seed 1` prints a summary, and the first finds with their files.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from benchmarks.attacks import called, parser_of
from constrint.errors import HardwareModelError
from constrint.hwmodels import GpuModel, load, load_gpu
from constrint.hwmodels.files import parse_yaml

FILES = sorted((Path(load.__file__).parent / "data").glob("*/*.yaml"))
NUMBERS = (-1, 0, 1, 2, 3, 7, 31, 33, 2**16 - 1, 2**31, 2**50, 2**63, 10**30, 0.5, 1e-300, 1e308, True, "1_0", "0x10")
TEXTS = ("", " ", "x", "H200\n", "\x1b[31m", "..", "a" * 5000, "sm_90a", "gfx942", "amd", "nvidia", "fp16", "wgmma")
#: Questions about a model that loads.
COMMANDS = (
    ("solve", "--kernel", "gemm", "--json"),
    ("solve", "--kernel", "lstm", "--json"),
    ("solve", "--kernel", "gemm.pointer", "--dtype", "fp32", "--json"),
    ("solve", "--kernel", "gru-backward", "--json"),
    ("solve", "--kernel", "gemm", "--dtype", "int8", "--top", "3"),
    ("why", "matmul"),
    ("why", "lstm"),
    ("limits",),
    ("explain", "--kernel", "gemm.skinny"),
    ("occupancy", "--threads", "256", "--registers", "64", "--smem", "20000", "--json"),
)


def mutated(draw: random.Random) -> str:
    """The text of a GPU's file with a few changes."""
    text = draw.choice(FILES).read_text(encoding="utf-8")
    if draw.random() < 0.15:
        return _with_broken_text(text, draw)
    raw = deepcopy(parse_yaml(text, "a shipped file"))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        _change(raw, draw)
    return yaml.safe_dump(raw, sort_keys=False, allow_unicode=draw.random() < 0.5, default_flow_style=None)


def _with_broken_text(text: str, draw: random.Random) -> str:
    """The text without a piece, with one twice, or with a character in it."""
    start = draw.randrange(len(text))
    end = min(len(text), start + draw.choice((1, 5, 40, 300)))
    inner = draw.choice(("", text[start:end] * 2, draw.choice("\x00\t:{}[]&*!|>'\"%@`#\x85\u2028\ud800\n-")))
    return text[:start] + inner + text[end:]


def _change(raw: dict[str, Any], draw: random.Random) -> None:
    """Change one value, key or list of the file, most often a number."""
    section = draw.choice(("sm", "sm", "sm", "device", "memory", "compute", "matrix", ""))
    inner = raw.get(section)
    places = list(_places(inner if isinstance(inner, dict) and inner else raw))
    numbers = [(node, key) for node, key in places if isinstance(node[key], int | float)]
    node, key = draw.choice(numbers if numbers and draw.random() < 0.8 else places)
    value = node[key]
    if isinstance(value, int | float) and not isinstance(value, bool) and draw.random() < 0.6:
        scaled = type(value)(value * draw.choice((0.001, 0.1, 0.5, 2, 3, 10, 1000, 1e6)))
        node[key] = draw.choice((scaled, scaled, value + draw.choice((-1, 1, 64))))
        return
    kind = draw.randrange(8)
    if kind == 0:
        del node[key]
    elif kind == 1:
        node[key] = None
        if isinstance(raw.get("unconfirmed"), list):
            raw["unconfirmed"].append(f"{_path_to(raw, node, key)}: nobody knows")
    elif kind == 2:
        node[key] = draw.choice(([], {}, [value], {"a": value}, [value, value], [[value]]))
    elif kind == 3 and isinstance(node, dict):
        node[draw.choice((f"{key}2", "sources", "", "x" * 300))] = value
    elif kind == 4:
        other, at = draw.choice(places)
        node[key] = deepcopy(other[at])
    else:
        node[key] = draw.choice(TEXTS if isinstance(value, str) else NUMBERS)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a nested value: its container, and the key or index there."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _path_to(raw: Any, node: Any, key: Any, path: str = "") -> str:
    if raw is node:
        return f"{path}.{key}".lstrip(".") if isinstance(raw, dict) else path
    for name, inner in raw.items() if isinstance(raw, dict) else enumerate(raw):
        if isinstance(inner, dict | list):
            found = _path_to(inner, node, key, f"{path}.{name}" if isinstance(raw, dict) else path)
            if found:
                return found
    return ""


def problem_of(path: Path, draw: random.Random) -> tuple[str, str]:
    """The outcome for one file, `refused`, `answered` or `found`, and for a find what is wrong."""
    try:
        gpu = load_gpu(path)
    except HardwareModelError as error:
        return _judged_refusal(str(error), path)
    except Exception:  # noqa: BLE001 - any other is a find
        return "found", f"load_gpu: {traceback.format_exc()}"
    for command, *words in draw.sample(COMMANDS, 3):
        try:
            code, out, err = called(command, "--gpu", str(path), *words)
        except BaseException:  # noqa: BLE001 - any other than the command's own end is a find
            code, out, err = 3, "", traceback.format_exc()
        wrong = err if code not in (0, 1, 2) else _nonsense(out, gpu) if "--json" in words and code == 0 else ""
        if code != 0 and not wrong and not err.startswith(("error: ", "note: ", "warning: ")) and not out:
            wrong = f"exit code {code} without a message"
        if wrong:
            return "found", f"{command} {' '.join(words)}: {wrong}"
    return "answered", ""


def _judged_refusal(text: str, path: Path) -> tuple[str, str]:
    is_plain = text.startswith(str(path)) and len(text) < len(str(path)) + 450
    return ("refused", "") if is_plain else ("found", f"a message without its file, or a long one: {text[:500]}")


def _nonsense(out: str, gpu: GpuModel) -> str:
    """What cannot be in a document: infinite, negative or absent times, blocks that do not fit."""
    document = json.loads(out)
    for result in document.get("results", []):
        for candidate in result.get("candidates", []):
            seconds = candidate["predicted_s"]
            if not isinstance(seconds, float) or not 0 < seconds < math.inf:
                return f"predicted_s is {seconds}"
            for name, most in (
                ("threads_per_block", gpu.sm.max_threads_per_block),
                ("smem_bytes_per_block", gpu.sm.max_smem_bytes_per_block),
                ("blocks_per_sm", gpu.sm.max_blocks_per_sm),
            ):
                if not 0 <= (candidate[name] or 0) <= most:
                    return f"{name} is {candidate[name]}"
    return ""


def attack(count: int, seed: int, folder: Path, first: int = 0) -> tuple[Counter[str], list[str]]:
    """The outcomes of a number of mutated files, `first` of which are passed over, and the finds."""
    outcomes: Counter[str] = Counter()
    finds: list[str] = []
    for number in range(first, first + count):
        if number % 100 == 99:
            print(f"{number + 1} of {first + count}: {len(finds)} finds", file=sys.stderr, flush=True)
        draw = random.Random(f"{seed}-{number}")
        path = folder / f"gpu-{seed}-{number}.yaml"
        path.write_bytes(mutated(draw).encode("utf-8", "surrogatepass"))
        outcome, wrong = problem_of(path, draw)
        outcomes[outcome] += 1
        if wrong:
            finds.append(f"{path}: {wrong}")
        else:
            path.unlink()
    return outcomes, finds


def main() -> None:
    """Run the attack; exit code 1 where anything was found."""
    options = parser_of(__doc__, 200)
    options.add_argument("--first", type=int, default=0, help="how many cases are passed over, to go on with a run")
    options.add_argument("--folder", type=Path, help="where the files of finds stay")
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="gpu-models-"))
    outcomes, finds = attack(given.count, given.seed, folder, given.first)
    for find in finds[:10]:
        lines = find.splitlines()
        print("\n".join([lines[0][:300], *lines[-8:]] if len(lines) > 9 else [find[:2000]]), file=sys.stderr)
    print(f"gpu_models: {given.count} files, seed {given.seed}: {dict(outcomes)}")
    sys.exit(bool(finds))


if __name__ == "__main__":
    main()
