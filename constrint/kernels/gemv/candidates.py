"""The candidates for a matrix-vector product: the best of each implementation, the library among them. No torch.

A measured winner comes first. The library is a candidate by prediction where it was measured; elsewhere the first calls
try it (`op.py`), and it comes behind the kernel here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from constrint.choose import candidates as ranked
from constrint.choose.decide import Refusal, decide
from constrint.choose.decision import Decision, Evidence, Program, Request, Step, in_order
from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.kernels.gemv.library import LIBRARY, library_s
from constrint.kernels.gemv.shape import MatrixShape
from constrint.kernels.registry import load_kernel
from constrint.select.candidate import Config
from constrint.select.rank import rank_requests, requests
from constrint.select.spec import KernelSpec

OWN = "gemv.triton"
#: Ranked configurations among which `unlike` looks, and properties in which they have to differ at least.
RANKED, LEAST_DIFFERENCES = 300, 2
#: Rows of blocks of one step.
ONE_STEP_ROWS = (1, 2)
NAMES = ("triton", "library")
#: Names that `gemv(..., kernel=...)` takes.
KERNELS = ("auto", *NAMES)


def implementations(request: Request) -> Sequence[KernelSpec]:
    """The implementations that compete."""
    return load_kernel("gemv").implementations


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The candidates by time, the one that runs first.

    Raises:
        InfeasibleError: When nothing runs.
        UnknownNameError: When the request names another kernel.
        UnsupportedError: When the named kernel does not compute the product; says why.
        UsageError: When the named configuration is not valid, or there is no model of the device.
    """
    if request.kernel and request.kernel not in NAMES:
        raise UnknownNameError("kernel", request.kernel, KERNELS)
    library = _library(request)
    if request.kernel == "library":
        if library.refusal and request.workload.dtype == "fp8":
            raise UnsupportedError(library.refusal)
        return [replace(library, refusal="", steps=library.steps or (Step("product", LIBRARY),))]
    own = replace(request, operation=OWN, kernel="")
    if request.gpu is None:
        if request.kernel:
            raise UsageError("gemv.triton: nothing is chosen for a device without a hardware model.")
        return [library]
    programs: list[Program] = []
    try:
        programs = ranked.candidates(own, refused)
    except (InfeasibleError, UnsupportedError) as error:
        if request.kernel:
            raise
        programs = [Program(OWN, refusal=str(error))]
    if request.kernel:
        return programs
    if programs[0].evidence is Evidence.MEASURED:
        return [*programs, library]
    ordered = in_order([*programs, library])
    if ordered[0].refusal:
        raise InfeasibleError(ordered[0].refusal)
    return ordered


def alternatives(decision: Decision) -> list[Program]:
    """The next configurations of the kernel by predicted time, for an explanation."""
    with suppress(UnsupportedError, UsageError):
        own = replace(decision.request, operation=OWN, kernel="")
        return ranked.alternatives(replace(decision, request=own))
    return []


def unlike(request: Request, chosen: Config, number: int) -> list[Program]:
    """Configurations of the kernel that work in another way than a chosen one, by predicted time.

    Args:
        request: The request.
        chosen: The configuration that others should differ from, in the number of blocks that share a row, the loads
            of a thread, the warps, or whether steps are loaded ahead.
        number: How many, at most.
    """
    assert request.gpu is not None
    operation = load_kernel(OWN)
    stated, refusals = requests(operation, request.gpu, request.workload)
    seen, found = [_kind(chosen)], list[Program]()
    for candidate in rank_requests(operation, stated, refusals, top=RANKED).candidates:
        kind = _kind(candidate.config)
        if all(sum(a != b for a, b in zip(kind, other, strict=True)) >= LEAST_DIFFERENCES for other in seen):
            seen.append(kind)
            step = Step("product", OWN, candidate.config, request.workload, {}, candidate.cost.seconds)
            found.append(Program(OWN, (step,), note=f"bound by {candidate.cost.bound_by}"))
            if len(found) == number:
                break
    return found


def of_one_step(request: Request) -> list[Program]:
    """The best configurations whose blocks load whole rows before they add: of one row, and of several.

    No block waits twice, which the model of steps that follow each other does not tell from many short ones.
    """
    shape = MatrixShape.of(request.workload)
    whole = 1 << max(0, shape.n - 1).bit_length()
    found = []
    for rows in ONE_STEP_ROWS if not shape.by_columns else ():
        fixed = {"tile_m": rows, "tile_n": whole, "splits": 1, "num_stages": 1}
        with suppress(InfeasibleError, UnsupportedError, UsageError):
            found.append(decide(replace(request, operation=OWN, kernel="", config=None, fixed=fixed)).program)
    return found


def _kind(config: Config) -> tuple[int, ...]:
    """How a configuration works: bytes in flight, splits, warps, and whether steps are loaded ahead."""
    loads = config["tile_m"] * config["tile_n"] // config["vector"]
    return loads, config["splits"], config["num_warps"], min(config["num_stages"], 2), config["tile_m"]


def force_hint(decision: Decision) -> str:
    """Arguments of `gemv` by which a caller forces another candidate."""
    return 'gemv(..., kernel="triton" or "library"), with config={...} for one configuration of gemv.triton'


def _library(request: Request) -> Program:
    """The library's product, or why it is no candidate."""
    workload = request.workload
    if workload.dtype == "fp8":
        return Program(LIBRARY, refusal="torch has no product of an 8-bit matrix and a vector")
    seconds = None if request.gpu is None else library_s(request.gpu, workload)
    step = Step("product", LIBRARY, workload=workload, seconds=seconds)
    note = "interpolated between measured products" if seconds is not None else "not measured on this GPU: tried first"
    return Program(LIBRARY, (step,), note=note)
