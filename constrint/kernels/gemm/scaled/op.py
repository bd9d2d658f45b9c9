"""`scaled_matmul`: products of fp8 whose scales are those of rows and columns, or of blocks of 128, as DeepSeek's are.

Later calls of a signature run a plan: one look-up, the result's memory, the launch. Where torch's own operator takes
the product, the first calls try it beside our kernel's best configurations, and nothing slower than it runs from then
on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision, Request, decide
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.scaled.launch import ScaledCall, scaled_launches
from constrint.kernels.gemm.scaled.library import (
    LIBRARY,
    by_library,
    is_captured,
    library_function,
    library_plan,
    predicted_s,
    takes,
)
from constrint.kernels.gemm.scaled.reference import scaled_reference
from constrint.kernels.gemm.scaled.shape import BLOCK, DEPTH
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.kernels.launch.cuda.tensor_map import ROW_BYTES
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.look import SpilledError
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable
from constrint.kernels.launch.plan.trial import Rivals, trials_are_on
from constrint.kernels.launch.policy import record_what_fits
from constrint.kernels.registry import load_spec
from constrint.select import rank
from constrint.select.candidate import Config
from constrint.select.workload import Workload

#: Types of results.
RESULTS = (torch.bfloat16, torch.float16, torch.float32)
#: Share of the library's time that our kernel has to save at least, where nothing is tried: neither estimate is better.
LEAST_SHARE = 0.05
#: Configurations of ours that are tried beside the best one at most: each is compiled during the first call. Their
#: predicted times over its, at most, and configurations that are looked at: most differ in little.
MOST_COMPILED, NEAR, RANKED = 2, 1.3, 96


def scaled_matmul(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    fast_accumulation: bool = False,
) -> Tensor:
    """(a * scale_a) @ (b * scale_b) + bias, added up in fp32 after 128 products each and rounded once.

    Args:
        a: (M, K) fp8 (e4m3).
        b: (K, N) fp8.
        scale_a: fp32, (M, 1); or (M, ceil(K / 128)) for blocks of 128 numbers of a row.
        scale_b: fp32, (1, N); or (ceil(K / 128), ceil(N / 128)) for blocks of 128 by 128.
        bias: (N,), added to every row.
        out_dtype: bf16, fp16 or fp32.
        fast_accumulation: With scales of rows and columns torch's operator, where it runs, may add up in the fewer bits
            that the tensor cores keep (its `use_fast_accum`); our kernel does not.

    Returns:
        A new tensor (M, N). torch._scaled_mm computes what it takes and was measured to be faster at, on the operands
        of the first calls (`CONSTRINT_TRIALS=0`: is predicted to be); products that no kernel computes (GPUs other than
        Hopper, operands across K, the CPU) are those of the reference in PyTorch.

    Raises:
        UsageError: For shapes and dtypes that do not go together; says what was seen. The product has no gradients.
    """
    extra = (out_dtype, True) if fast_accumulation else out_dtype
    out: Any = _PLANS.call(False, extra, a, b, scale_a, scale_b, bias)
    if isinstance(out, Tensor):
        return out  # the first call of the signature was checked
    in_blocks = _check(a, b, scale_a, scale_b, bias, out_dtype)
    if any(t is not None and t.requires_grad for t in (scale_a, scale_b, bias)) and torch.is_grad_enabled():
        raise UsageError("scaled_matmul has no gradients: call it in torch.no_grad(), or detach its scales and bias.")
    if out is IS_NEW:
        out = _PLANS.learn(extra, a, b, scale_a, scale_b, bias)
    if out is None or out is WANTS_GRAD:
        out = None
        if takes(a, b, bias, out_dtype):
            out = by_library(a, b, scale_a, scale_b, out_dtype, in_blocks=in_blocks, is_fast=fast_accumulation)
        if out is None:
            out = scaled_reference(a, b, scale_a, scale_b, bias, out_dtype)
    result: Tensor = out
    return result


def _request(
    gpu: GpuModel, device: torch.device, sizes: dict[str, int], out_dtype: torch.dtype, in_blocks: bool
) -> Request:
    options = {name: 1 for name, is_set in (("blocks", in_blocks), ("wide_output", out_dtype.itemsize == 4)) if is_set}
    return Request("scaled_gemm", Workload("scaled_gemm", sizes, "fp8", options), gpu, device)


def _check(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> bool:
    """Whether scales are those of blocks.

    Raises:
        UsageError: For shapes and dtypes that do not go together.
    """
    named = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b} | ({} if bias is None else {"bias": bias})
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise UsageError(f"scaled_matmul: {name} must be a tensor, got {type(tensor).__name__}.")
        if tensor.device != a.device:
            raise UsageError(f"scaled_matmul: {name} is on {tensor.device}, a is on {a.device}.")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise UsageError(f"scaled_matmul takes a (M, K) and b (K, N), got {tuple(a.shape)} and {tuple(b.shape)}.")
    if a.dtype != torch.float8_e4m3fn or b.dtype != a.dtype or out_dtype not in RESULTS:
        raise UsageError(
            f"scaled_matmul takes float8_e4m3fn and gives {RESULTS}, got {a.dtype}, {b.dtype}, {out_dtype}."
        )
    (m, k), n = a.shape, b.shape[1]
    by_rows = ((m, 1), (1, n))
    in_blocks = ((m, -(-k // DEPTH)), (-(-k // DEPTH), -(-n // BLOCK)))
    seen = tuple(scale_a.shape), tuple(scale_b.shape)
    if seen not in (by_rows, in_blocks) or scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32:
        raise UsageError(
            f"scaled_matmul takes fp32 scales {by_rows[0]} and {by_rows[1]}, or {in_blocks[0]} and {in_blocks[1]} for "
            f"blocks; got {seen[0]} and {seen[1]} of {scale_a.dtype} and {scale_b.dtype}."
        )
    if bias is not None and tuple(bias.shape) != (n,):
        raise UsageError(f"scaled_matmul takes a bias ({n},), got {tuple(bias.shape)}.")
    return seen != by_rows


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call: torch's own product, or our kernel, with those that it is tried against.

    Raises:
        NotPlannedError: For calls that neither computes.
    """
    a, b, scale_a, scale_b, bias = tensors
    if a is None or b is None or scale_a is None or scale_b is None:
        raise NotPlannedError("an operand is missing")
    scales = scale_a, scale_b
    out_dtype, is_fast = extra if isinstance(extra, tuple) else (extra, False)
    in_blocks = _check(a, b, scale_a, scale_b, bias, out_dtype)
    theirs = None
    if takes(a, b, bias, out_dtype):
        theirs = library_plan(a, b, scales, out_dtype, in_blocks=in_blocks, is_fast=is_fast)
    sizes = {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]}
    try:
        ours = _OwnPlans(ScaledCall(a, b, *scales, a, bias), tensors, sizes, out_dtype, in_blocks=in_blocks)
    except NotPlannedError:
        if theirs is None:
            raise
        return theirs
    made, seconds = ours.made, ours.decision.program.seconds
    if theirs is None:
        return made
    library_s = predicted_s(ours.gpu, sizes, out_dtype, scales, in_blocks=in_blocks)
    is_ours_first = seconds is not None and seconds <= (1 - LEAST_SHARE) * library_s
    first, second = (made, theirs) if is_ours_first else (theirs, made)
    if not made.recipe.steps or not trials_are_on() or is_captured(a.device):
        return first
    others = ours.others()
    recipes = [second.recipe, *(other.recipe for other, _ in others)]
    times = [seconds or library_s, library_s] if is_ours_first else [library_s, seconds or library_s]
    labels = [first.recipe.note, *(recipe.note for recipe in recipes)]
    predicted = [*times, *(other_s for _, other_s in others)]
    rivals = Rivals(recipes, labels, predicted, lambda measured, best: None, (labels.index(LIBRARY),))
    return first._replace(rivals=rivals)


