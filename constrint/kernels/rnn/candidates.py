"""Candidates of a recurrent layer: each implementation, with a configuration and a time for each direction.

`constrint.choose.decide` calls `candidates` for a request whose operation is a cell; both directions are one request.
The configuration of an implementation is the decision of `decide` for that implementation alone. A library's layer
(cuDNN, or torch's on the CPU) is a candidate like the kernels, for modules: libraries project the inputs themselves.

How candidates compare:

- Kernels with each other: by predicted time. In a direction where one of them is a measured winner, the winner counts
  by its measurement, and the prediction of the others is divided by `CLEARLY_FASTER`.
- A kernel whose model was fitted to few loops (`left_out_errors`) is taken where its total time, the median error added
  to what is predicted, is below the total of every other kernel by the best evidence.
- The best of the kernels with cuDNN: total time. Per direction the best evidence: measured layer, measured loop,
  prediction.
- Pre-activations are stored for the backward pass unless recomputing them is predicted to take less than `MUCH_FASTER`
  of the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from constrint.choose import BACKWARD, FORWARD, Decision, ErrorBand, Evidence, Program, Refusal, Request, Step, decide
from constrint.choose.decide import has_refused
from constrint.errors import ConstrintError, InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cudnn.spec import CudnnLayer, layer_s, left_out_errors
from constrint.kernels.rnn.cudnn.spec import measured as measured_cudnn
from constrint.kernels.rnn.measured import measured_layer, table_of
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, predict_s, workload_of
from constrint.select.spec import KernelSpec
from constrint.select.workload import Workload

#: Values of `recompute`, for both directions together: pre-activations are stored, or recomputed.
STORED, RECOMPUTED = 0, 1
#: Share of a winner's time that the prediction of another implementation has to be below: most likely the other
#: one was tuned as well and lost, and the least of many predictions is rather too small.
CLEARLY_FASTER = 0.8
#: Share of the time that recomputing pre-activations has to be predicted to take: recomputation takes PyTorch
#: calls and launches without a plan, a few milliseconds of the host that no model has.
MUCH_FASTER = 0.8
#: Steps that a layer of a module or of `rnn` is planned for: times of all implementations are proportional to them.
PLANNED_TIME = 1024
#: torch's own layers on the CPU (`aten::lstm`, `gru`, `rnn_tanh`, `rnn_relu`), and their cells.
TORCH, TORCH_CELLS = "torch", ("lstm", "gru", "elman", "elman_relu")
#: A call of one step by products of the library and one kernel in a plan (`onestep/plans.py`), and its cells.
ONE_STEP, ONE_STEP_CELLS = "onestep", TORCH_CELLS
#: Two layers without gradients took .72 to .99 of the speed of torch's layer on an H200 (`benchmarks.rnn.steps` of
#: commit 0c61f683).
SEVERAL_LAYERS = "it takes several layers only where gradients are wanted: a library runs all of them in one call"
#: `Program.needs` of a library's layer.
MODULES = "modules"
SAME_IN_BOTH = "the other direction was launched so"
NOT_PREDICTED = "its time is not compared on a device without a hardware model"


class ModuleCall(NamedTuple):
    """Call of a whole module.

    Args:
        batch: Sequences.
        time: Steps.
        input_size: Features of the first layer's input.
        num_layers: Layers.
        directions: 2 if each layer also runs backwards in time.
        trains: Whether the backward pass counts.
        refusals: (library, reason) of each library that cannot run this call, whatever its time.
    """

    batch: int
    time: int
    input_size: int
    num_layers: int = 1
    directions: int = 1
    trains: bool = True
    refusals: tuple[tuple[str, str], ...] = ()


class LayerDetail(NamedTuple):
    """`Request.detail` of a layer; None stands for its defaults.

    Args:
        is_projected: Whether the inputs are projected already, as `rnn` takes them.
        module: The call of a module; without it the layer is a single layer, with input_size equal to its units.
        configs: (direction, ((parameter, value), ...)) that the caller forces.
    """

    is_projected: bool = False
    module: ModuleCall | None = None
    configs: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """Every implementation of a cell: the one that runs first, then the others that can, then those that cannot.

    Raises:
        InfeasibleError: When none can run; says why of each.
        UnknownNameError: When there is no implementation of the name in `request.kernel`.
    """
    detail = detail_of(request)
    if detail.module is not None:
        return _for_module(request, detail, detail.module)
    if request.gpu is None:
        return _checked(request, _without_model(request, {}))
    unable = _unable(request)
    if request.device is not None and not request.kernel:
        # The decision for the GPU's model is on disk; it holds unless this machine lacks one of its candidates.
        named = decide(request.without_device()).programs
        if not any(unable.get(program.name) for program in named if not program.refusal):
            return [replace(p, refusal=unable.get(p.name) or p.refusal) for p in named]
    layers = [_timed(name, specs, request, unable.get(name, "")) for name, specs in _competing(request).items()]
    return _checked(request, _in_order(layers, is_projected=detail.is_projected))


def force_hint(decision: Decision) -> str:
    """Arguments by which a caller forces another candidate."""
    names = [program.name for program in decision.passed_over if not program.refusal]
    backend = f"backend={names[0]!r}" if names else "backend="
    return f"LSTM(..., {backend}) or rnn(..., {backend}); values of parameters with config={{'forward': {{...}}}}"


def decide_layer(
    workload: Workload, gpu: GpuModel, directions: tuple[str, ...] = tuple(SUFFIX), *, projected: bool = False
) -> Decision:
    """The decision for a layer on a named GPU.

    Args:
        workload: The workload of the forward direction.
        gpu: The hardware model.
        directions: ("forward",), or ("forward", "backward").
        projected: Whether the inputs are projected already, as `rnn` takes them.
    """
    detail = LayerDetail(is_projected=projected)
    return decide(Request(workload.operation, workload, gpu, directions=directions, detail=detail))


def implementations(request: Request) -> Sequence[KernelSpec] | None:
    """The kernels that a decision depends on; None, which keeps it off the disk, where a device has refused one."""
    if request.gpu is None or has_refused(request.gpu):
        return None
    return [spec for specs in implementations_of(request.operation).values() for spec in specs.values()]


def implementations_of(cell: str) -> dict[str, dict[str, RnnSpec]]:
    """Specs of every implementation by direction, by the implementation's name; preferred ones first.

    An implementation of the forward pass alone has the backward pass of the implementation in its `backward_by`, one of
    the backward pass alone the forward pass of that in its `forward_by`.
    """
    from constrint.kernels.registry import load_kernel

    by_name: dict[str, dict[str, RnnSpec]] = {}
    for direction, suffix in SUFFIX.items():
        for spec in load_kernel(cell + suffix).implementations:
            if isinstance(spec, RnnSpec):
                by_name.setdefault(spec.name, {})[direction] = spec
    for specs in by_name.values():
        forward = specs.get(FORWARD)
        if forward is not None and BACKWARD in by_name.get(forward.backward_by, {}):
            specs.setdefault(BACKWARD, by_name[forward.backward_by][BACKWARD])
        backward = specs.get(BACKWARD)
        if backward is not None and FORWARD in by_name.get(backward.forward_by, {}):
            specs.setdefault(FORWARD, by_name[backward.forward_by][FORWARD])
    return {name: specs for name, specs in by_name.items() if specs.keys() == SUFFIX.keys()}


def detail_of(request: Request) -> LayerDetail:
    """The detail of a layer's request."""
    return request.detail if isinstance(request.detail, LayerDetail) else LayerDetail()


