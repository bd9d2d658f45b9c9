"""Plans of a product's backward pass: the pointwise pass and both products in one plan, run by one call of the core.

    d(sum) = d(result) * activation'(sum)            one pass, which also sums over rows for the bias
    d(a)   = alpha * d(sum) @ b^T,   d(b) = alpha * a^T @ d(sum)

Gradients have the order of axes of their tensors, so that autograd accumulates them without a copy. Each product is
chosen like any other: the library competes, and where predictions do not tell candidates apart, the first calls try
them. A backward pass with a product that no plan can run runs as a plan of the pass, and calls of `matmul`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from constrint.errors import CompileError, DoesNotFitError
from constrint.kernels.gemm.backward.launch import activation_launch, gradient_launch
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.look import SpilledError
from constrint.kernels.launch.plan.recipe import MatmulStep, ProductStep, Recipe, RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, PlanTable
from constrint.kernels.launch.plan.trial import Rivals

if TYPE_CHECKING:
    from constrint.choose import Decision, Program
    from constrint.kernels.gemm.launch import GemmCall
    from constrint.select.candidate import Config

#: Activations whose argument a forward pass with gradients saves: relu's derivative can be read off its result.
KEEPS_SUM = frozenset(ACTIVATIONS) - {"relu"}
#: Types of operands whose backward passes are planned.
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Candidates of a product that the first calls try, at most.
MOST_CANDIDATES = 3


class BackwardKey(NamedTuple):
    """Everything but its tensors that a backward pass depends on; tables take it as a plain tuple.

    Args:
        alpha: Factor of the product.
        activation: A key of `ACTIVATIONS`, or None.
        of_a, of_b: Whether the gradients of a and b are results.
        of_bias: The bias' dtype where its gradient is a result, else None.
        of_sum: Whether the gradient before the activation is a result.
        is_linear: Whether b is given, and its gradient returned, as the weight (N, K) of a linear layer.
        kernel: The `kernel` of the products.
    """

    alpha: float
    activation: str | None
    of_a: bool
    of_b: bool
    of_bias: torch.dtype | None
    of_sum: bool
    is_linear: bool
    kernel: str


class _Multiplied(NamedTuple):
    """A product of the pass: `left` (batch, M, K) times `right` (batch, K, N) into `out`."""

    left: Tensor
    right: Tensor
    out: Tensor


class _Part(NamedTuple):
    """The launches of one product or of the pass, or a call of the library.

    Args:
        launches, scratch: The launches, and the memory that they asked for.
        step: The call of the library, or None.
        label, seconds: The name of the program, and its predicted time.
        is_standard: Whether no trial may end with something slower: the pass, the library's product by its first
            algorithm, which a user of torch would run, and what is not tried.
    """

    launches: Sequence[Any]
    scratch: NotedScratch
    step: ProductStep | MatmulStep | None = None
    label: str = ""
    seconds: float = 0.0
    is_standard: bool = True


def _plan_of_backward(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a backward pass on (gradient of the result, a, b, saved).

    The results are those that the key names, in the order a, b, bias, sum.

    Raises:
        NotPlannedError: When no plan can run the whole pass.
    """
    key = BackwardKey(*extra)
    gradient, a, b, saved = tensors
    assert gradient is not None
    assert a is not None
    assert b is not None
    if a.dtype not in DTYPES or not gradient.numel() or not gradient.is_floating_point():
        raise NotPlannedError("the pass is not one of these kernels'")
    weights = b.mT if key.is_linear else b
    rows = _matrix(gradient)
    changes = key.activation is not None or gradient.dtype != a.dtype or rows.stride(1) != 1
    has_products = key.of_a or key.of_b
    before = torch.empty(gradient.shape, dtype=a.dtype, device=a.device) if changes or key.of_sum else gradient
    writes = before is not gradient and (has_products or key.of_sum)
    grad_a = _like(a) if key.of_a else None
    grad_b = _like(b) if key.of_b else None
    grad_bias = None
    if key.of_bias is not None:
        grad_bias = torch.empty(rows.shape[1], dtype=key.of_bias, device=a.device)
    results = [each for each in (grad_a, grad_b, grad_bias) if each is not None]
    if key.of_sum:
        results.append(before)
    num_results = len(results)
    if writes and not key.of_sum:
        results.append(before)  # not returned, but memory of its own, which the library can be given
    first: list[_Part] = []
    if writes or grad_bias is not None:
        scratch = NotedScratch()
        old = None if saved is None else _matrix(saved)
        out = _matrix(before) if writes else None
        launch = gradient_launch(rows, old, key.activation, out, grad_bias, _sm_count(a.device), scratch)
        first.append(_Part([launch], scratch))
    slots = [*tensors, *results]
    given = None if grad_b is None or not key.is_linear else grad_b.mT
    products = _products(a, weights, before, grad_a, grad_b if given is None else given)
    choices = [_candidates(product, key, slots) for product in products]
    every = [[*first, *parts] for parts in itertools.product(*choices)]
    made = _joined(every[0], tensors, results, num_results)
    if len(every) == 1:
        return made
    # Which product is chosen hardly changes the time of the other, but both share the L2: all pairs are tried.
    others = [_joined(parts, tensors, results, num_results).recipe for parts in every[1:]]
    labels = [", ".join(part.label for part in parts if part.label) for parts in every]
    seconds = [sum(part.seconds for part in parts) for parts in every]
    standards = [place for place, parts in enumerate(every) if all(part.is_standard for part in parts)]
    return made._replace(rivals=Rivals(others, labels, seconds, lambda measured, best: None, standards))