class _OwnPlans:
    """Plans of a call by our kernel: that of the decision, and of configurations that are predicted to be as fast.

    Args:
        call: The call's operands, without a result.
        tensors: The call's tensors.
        sizes: M, N and K.
        out_dtype, in_blocks: Type of the result, and whether scales are those of blocks.

    Raises:
        NotPlannedError: For calls that the kernel does not compute.
    """

    def __init__(
        self, call: ScaledCall, tensors: tuple[Tensor | None, ...], sizes: Mapping[str, int], out_dtype: torch.dtype, *,
        in_blocks: bool,
    ) -> None:  # fmt: skip
        gpu = gpu_of(call.a.device)
        along_k = call.a.stride(1) == 1 and call.b.stride(0) == 1
        is_loaded = _is_loadable(call.a) and _is_loadable(call.b.T)
        if gpu is None or not nvrtc_here() or not along_k or not is_loaded or 0 in sizes.values():
            raise NotPlannedError("no kernel computes this product")
        self.gpu, self._tensors, self._in_blocks = gpu, tensors, in_blocks
        out = torch.empty((sizes["m"], sizes["n"]), dtype=out_dtype, device=call.a.device)
        self._call = replace(call, out=out)
        self._request = _request(gpu, call.a.device, dict(sizes), out_dtype, in_blocks)
        try:
            self.decision = decide(self._request)
            optional = () if call.bias is None else ("bias",)
            self.made = record_what_fits(self.decision, self._of_decision, optional)
        except ConstrintError as error:
            raise NotPlannedError(str(error)) from error

    def others(self) -> list[tuple[RecordedCall, float]]:
        """Plans of other tiles or parts of K that are predicted to be nearly as fast, with their seconds."""
        ranked = rank(load_spec("scaled_gemm.cuda"), self.gpu, self._request.workload, top=RANKED).candidates
        seen, found = {_kind(ranked[0].config), _kind(self.decision.config)}, list[tuple[RecordedCall, float]]()
        for candidate in ranked:
            kind = _kind(candidate.config)
            if len(found) == MOST_COMPILED or candidate.cost.seconds > NEAR * ranked[0].cost.seconds:
                break
            if kind in seen:
                continue
            seen.add(kind)
            with suppress(NotPlannedError, SpilledError, ConstrintError):
                found.append((self._recorded(candidate.config, may_spill=False), candidate.cost.seconds))
        return found

    def _of_decision(self, decided: Decision, may_spill: bool) -> RecordedCall:
        self.decision = decided
        return self._recorded(decided.config, may_spill=may_spill)

    def _recorded(self, config: Config, *, may_spill: bool) -> RecordedCall:
        scratch = NotedScratch()
        call = replace(self._call, scratch=scratch)
        launches = scaled_launches(self.gpu, call, config, in_blocks=self._in_blocks)
        label = f"scaled_gemm.cuda {dict(config)}"
        return recipe_of(launches, self._tensors, [call.out], scratch, label, may_spill=may_spill)


def _kind(config: Config) -> tuple[object, ...]:
    """The figures by which configurations differ in time by more than the error of their predictions."""
    return config["tile_m"], config["tile_n"], config["turned"], config["consumers"], config["split_k"] > 1


def _is_loadable(rows: Tensor) -> bool:
    """Whether the TMA unit loads rows: their starts are multiples of 16 bytes."""
    return rows.data_ptr() % ROW_BYTES == 0 and rows.stride(0) % ROW_BYTES == 0 and rows.stride(0) > 0


_PLANS = PlanTable("scaled_matmul", _build, torch.get_float32_matmul_precision, library_function)