# Implementations that compete, and those that cannot run.


def _competing(request: Request) -> dict[str, dict[str, RnnSpec]]:
    specs = implementations_of(request.operation)
    if not request.kernel:
        # Without a backward pass, what has no forward pass of its own is another one's candidate.
        return {name: of for name, of in specs.items() if BACKWARD in request.directions or not of[BACKWARD].forward_by}
    if request.kernel not in specs:
        raise UnknownNameError("backend", request.kernel, [*specs, "auto"])
    if specs[request.kernel][FORWARD].projects and detail_of(request).is_projected:
        raise UnsupportedError(specs[request.kernel][FORWARD].modules_alone)
    return {request.kernel: specs[request.kernel]}


def _unable(request: Request) -> dict[str, str]:
    """Reasons by implementation why the device of a request cannot run it."""
    if request.device is None:
        return {}
    reasons = {}
    for name, specs in _competing(request).items():
        device: Any = request.device
        reason = specs[FORWARD].refusal_on(device, request.gpu)
        if reason:
            reasons[name] = reason
    return reasons


def _checked(request: Request, programs: list[Program]) -> list[Program]:
    """The candidates, if the first one can run."""
    if programs and not programs[0].refusal:
        return programs
    if len(programs) == 1:
        raise UnsupportedError(
            f"backend {programs[0].name!r}: {programs[0].refusal}. Use 'auto', or 'alternating', which runs anywhere."
        )
    reasons = "; ".join(f"{program.name}: {program.refusal}" for program in programs)
    raise InfeasibleError(f"no implementation runs {request.workload}: {reasons}")


