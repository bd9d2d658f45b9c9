"""Compile the launches of configurations with one checkout's code; needs no GPU.

This file is run as the text of `python -c` in a checkout's folder, which may be older than the file: it uses no more of
the package than loading kernels, their launches, and what launches state. It reads {"kernels": names, "jobs": jobs} on
stdin. The first argument is the file that it writes line by line: fingerprints and compilers, then one line per job
with its launches, or the error that stopped it. The second one is a folder for compiled code, by hashes of all that a
compiler sees, so that nothing is compiled twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: What differs between compilations of the same code.
NAMES = ("hash", "name")


def main(out: Path, code: Path) -> None:
    """Compile every job."""
    question = json.load(sys.stdin)
    sys.path.insert(0, str(Path.cwd()))
    from constrint.kernels.registry import load_spec
    from constrint.select.fingerprint import source_hash

    hashes = {}
    for kernel in question["kernels"]:
        try:
            hashes[kernel] = source_hash(load_spec(kernel))
        except Exception:  # noqa: BLE001
            hashes[kernel] = ""  # the checkout has no such kernel
    with out.open("w", encoding="utf-8") as file:
        print(json.dumps({"hashes": hashes, "package": package(), "tools": tools()}), file=file, flush=True)
        for number, job in enumerate(question["jobs"], 1):
            try:
                found: dict[str, Any] = {"launches": launches_of(job, code)}
            except Exception as error:  # noqa: BLE001  whatever a checkout raises is its answer
                found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
            print(json.dumps({"id": job["id"], **found}), file=file, flush=True)
            print(f"{number} of {len(question['jobs'])}", file=sys.stderr, flush=True)


def package() -> str:
    """Where the package was loaded from."""
    import constrint

    return str(Path(str(constrint.__file__)).parent.parent)


def tools() -> dict[str, str]:
    """The compilers here, by name."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("triton", "nvidia-cuda-nvrtc"):
        try:
            found[name.removeprefix("nvidia-cuda-")] = version(name)
        except PackageNotFoundError:
            continue
    return found


