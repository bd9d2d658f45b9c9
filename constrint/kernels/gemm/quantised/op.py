"""`quantised_matmul`: few rows times weights of 4 or 8 bits in groups, at the speed of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision, Request, decide
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.quantised.launch import quantised_launches
from constrint.kernels.gemm.quantised.shape import MOST_ROWS
from constrint.kernels.gemm.quantised.stream.launch import stream_launches
from constrint.kernels.gemm.quantised.weights import BEYOND, QuantisedWeight
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.look import SpilledError
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable
from constrint.kernels.launch.plan.trial import Rivals, trials_are_on
from constrint.kernels.launch.policy import record_what_fits
from constrint.kernels.registry import load_kernel
from constrint.select import rank
from constrint.select.candidate import Candidate, Config
from constrint.select.workload import Workload

#: Launches of each implementation.
LAUNCHES = {"quantised_gemm.cuda": quantised_launches, "quantised_gemm.stream": stream_launches}
#: Configurations that the first calls try beside the best one, at most, and configurations that are looked at: turns in
#: registers and in shared memory are predicted level, and most others differ in little.
MOST_COMPILED, RANKED = 2, 2048


def quantised_matmul(x: Tensor, weight: QuantisedWeight, bias: Tensor | None = None) -> Tensor:
    """x @ W^T + bias, W being (numbers - zeros) * scales; added up in fp32, rounded once.

    Args:
        x: (..., K), of the type that the weight was packed for.
        weight: W (N, K), packed: `QuantisedWeight.of`, `quantise`.
        bias: (N,).

    Returns:
        A new tensor (..., N). More than 16 rows are multiplied by `matmul` with W unpacked; without a kernel (the CPU,
        other GPUs) by torch.

    Raises:
        UsageError: For shapes and types that do not go together. The product has no gradients.
    """
    if not isinstance(x, Tensor) or not isinstance(weight, QuantisedWeight):
        raise UsageError("quantised_matmul takes a tensor and a QuantisedWeight.")
    if x.dim() < 1 or x.shape[-1] != weight.k or x.dtype != weight.dtype or x.dtype not in BEYOND:
        raise UsageError(
            f"quantised_matmul takes x (..., {weight.k}) of {weight.dtype}, got {tuple(x.shape)} of {x.dtype}."
        )
    if bias is not None and tuple(bias.shape) != (weight.n,):
        raise UsageError(f"quantised_matmul takes a bias ({weight.n},), got {tuple(bias.shape)}.")
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        raise UsageError("quantised_matmul has no gradients: call it in torch.no_grad().")
    rows = x.reshape(-1, weight.k)
    if rows.shape[0] > MOST_ROWS:
        from constrint.kernels.gemm.op import matmul  # loaded where there are many rows

        return matmul(rows, weight.dense(x.dtype).T, bias).view(*x.shape[:-1], weight.n)
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    extra = weight.n, weight.k, weight.bits, weight.group
    out: Any = _PLANS.call(False, extra, rows, weight.packed, weight.scales, bias)
    if out is IS_NEW:
        out = _PLANS.learn(extra, rows, weight.packed, weight.scales, bias)
    if out is None or out is WANTS_GRAD:
        wide = rows.float() @ weight.dense(torch.float32).T
        out = (wide if bias is None else wide + bias.float()).to(x.dtype)
    result: Tensor = out
    return result.view(*x.shape[:-1], weight.n)


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call.

    Raises:
        NotPlannedError: For calls that no kernel computes.
    """
    x, packed, scales, bias = tensors
    if x is None or packed is None or scales is None:
        raise NotPlannedError("an operand is missing")
    n, k, bits, group = extra
    gpu = gpu_of(x.device)
    if gpu is None or not nvrtc_here() or not x.numel():
        raise NotPlannedError("no kernel computes this product")
    weight = QuantisedWeight(packed, scales, n, k, bits, group, x.dtype)
    dtype = "bf16" if x.dtype == torch.bfloat16 else "fp16"
    sizes, options = {"m": x.shape[0], "n": n, "k": k}, {"bits": bits, "group": group}
    out = torch.empty((x.shape[0], n), dtype=x.dtype, device=x.device)
    request = Request("quantised_gemm", Workload("quantised_gemm", sizes, dtype, options), gpu, x.device)

    def recorded(kernel: str, config: Config, may_spill: bool) -> RecordedCall:
        launches = LAUNCHES[kernel](gpu, x, weight, out, config, bias)
        label = f"{kernel} {dict(config)}"
        return recipe_of(launches, tensors, [out], NotedScratch(), label, may_spill=may_spill)

    chosen: list[Decision] = []

    def record(decided: Decision, may_spill: bool) -> RecordedCall:
        chosen[:] = [decided]
        return recorded(decided.program.name, decided.config, may_spill)

    try:
        made = record_what_fits(decide(request), record, () if bias is None else ("bias",))
    except ConstrintError as error:
        raise NotPlannedError(str(error)) from error
    if not trials_are_on() or torch.cuda.is_current_stream_capturing():
        return made
    tried: list[tuple[RecordedCall, float]] = []
    for candidate in _rivals(gpu, request.workload, chosen[0]):
        with suppress(NotPlannedError, SpilledError, ConstrintError):
            tried.append((recorded(candidate.kernel, candidate.config, False), candidate.cost.seconds))
    if not tried:
        return made
    recipes = [other.recipe for other, _ in tried]
    labels = [made.recipe.note, *(recipe.note for recipe in recipes)]
    seconds = [chosen[0].program.seconds or tried[0][1], *(each for _, each in tried)]
    return made._replace(rivals=Rivals(recipes, labels, seconds, lambda measured, best: None))


def _rivals(gpu: GpuModel, workload: Workload, decision: Decision) -> Iterator[Candidate]:
    """The best configuration of the other implementation, then those of other kinds."""
    ranked = rank(load_kernel("quantised_gemm"), gpu, workload, top=RANKED).candidates
    first = decision.program.name
    other = [each for each in ranked if each.kernel != first][:1]
    seen = {_kind(first, decision.config)}
    for candidate in (*other, *ranked):
        if _kind(candidate.kernel, candidate.config) not in seen:
            seen.add(_kind(candidate.kernel, candidate.config))
            yield candidate
        if len(seen) > MOST_COMPILED:
            return


def _kind(kernel: str, config: Config) -> tuple[str | int, ...]:
    """The figures by which configurations differ in time by more than the error of their predictions."""
    if "row_warps" in config:
        return kernel, config["split_k"], config["k_warps"] * config["tiles"]
    return kernel, config["stages"], config["warps"] * config["resident"], config["rows"] * config["tiles"] // 4


_PLANS = PlanTable("quantised_matmul", _build, torch.get_float32_matmul_precision)