def _without_model(request: Request, refusals: Mapping[str, str]) -> list[Program]:
    """The candidates on a device without a hardware model: no configuration is chosen, no time predicted."""
    unable, programs = _unable(request), []
    for name, specs in _competing(request).items():
        reason = unable.get(name, "") or (NOT_PREDICTED if specs[FORWARD].projects else "")
        steps = [
            Step(d, specs[d].full_name, workload=specs[d].planned(_of_direction(request, d)), seconds=None)
            for d in request.directions
        ]
        needs = MODULES if specs[FORWARD].projects else ""
        programs.append(Program(name, () if reason else tuple(steps), reason, needs=needs))
    programs.sort(key=lambda program: bool(program.refusal))
    programs[0] = replace(programs[0], why="" if programs[0].refusal else "the only one that can")
    torchs = _torch_layer(request, refusals)
    is_first = torchs and not torchs[0].refusal and not detail_of(request).is_projected
    return [*torchs, *programs] if is_first else [*programs, *torchs]


def _of_direction(request: Request, direction: str) -> Workload:
    return replace(request.workload, operation=request.operation + SUFFIX[direction])


# Times, and the comparison of implementations.


@dataclass(frozen=True)
class _TimedLayer:
    """An implementation with its times in seconds by direction.

    Args:
        program: Its candidate; each step has the best evidence of its direction.
        projects: Whether it is a library's layer.
        modelled: Predicted times.
        by_loop: Where the configuration is a measured winner: the prediction, times measured over predicted time of the
            winner's loop.
        by_layer: Where layers were measured: their time, with the prediction of steps beyond them.
        errors: Median errors of predicted times that have to be added before it is taken.
    """

    program: Program
    projects: bool = False
    modelled: Mapping[str, float] = field(default_factory=dict)
    by_loop: Mapping[str, float] = field(default_factory=dict)
    by_layer: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_wary(self) -> bool:
        """Whether an error has to be added to a predicted time of it."""
        return bool(self.errors.keys() - self.by_loop.keys())

    @property
    def best(self) -> dict[str, float]:
        """Per direction the best evidence: measured layer, measured loop, prediction."""
        return {**self.modelled, **self.by_loop, **self.by_layer}

    @property
    def total_s(self) -> float:
        """Total time by the best evidence; a library's layer by its interpolated measurements."""
        return sum(self.modelled.values()) if self.projects else sum(self.best.values())

    def compared_s(self, measured: Collection[str]) -> float:
        """Total time beside other kernels, of which some are measured winners in the directions `measured`."""
        wary = {d: s / CLEARLY_FASTER if d in measured else s for d, s in self.modelled.items()}
        return sum({**wary, **self.by_loop}.values())

    def wary_s(self, measured: Collection[str]) -> float:
        """Total time by the best evidence, what is predicted with its error; measured winners as in `compared_s`."""
        least = {d: 1 / CLEARLY_FASTER if d in measured else 1.0 for d in self.modelled}
        wary = {d: s * max(least[d], 1 + self.errors.get(d, 0.0)) for d, s in self.modelled.items()}
        return sum({**wary, **self.by_loop, **self.by_layer}.values())

    def times(self) -> str:
        """Render the times by evidence."""
        by_evidence = {"modelled": self.modelled, "by measured winners": self.by_loop, "measured": self.by_layer}
        parts = ((word, ", ".join(f"{d} {1e3 * s:.3g} ms" for d, s in of.items())) for word, of in by_evidence.items())
        return "; ".join(f"{word} {text}" for word, text in parts if text)


