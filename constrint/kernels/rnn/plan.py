"""Which implementation runs a recurrent layer, with which configurations, and why: for a GPU, or for a device here.

Every implementation makes an offer: for each direction a choice and a predicted time, or a reason why it cannot run.
The offer of the least time is taken, where winners that were measured count as they were measured. Nothing is launched
here; for a named GPU neither torch nor triton is imported.
Offers are kept on disk for other processes, as long as no device has refused one of them in this process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constrint import cache
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.measured import measured_layer
from constrint.kernels.rnn.offer import COMPUTED_AGAIN, STORED, Offer
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, predict_s
from constrint.select.disk_key import key_of
from constrint.select.first_choice import Choice, choose, has_refused
from constrint.select.spec import Workload
from constrint.select.winners import stamp

if TYPE_CHECKING:
    import torch

BOTH_ALIKE = "the other direction was launched so"
#: What computes pre-activations again is PyTorch calls and launches without a plan, a few milliseconds of the host that
#: no model has: it has to be predicted to take less than this share of the time.
MUCH_FASTER = 0.8
#: Why an implementation of the whole layer makes no offer where no hardware model predicts the others' times.
NOT_PREDICTED = "its time is not compared on a device without a hardware model"
#: What offers are kept as.
_KIND = "rnn-offers"


@dataclass(frozen=True)
class RnnPlan:
    """The chosen implementation for a layer, beside what the others offered; times are modelled, not measured.

    Args:
        workload: What is to be run: that of the forward direction.
        target: The GPU's model name, or `cpu`.
        chosen: The offer that is taken.
        why: Why that one.
        others: The offers that are not.
    """

    workload: Workload
    target: str
    chosen: Offer
    why: str
    others: tuple[Offer, ...]

    @property
    def backend(self) -> str:
        """Name of the chosen implementation."""
        return self.chosen.backend

    def offer_of(self, backend: str) -> Offer:
        """What the implementation of that name offers."""
        return next(offer for offer in (self.chosen, *self.others) if offer.backend == backend)

    def __str__(self) -> str:
        """Render back-end, configuration, reason and predicted time, one line each."""
        lines = [f"{self.workload} on {self.target}: {self.backend}", f"  why: {self.why}"]
        lines.append(f"  time: {self.chosen.times()}")
        for direction, config in self.chosen.configs.items():
            lines.append(f"  {direction}: {' '.join(f'{name}={value}' for name, value in config.items())}")
        if self.chosen.note:
            lines.append(f"  note: {self.chosen.note}")
        for other in self.others:
            where = " (in modules alone)" if other.projects and not other.refusal else ""
            lines.append(f"  not {other.backend}: {other.refusal or other.times()}{where}")
        return "\n".join(line.replace("\n", "\n    ") for line in lines)


def implementations_of(cell: str) -> dict[str, dict[str, RnnSpec]]:
    """Every implementation's specs by direction, under the implementation's name; preferred ones first.

    One that computes the forward pass alone has the backward pass of the one that it names.
    """
    from constrint.kernels.registry import load_kernel

    by_name: dict[str, dict[str, RnnSpec]] = {}
    for direction, suffix in SUFFIX.items():
        for spec in load_kernel(cell + suffix).implementations:
            if isinstance(spec, RnnSpec):
                by_name.setdefault(spec.name, {})[direction] = spec
    for specs in by_name.values():
        forward = specs.get("forward")
        if forward is not None and "backward" in by_name.get(forward.backward_by, {}):
            specs.setdefault("backward", by_name[forward.backward_by]["backward"])
    return {name: specs for name, specs in by_name.items() if specs.keys() == SUFFIX.keys()}


def plan_for(workload: Workload, gpu: GpuModel, directions: tuple[str, ...], *, projected: bool = False) -> RnnPlan:
    """The offer of the least predicted time on a GPU.

    Args:
        workload: What is to be run, in the terms of the forward direction.
        gpu: The hardware model.
        directions: "forward" alone, or "backward" as well.
        projected: Whether the inputs are projected already, as `rnn` takes them; a module projects its own.
    """
    return _pick(workload, gpu.name, _offers(workload, gpu, directions), projected=projected)


def _offers(workload: Workload, gpu: GpuModel, directions: tuple[str, ...]) -> list[Offer]:
    """What every implementation offers on a GPU."""
    specs = implementations_of(workload.operation)
    asked = workload.dtype, tuple(workload.sizes.items()), tuple(workload.options.items()), directions
    every = [spec for by_direction in specs.values() for spec in by_direction.values()]
    where = None if has_refused(gpu) else key_of(gpu, every, *asked, stamp(gpu))
    offers = _load(where, gpu, specs)
    if offers is None:
        offers = [_offer(name, each, gpu, workload, directions) for name, each in specs.items()]
        if where is not None:
            cache.store(_KIND, where, json.dumps([offer.to_plain() for offer in offers]).encode())
    return offers


def _load(where: bytes | None, gpu: GpuModel, specs: Mapping[str, Mapping[str, RnnSpec]]) -> list[Offer] | None:
    """The offers that some process has kept; None where there are none."""
    data = None if where is None else cache.load(_KIND, where)
    if data is not None:
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            offers = [Offer.from_plain(plain, gpu) for plain in json.loads(data)]
            if [offer.backend for offer in offers] == list(specs):
                return offers
    return None


def plan_on(
    workload: Workload, device: torch.device, directions: tuple[str, ...], *, projected: bool = False
) -> RnnPlan:
    """The plan for a torch device of this machine; arguments as in `plan_for`."""
    from constrint.kernels.launch.device import gpu_of

    gpu = gpu_of(device) if device.type == "cuda" else None
    specs = implementations_of(workload.operation)
    refusals = {name: each["forward"].refusal_on(device, gpu) for name, each in specs.items()}
    layers = {name for name, each in specs.items() if each["forward"].projects}
    if gpu is not None:
        refused = [Offer(n, refusal=refusal, projects=n in layers) for n, refusal in refusals.items() if refusal]
        offers = [offer for offer in _offers(workload, gpu, directions) if not refusals[offer.backend]]
        return _pick(workload, gpu.name, [*offers, *refused], projected=projected)
    refusals |= {name: refusals[name] or NOT_PREDICTED for name in layers}
    offers = [Offer(name, refusal=refusal, projects=name in layers) for name, refusal in refusals.items()]
    return _pick(workload, str(device), offers, projected=projected)


def _pick(workload: Workload, target: str, offers: list[Offer], *, projected: bool) -> RnnPlan:
    able = [offer for offer in offers if not offer.refusal and not (projected and offer.projects)]
    # Kernels are compared as they are predicted, or as their winners were measured; the best of them with a library as
    # it was measured, where it was.
    kernels = [offer for offer in able if not offer.projects]
    tuned = {direction for offer in kernels for direction in offer.tuned}
    first = min(kernels or able, key=lambda offer: offer.compared_s(tuned) if kernels else offer.total_s)
    libraries = (offer for offer in able if offer.projects and offer.total_s < first.whole_s)
    chosen = next(libraries, first)
    others = tuple(offer for offer in offers if offer is not chosen)
    why = "the least predicted time" if len(able) > 1 else "the only one that can"
    if len(able) > 1 and chosen.tuned:
        why = "the least time, that of measured winners as they were measured"
    if first.measured.keys() == first.seconds.keys() and any(offer.projects for offer in able):
        why = "the least time: both this layer and the library's were measured"
    return RnnPlan(workload, target, chosen, why, others)


def _offer(
    name: str, specs: Mapping[str, RnnSpec], gpu: GpuModel, workload: Workload, directions: tuple[str, ...]
) -> Offer:
    workloads = {d: Workload(specs[d].operation, workload.sizes, workload.dtype) for d in directions}
    forward = specs["forward"]
    projects, unmeasured = forward.projects, forward.uncalibrated()
    if unmeasured:
        return Offer(name, refusal=unmeasured)
    try:
        if projects:
            for direction, asked in workloads.items():
                specs[direction].check_workload(gpu, asked)
        choices, seconds = _choices(specs, gpu, workloads)
    except ConstrintError as error:
        return Offer(name, refusal=str(error), projects=projects)
    note = specs["forward"].note(workload, directions)
    found = {direction: measured_layer(name, specs[direction], gpu, asked) for direction, asked in workloads.items()}
    time = workload.sizes["time"]
    tuned = {d: seconds[d] * _slower(specs[d], choice) for d, choice in choices.items() if choice.is_measured}
    measured = {d: m.seconds + seconds[d] * (1 - m.steps / time) for d, m in found.items() if m is not None}
    return Offer(
        name,
        seconds=seconds,
        choices=choices,
        note=note,
        projects=projects,
        measured=measured,
        tuned=tuned,
    )


def _slower(spec: RnnSpec, choice: Choice) -> float:
    """What a measured winner's loop took over what is predicted of it."""
    if choice.gpu is None or choice.workload is None or not choice.seconds:
        return 1.0
    return choice.seconds / predict_s(spec, choice.gpu, choice.workload, choice.config)