def _plan_of_activation(tensors: tuple[Tensor | None, ...], activation: Any) -> RecordedCall:
    """The plan of activation(z), (z,) -> one result.

    Raises:
        NotPlannedError: When z is not contiguous.
    """
    (z,) = tensors
    assert z is not None
    if not z.numel() or not z.is_contiguous() or z.dtype not in DTYPES:
        raise NotPlannedError("not a tensor of these kernels")
    out = torch.empty_like(z)
    launch = activation_launch(z, activation, out, _sm_count(z.device))
    return recipe_of([launch], tensors, [out], NotedScratch(), activation)


def _sm_count(device: torch.device) -> int:
    from constrint.kernels.gemm import first_call  # loaded where no plan is on disk

    return first_call.machine_of(device)[1].sm_count


def activated(z: Tensor, activation: str) -> Tensor:
    """activation(z), by a plan where there is one; for callers who record gradients themselves."""
    out: Any = ACTIVATED.call(True, activation, z)
    if out is IS_NEW:
        out = ACTIVATED.learn(activation, z)
    result: Tensor = ACTIVATIONS[activation](z) if out is None else out
    return result


BACKWARD = PlanTable("matmul_backward", _plan_of_backward, torch.get_float32_matmul_precision)
ACTIVATED = PlanTable("activation", _plan_of_activation, torch.get_float32_matmul_precision)


def _matrix(t: Tensor) -> Tensor:
    """(..., N) as (rows, N) in the same memory.

    Raises:
        NotPlannedError: When its strides do not allow that.
    """
    try:
        return t.view(-1, t.shape[-1])
    except RuntimeError as error:
        raise NotPlannedError(str(error)) from error


def _like(t: Tensor) -> Tensor:
    """Memory for a gradient: contiguous, or by columns as the tensor itself."""
    if t.dim() > 1 and t.stride(-1) != 1 and t.stride(-2) == 1:
        return torch.empty(t.mT.shape, dtype=t.dtype, device=t.device).mT
    return torch.empty(t.shape, dtype=t.dtype, device=t.device)


def _products(
    a: Tensor, b: Tensor, before: Tensor, grad_a: Tensor | None, grad_b: Tensor | None
) -> list[_Multiplied]:  # fmt: skip
    """The products of a pass, on operands of three axes and results by rows.

    Raises:
        NotPlannedError: When the gradient of b is a sum over the batch that is no single product.
    """
    if b.dim() == 2:
        a, before = _matrix(a), _matrix(before)
        grad_a = None if grad_a is None else _matrix(grad_a)
    elif a.dim() != b.dim() or a.dim() != 3 or a.shape[0] != b.shape[0]:
        raise NotPlannedError("gradients are sums over the batch")
    whole = []
    if grad_a is not None:
        whole.append((before, b.mT, grad_a))
    if grad_b is not None:
        whole.append((a.mT, before, grad_b))
    return [_by_rows(*(_stacked(each) for each in product)) for product in whole]


def _stacked(t: Tensor) -> Tensor:
    return t if t.dim() == 3 else t.unsqueeze(0)


def _by_rows(left: Tensor, right: Tensor, out: Tensor) -> _Multiplied:
    """The product, or its transpose where the result is by columns."""
    if out.stride(2) == 1:
        return _Multiplied(left, right, out)
    return _Multiplied(right.mT, left.mT, out.mT)