def _in_order(layers: Sequence[_TimedLayer], *, is_projected: bool) -> list[Program]:
    """The candidate that runs, then the others that can by time, then those that cannot."""
    able = [layer for layer in layers if not layer.program.refusal and not (is_projected and layer.projects)]
    if not able:
        return [layer.program for layer in layers]
    kernels = [layer for layer in able if not layer.projects]
    measured = {direction for layer in kernels for direction in layer.by_loop}
    first = _first_kernel(kernels, measured) if kernels else able[0]
    faster = (layer for layer in able if layer.projects and layer.total_s < first.total_s)
    chosen = next(faster, first)
    others = sorted(
        (layer for layer in layers if layer is not chosen),
        key=lambda layer: (bool(layer.program.refusal), is_projected and layer.projects, layer.total_s),
    )
    why = _why(chosen, first, able)
    return [replace(chosen.program, why=why), *(layer.program for layer in others)]


def _first_kernel(kernels: Sequence[_TimedLayer], measured: Collection[str]) -> _TimedLayer:
    """The kernel that runs: one whose predictions have an error has to be faster than all others by more than that."""
    sure = [layer for layer in kernels if not layer.is_wary]
    if not sure:
        return min(kernels, key=lambda layer: layer.wary_s(measured))
    first, least_s = min(sure, key=lambda layer: layer.compared_s(measured)), min(layer.total_s for layer in sure)
    faster = (layer for layer in kernels if layer.is_wary and layer.wary_s(measured) < least_s)
    return min(faster, key=lambda layer: layer.wary_s(measured), default=first)


def _why(chosen: _TimedLayer, first: _TimedLayer, able: Sequence[_TimedLayer]) -> str:
    if len(able) == 1:
        return "the only one that can"
    if first.by_layer.keys() == first.modelled.keys() and any(layer.projects for layer in able):
        return "the least time: both this layer and the library's were measured"
    if chosen.is_wary:
        return f"the least predicted time, with {max(chosen.errors.values()):.0%} for the error of its model"
    return (
        "the least time, that of measured winners as they were measured"
        if chosen.by_loop
        else "the least predicted time"
    )


def _timed(name: str, specs: Mapping[str, RnnSpec], request: Request, unable: str) -> _TimedLayer:
    """One implementation with its choices and times, or the reason why it cannot run."""
    gpu, forward = request.gpu, specs[FORWARD]
    assert gpu is not None
    projects, needs = forward.projects, MODULES if forward.projects else ""
    workloads = {
        d: Workload(specs[d].operation, request.workload.sizes, request.workload.dtype) for d in request.directions
    }
    try:
        uncalibrated = (specs[direction].uncalibrated() for direction in request.directions)
        refusal = unable or ("" if request.kernel else next(filter(None, uncalibrated), ""))
        if refusal:
            return _TimedLayer(Program(name, refusal=refusal, needs=needs), projects)
        if projects:
            for direction, workload in workloads.items():
                specs[direction].check_workload(gpu, workload)
        choices, modelled = _choices(specs, request, workloads)
    except ConstrintError as error:
        if request.kernel:
            raise
        return _TimedLayer(Program(name, refusal=str(error), needs=needs), projects)
    time = request.workload.sizes["time"]
    measured = {d: measured_layer(name, specs[d], gpu, workload) for d, workload in workloads.items()}
    by_layer = {d: m.seconds + modelled[d] * (1 - m.steps / time) for d, m in measured.items() if m is not None}
    winners = {d: choice for d, choice in choices.items() if choice.is_measured}
    by_loop = {d: modelled[d] * _slowdown(specs[d], choice) for d, choice in winners.items()}
    off = {d: errors for d in workloads if (errors := specs[d].left_out_errors()) is not None}
    medians = {d: median for d, (median, _) in off.items()}
    layer = _TimedLayer(Program(name), projects, modelled, by_loop, by_layer, medians)
    steps = tuple(_step(d, choices[d], layer.best[d], is_measured=projects or d in by_layer) for d in workloads)
    tables = dict.fromkeys(choice.program.table for choice in winners.values())
    if by_layer or projects:
        tables |= {f"{forward.name}/measured/{table_of(forward.name, gpu.name).name}": None}
    # Of a backward pass that names its forward pass, the note of that one says another backward pass.
    own = tuple(d for d in request.directions if d == FORWARD or not specs[d].forward_by)
    notes = [layer.times(), forward.note(request.workload, own)]
    program = Program(
        name,
        steps,
        note="; ".join(note for note in notes if note),
        table=", ".join(filter(None, tables)),
        band=_band(gpu) if projects else _band_of(off) if layer.is_wary else None,
        needs=needs,
    )
    return replace(layer, program=program)