def _choices(
    specs: Mapping[str, RnnSpec], gpu: GpuModel, workloads: Mapping[str, Workload]
) -> tuple[dict[str, Choice], dict[str, float]]:
    """The choices of all directions, and their predicted times; inference stores no pre-activations.

    Training stores them, unless it is predicted to be much faster to compute them again. Times are predicted here,
    those of measured winners too: what was measured is the loop, and computing pre-activations again is no part of it.
    """
    ways: tuple[int | None, ...] = (None,)
    if specs["forward"].may_recompute:
        ways = (STORED, COMPUTED_AGAIN) if "backward" in workloads else (COMPUTED_AGAIN,)
    found = []
    for way in ways:
        choices = {d: choose_for(specs[d], gpu, asked, way) for d, asked in workloads.items()}
        seconds = {
            d: predict_s(specs[d], gpu, specs[d].run_as(asked), choices[d].config) for d, asked in workloads.items()
        }
        found.append((choices, seconds))
    first, *others = found
    if others and sum(others[0][1].values()) < MUCH_FASTER * sum(first[1].values()):
        return others[0]
    return first


def choose_for(spec: RnnSpec, gpu: GpuModel | None, workload: Workload, recompute: int | None) -> Choice:
    """An implementation's configuration for a workload.

    Args:
        spec: The implementation.
        gpu: The hardware model; None where there is none of the device.
        workload: What is to be run.
        recompute: Whether pre-activations are computed again, where the implementation can do that.

    Raises:
        ConstrintError: When it cannot run the workload on the GPU; says why.
    """
    if gpu is None or not spec.params(gpu, workload):
        return Choice(gpu, spec.full_name, {}, workload=workload)  # there is nothing to choose
    fixed = {} if recompute is None else {"recompute": recompute}
    return choose(spec, gpu, spec.planned(workload), fixed=fixed, because=BOTH_ALIKE)