def _candidates(product: _Multiplied, key: BackwardKey, slots: Sequence[Tensor | None]) -> list[_Part]:
    """The launches of one product: decided, compiled and looked at; then those that a trial has to compare it with.

    Raises:
        NotPlannedError: When no plan can run the product.
    """
    from triton.errors import TritonError

    from constrint.kernels.gemm import first_call, trial
    from constrint.kernels.gemm.library.spec import LIBRARY
    from constrint.kernels.launch.policy import launch_what_fits

    refusals = NotPlannedError, SpilledError, CompileError, DoesNotFitError, TritonError
    end = first_call.End(alpha=key.alpha, out_dtype=product.out.dtype, kernel=key.kernel)
    inspected = first_call.inspect(product.left, product.right, None, None, end, product.out)
    decision = None if inspected is None else first_call.decide_or_none(inspected.request)
    if inspected is None or decision is None:
        raise NotPlannedError("no kernel computes a product of the pass")
    call = inspected.call

    def part_of(program: Program, *, may_spill: bool = False) -> _Part:
        scratch = NotedScratch()
        label, seconds = first_call.label_of(program), program.seconds or 0.0
        if program.name == LIBRARY:
            step = _library_step(call, slots, program.step("product").config)
            return _Part([], scratch, step, label, seconds, trial.is_standard(program))
        launches = first_call.launches_of(program, call.with_scratch(scratch))
        recipe_of(launches, slots, [], scratch, may_spill=may_spill)
        return _Part(launches, scratch, None, label, seconds, False)

    fastest = trial.fastest(inspected.request)
    if fastest is not None:
        with suppress(*refusals):
            return [part_of(fastest)._replace(is_standard=True)]  # a trial has compared it
    chosen: list[tuple[_Part, Decision]] = []

    def record(decided: Decision, /, *, may_spill: bool) -> None:
        chosen[:] = [(part_of(decided.program, may_spill=may_spill), decided)]

    launch_what_fits(decision, record)
    part, decided = chosen[0]
    parts = [part]
    for program in trial.rivals_of(decided) if trial.is_due(decided) else ():
        with suppress(*refusals):
            parts.append(part_of(program))
    # Where nothing is tried, the decision stands.
    return parts[:MOST_CANDIDATES] if len(parts) > 1 else [part._replace(is_standard=True)]


def _library_step(call: GemmCall, slots: Sequence[Tensor | None], config: Config) -> ProductStep | MatmulStep:
    """The library's product on slots of the plan, by the algorithm that a configuration names; calls it once.

    Raises:
        NotPlannedError: When the plan cannot call the library for it, or the library has no such algorithm.
        CompileError: When the library does not take the product.
    """
    from constrint.kernels.gemm.library.fused import matmul_step
    from constrint.kernels.gemm.library.launch import is_captured
    from constrint.kernels.gemm.library.planned import run_once, step_of
    from constrint.kernels.gemm.library.spec import ALGORITHM
    from constrint.kernels.launch.plan.driver import has_blas

    places = {tensor.data_ptr(): slot for slot, tensor in enumerate(slots) if tensor is not None}
    a, b, out = (places.get(tensor.data_ptr(), -1) for tensor in (call.a, call.b, call.out))
    step: ProductStep | MatmulStep | None
    place = config.get(ALGORITHM, 0)
    try:
        step = matmul_step(call, (a, b, -1, -1), out, _WORKSPACE, place)
    except NotPlannedError:
        if place:
            raise
        step = step_of(call, a, b, out) if has_blas() else None
    if step is None or min(a, b, out) < 0:
        raise NotPlannedError("the library has no function for plans that computes a product of the pass")
    if not is_captured(call.out.device):
        run_once(call, step, config)
    return step


#: Slot of the library's workspace until all parts of a plan are known.
_WORKSPACE = 1 << 16


def _joined(
    parts: Sequence[_Part], tensors: tuple[Tensor | None, ...], results: Sequence[Tensor], num_results: int
) -> RecordedCall:
    """One plan of all parts. Calls of the library come last: they depend on the pass alone, which comes first."""
    scratch = NotedScratch()
    for part in parts:
        scratch.fresh += part.scratch.fresh
        scratch.zeroed += part.scratch.zeroed
        scratch.counted += part.scratch.counted
    launches = [launch for part in parts for launch in part.launches]
    steps = [part.step for part in parts if part.step is not None]
    workspace_bytes = max((s.algorithm.workspace_bytes for s in steps if isinstance(s, MatmulStep)), default=0)
    if workspace_bytes:
        results = [*results, torch.empty(workspace_bytes, dtype=torch.uint8, device=results[0].device)]
    slot = len(tensors) + len(results) - 1
    steps = [_with_workspace(step, slot) for step in steps]
    recipe, direct, _ = recipe_of(launches, tensors, results, scratch, "backward")
    if steps and launches and not recipe.steps:
        raise NotPlannedError("there is no core to call the library")
    note = ", ".join(part.label for part in parts if part.label)
    joined = [*recipe.steps, *steps]
    return RecordedCall(Recipe(joined, recipe.outputs, num_results, recipe.num_counters, note), direct)


def _with_workspace(step: ProductStep | MatmulStep, slot: int) -> ProductStep | MatmulStep:
    """The step with the slot of the workspace that the calls of a plan share, one after the other."""
    if not isinstance(step, MatmulStep) or step.slots[5] != _WORKSPACE:
        return step
    return MatmulStep(step.matmul, step.algorithm, (*step.slots[:5], slot))