def _step(direction: str, choice: Decision, seconds: float, *, is_measured: bool) -> Step:
    evidence = Evidence.ELSEWHERE if is_measured else Evidence.MODELLED
    evidence = Evidence.MEASURED if choice.is_measured else evidence
    return replace(choice.step, role=direction, seconds=seconds, evidence=evidence)


def _band(gpu: GpuModel) -> ErrorBand:
    median, nine_in_ten = left_out_errors(gpu.name)
    return ErrorBand(median, nine_in_ten, "interpolation at measured sizes that are left out")


def _band_of(errors: Mapping[str, tuple[float, float]]) -> ErrorBand:
    """The errors of the direction that is off by most."""
    direction, (median, nine_in_ten) = max(errors.items(), key=lambda item: item[1])
    return ErrorBand(median, nine_in_ten, f"the {direction} loop, layers outside the fit of its model")


def _slowdown(spec: RnnSpec, choice: Decision) -> float:
    """Measured over predicted time of a winner's loop."""
    if choice.gpu is None or choice.workload is None or not choice.seconds:
        return 1.0
    return choice.seconds / predict_s(spec, choice.gpu, choice.workload, choice.config)


def _choices(
    specs: Mapping[str, RnnSpec], request: Request, workloads: Mapping[str, Workload]
) -> tuple[dict[str, Decision], dict[str, float]]:
    """Decisions of the directions, and their predicted times.

    Inference stores no pre-activations; training does unless it is predicted to be much faster to recompute them. Times
    of measured winners are predicted, too: their measurement is the loop, and recomputing is no part of it.
    """
    gpu = request.gpu
    assert gpu is not None
    forced = {direction: dict(values) for direction, values in detail_of(request).configs}
    if request.config is not None:
        forced[FORWARD] = dict(request.config)
    values: Iterable[int | None] = (None,)
    if specs[FORWARD].may_recompute:
        values = (STORED, RECOMPUTED) if BACKWARD in workloads else (RECOMPUTED,)
        values = values if "recompute" not in request.fixed else (request.fixed["recompute"],)
    alternatives = []
    for value in values:
        choices = {d: choose_for(specs[d], gpu, workload, value, forced.get(d)) for d, workload in workloads.items()}
        seconds = {
            d: predict_s(specs[d], gpu, specs[d].run_as(workload), choices[d].config)
            for d, workload in workloads.items()
        }
        alternatives.append((choices, seconds))
    first, *others = alternatives
    if others and sum(others[0][1].values()) < MUCH_FASTER * sum(first[1].values()):
        return others[0]
    return first


def choose_for(
    spec: RnnSpec,
    gpu: GpuModel | None,
    workload: Workload,
    recompute: int | None,
    forced: Mapping[str, int] | None = None,
) -> Decision:
    """The decision for one implementation of one direction.

    Args:
        spec: The implementation.
        gpu: The hardware model; None where there is none of the device.
        workload: The workload of this direction.
        recompute: Whether pre-activations are recomputed, where the implementation can do that.
        forced: Values that the caller forces.

    Raises:
        ConstrintError: When it cannot run the workload on the GPU, or not with the forced values; says why.
    """
    params = {param.name for param in spec.params(gpu, workload)} if gpu is not None else set[str]()
    for name in forced or {}:
        if name not in params:
            raise UnknownNameError(f"parameter of {spec.full_name}", name, sorted(params))
    if not params:
        step = Step(spec.direction, spec.full_name, workload=workload)
        return Decision(Request(spec.full_name, workload, gpu), Program(spec.full_name, (step,)))
    fixed: dict[str, int] = {} if recompute is None else {"recompute": recompute}
    if forced and forced.get("recompute", recompute) != recompute:
        raise UsageError(
            f"{spec.full_name}: config= has recompute={forced['recompute']}, and the call needs recompute={recompute}: "
            "the argument recompute= of rnn decides that."
        )
    because = "config= forces it" if forced else SAME_IN_BOTH
    fixed |= forced or {}
    return decide(Request(spec.full_name, spec.planned(workload), gpu, fixed=fixed, because=because))