def launches_of(job: Mapping[str, Any], code: Path) -> list[dict[str, Any]]:
    """The launches of a configuration with their code: what is compiled, and everything that Python decides."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import load_spec
    from constrint.select import Workload

    gpu, spec = load_gpu(job["gpu"]), load_spec(job["kernel"])
    workload = Workload(job["operation"], job["sizes"], job["dtype"], job["options"])
    inputs = spec.inputs(gpu, workload, device="meta")
    outputs = spec.outputs(gpu, workload, inputs)
    # Memory is told apart by the order in which the call knows it.
    memory: dict[Any, int] = {}
    facts_of((list(inputs.values()), list(outputs.values())), memory)
    launches = spec.launches(gpu, workload, job["config"], inputs, outputs)
    return [facts_of_launch(launch, gpu, memory, code) for launch in launches]


def facts_of_launch(launch: Any, gpu: Any, memory: dict[Any, int], code: Path) -> dict[str, Any]:
    """One launch: `code` names its compiled form, `facts` are its shape and its arguments."""
    if hasattr(launch, "function"):
        source = launch.source()
        values = launch.values()
        arguments = [(source.types[name], name in source.aligned, values[name]) for name in source.types]
        facts = {"grid": launch.grid, "arguments": arguments, "options": dict(launch.options)}
        built = of_triton(gpu, source, code)
    elif hasattr(launch, "source"):
        names = ("grid", "block", "smem_bytes", "cluster", "is_cooperative", "arguments", "constants")
        facts = {name: getattr(launch, name, None) for name in names}
        built = of_cuda(gpu, launch.source, code)
    else:
        facts, built = {field.name: getattr(launch, field.name) for field in dataclasses.fields(launch)}, {}
    return {"kind": type(launch).__name__, "facts": facts_of(facts, memory), **built}


def facts_of(value: Any, memory: dict[Any, int]) -> Any:
    """A value as JSON that is equal for equal values: tensors by type, shape, strides and whose memory they are.

    Axes of one element change nothing of what a kernel gets, nor do facts that are None, which the other checkout may
    lack.
    """
    if isinstance(value, Mapping):
        return {str(name): facts_of(each, memory) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [facts_of(each, memory) for each in value]
    if hasattr(value, "untyped_storage"):
        # The storage is kept as well: another one might get its address.
        storage = value.untyped_storage()
        place = memory.setdefault(storage._cdata, len(memory))
        memory.setdefault(("kept", place), storage)
        axes = [axis for axis in zip(value.shape, value.stride(), strict=True) if axis[0] != 1]
        return ["tensor", place, str(value.dtype), axes, value.storage_offset()]
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stated = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: facts_of(each, memory) for name, each in stated.items() if each is not None}
    if hasattr(value, "tobytes"):
        return [type(value).__name__, value.tobytes().hex()]
    return repr(value)


def of_cuda(gpu: Any, source: Any, code: Path) -> dict[str, Any]:
    """The machine code of a kernel in CUDA C++, by NVRTC."""
    from constrint.kernels.launch.cuda.nvrtc import compile_cuda, header_digest

    headers = header_digest(source.text, source.folders)
    stated = (source.text, source.function, dict(source.macros), source.options, dict(source.sparing), headers)
    key = digest((stated, gpu.arch.target, tools()["nvrtc"]))

    def compiled() -> tuple[str, Any, dict[str, Any]]:
        binary = compile_cuda(gpu, source)
        figures = {"registers": binary.registers, "spill_bytes": binary.spill_bytes, "smem_bytes": binary.smem_bytes}
        return "cubin", binary.cubin, {"symbol": binary.symbol, "metadata": figures}

    return kept(code, key, compiled)


def of_triton(gpu: Any, source: Any, code: Path) -> dict[str, Any]:
    """The machine code of a kernel in Triton, and what it tells its launcher."""
    import triton

    from constrint.tune.compile import build_triton

    stated = (sorted(source.types.items()), sorted(source.constants.items(), key=str), sorted(source.aligned))
    options = sorted(dict(source.options).items())
    key = digest((source.function.cache_key, stated, options, gpu.arch.target, triton.__version__))

    def compiled() -> tuple[str, Any, dict[str, Any]]:
        kernels: list[Any] = []
        compile_as_is = triton.compile

        def compile_and_keep(*arguments: Any, **options: Any) -> Any:
            kernels.append(compile_as_is(*arguments, **options))
            return kernels[-1]

        triton.compile = compile_and_keep
        try:
            build_triton(gpu, source)
        finally:
            triton.compile = compile_as_is
        kernel = kernels[-1]
        told = {name: repr(value) for name, value in kernel.metadata._asdict().items() if name not in NAMES}
        form = "cubin" if "cubin" in kernel.asm else "amdgcn"
        return form, kernel.asm[form], {"symbol": kernel.metadata.name, "metadata": told}

    return kept(code, key, compiled)


def kept(code: Path, key: str, compiled: Any) -> dict[str, Any]:
    """What was compiled under a key: its file, symbol and figures."""
    stored = code / f"{key}.json"
    if not stored.is_file():
        form, content, facts = compiled()
        file = code / f"{key}.{form}"
        replace(file, content if isinstance(content, bytes) else content.encode())
        replace(stored, json.dumps({"code": file.name, **facts}).encode())
    found: dict[str, Any] = json.loads(stored.read_bytes())
    return found


def replace(path: Path, content: bytes) -> None:
    """Write a file whole: a run that is ended leaves no torn one."""
    part = path.with_suffix(f".{hashlib.sha256(content).hexdigest()[:8]}.part")
    part.write_bytes(content)
    part.replace(path)


def digest(facts: Iterable[Any]) -> str:
    """A hash of facts."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