# Libraries, and whole modules.


def _for_module(request: Request, detail: LayerDetail, call: ModuleCall) -> list[Program]:
    """The candidates of a module's call: its layers by the kernels that `rnn` would take, or by a library.

    A call of one step has a candidate more, which comes first where it can run.
    """
    programs = _for_steps(request, detail, call)
    if call.time != 1 or request.kernel:
        return programs
    several = "" if call.trains or call.num_layers == 1 else SEVERAL_LAYERS
    one = _one_step(request, dict(call.refusals).get(ONE_STEP, several))
    return [*programs, one] if one.refusal else [one, *programs]


def _for_steps(request: Request, detail: LayerDetail, call: ModuleCall) -> list[Program]:
    """The candidates that run any number of steps."""
    projected = replace(request, detail=detail._replace(is_projected=True, module=None))
    refusals = dict(call.refusals)
    if request.kernel in (TORCH, "cudnn"):
        return _checked(request, [_named_library(request, call, refusals.get(request.kernel, ""))])
    if request.gpu is None:
        return _checked(request, _without_model(request, refusals))
    ours = [_scaled(p, request, call) for p in decide(projected).programs if p.name != "cudnn"]
    cudnn = _cudnn_layers(request, call, refusals.get("cudnn", ""))
    if cudnn.refusal or ours[0].seconds is None or cudnn.seconds is None or cudnn.seconds >= ours[0].seconds:
        return ours if request.kernel else [*ours, cudnn]
    return [replace(cudnn, why="the least time: it is interpolated between measured layers"), *ours]


def _named_library(request: Request, call: ModuleCall, refusal: str) -> Program:
    """The library that a module names, whether its time is predicted or not."""
    if request.kernel == TORCH:
        return _torch_layer(request, {TORCH: refusal})[0]
    if request.gpu is None:
        refusal = refusal or f"it needs an NVIDIA GPU with a hardware model, the device is {request.device}"
        return Program("cudnn", refusal=refusal, needs=MODULES)
    program = _cudnn_layers(request, call, refusal)
    if refusal or not program.refusal:
        return program
    steps = tuple(Step(d, f"{request.operation}{SUFFIX[d]}.cudnn") for d in request.directions)
    return Program("cudnn", steps, note="no time is predicted", needs=MODULES)


def _scaled(program: Program, request: Request, call: ModuleCall) -> Program:
    """A kernels' candidate with the time of the whole call: measured where a layer was, predicted otherwise."""
    gpu = request.gpu
    if program.refusal or gpu is None:
        return program
    specs = implementations_of(request.operation)[program.name]
    sizes = (call.batch, call.time, request.workload.sizes["heads"], request.workload.sizes["head_dim"])
    steps = []
    for step in program.steps:
        if step.role == BACKWARD and not call.trains:
            continue
        spec = specs[step.role]
        usual = spec.run_as(_of_direction(request, step.role))
        measured = measured_layer(
            program.name, spec, gpu, workload_of(request.operation, sizes, request.workload.dtype, step.role)
        )
        seconds, measured_steps = (0.0, 0) if measured is None else measured
        seconds += predict_s(spec, gpu, usual, step.config) * (call.time - measured_steps) / PLANNED_TIME
        evidence = step.evidence if measured is None or step.evidence is Evidence.MEASURED else Evidence.ELSEWHERE
        steps.append(replace(step, seconds=call.num_layers * seconds, evidence=evidence))
    return replace(program, steps=tuple(steps), note=f"one layer of {PLANNED_TIME:,} steps: {program.note}")


def _cudnn_layers(request: Request, call: ModuleCall, refusal: str) -> Program:
    """cuDNN's candidate for a module's call, without the projections of the inputs."""
    gpu, sizes, cell = request.gpu, request.workload.sizes, request.operation
    assert gpu is not None
    if not refusal and not measured_cudnn(gpu.name):
        refusal = f"cuDNN's layers were not measured on {gpu.name}: nothing is predicted, so nothing is offered"
    if refusal:
        return Program("cudnn", refusal=refusal, needs=MODULES)
    steps = []
    for direction in SUFFIX if call.trains else (FORWARD,):
        seconds = cudnn_s(gpu.name, cell, request.workload.dtype, sizes["head_dim"], call, direction)
        if seconds is None:
            return Program("cudnn", refusal="no cuDNN layer near this one was measured", needs=MODULES)
        kernel = f"{cell}{SUFFIX[direction]}.cudnn"
        steps.append(Step(direction, kernel, seconds=seconds, evidence=Evidence.ELSEWHERE))
    table = f"cudnn/measured/{table_of('cudnn', gpu.name).name}"
    return Program("cudnn", tuple(steps), table=table, band=_band(gpu), needs=MODULES)


def _one_step(request: Request, refusal: str) -> Program:
    """The candidate of a call of one step, which is a matter of the host's time: the fewest launches of one look-up."""
    refusal = refusal or _one_step_refusal(request)
    steps = tuple(Step(d, f"{request.operation}{SUFFIX[d]}.{ONE_STEP}", seconds=None) for d in SUFFIX)
    why = "one step: a look-up, two products and a kernel per layer take the host less time than any other way"
    return Program(ONE_STEP, () if refusal else steps, refusal, why="" if refusal else why, needs=MODULES)


def _one_step_refusal(request: Request) -> str:
    """Reason why a call of one step has no plan of its own; empty if it has one."""
    if request.operation not in ONE_STEP_CELLS:
        return f"it has no {request.operation}"
    if request.workload.sizes["heads"] != 1:
        return "it takes one head and one direction"
    if request.workload.dtype not in ("fp32", "tf32", "bf16", "fp16"):
        return f"it has no {request.workload.dtype}"
    is_cuda = getattr(request.device, "type", "cuda") == "cuda"
    if not is_cuda or (request.gpu is not None and not request.gpu.arch.target.startswith("sm_")):
        return "it runs on NVIDIA GPUs: its products are cuBLASLt's"
    return ""


def cudnn_s(gpu: str, cell: str, dtype: str, dim: int, call: ModuleCall, direction: str) -> float | None:
    """Seconds of one direction of a module's layers by cuDNN, without projections; None where none is predicted."""
    total = 0.0
    for size in [call.input_size] + [dim * call.directions] * (call.num_layers - 1):
        layer = CudnnLayer(cell, dtype, call.batch, dim, size, call.directions)
        seconds = layer_s(gpu, layer, call.time, direction)
        if seconds is None:
            return None
        total += seconds
    return total


def _torch_layer(request: Request, refusals: Mapping[str, str]) -> list[Program]:
    """torch's layers, on the CPU alone."""
    if getattr(request.device, "type", "") != "cpu" or request.kernel not in ("", TORCH):
        return []
    sizes = request.workload.sizes
    heads = sizes["heads"]
    module = detail_of(request).module
    if module is not None:
        heads //= module.directions
    refusal = refusals.get(TORCH) or torch_refusal(request.operation, heads, request.workload.dtype)
    steps = tuple(Step(direction, f"{request.operation}.{TORCH}", seconds=None) for direction in request.directions)
    why = "several times faster than a loop of calls for every step"
    return [Program(TORCH, () if refusal else steps, refusal, why=why, needs=MODULES)]


def torch_refusal(cell: str, num_heads: int, dtype: str) -> str:
    """Reason why torch's CPU layers do not compute the layer of `rnn`; empty if they do."""
    if cell not in TORCH_CELLS:
        return f"torch has no {cell}"
    if num_heads != 1:
        return f"torch's layers have one head, this one has {num_heads}"
    if dtype in ("fp32", "tf32", "fp64") or cell == "lstm":
        return ""
    name = {"bf16": "bfloat16", "fp16": "float16"}[dtype]
    return f"they round states to {name} in every step, here states are fp32"
