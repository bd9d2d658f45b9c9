"""The library's product in a launch plan: a call of cuBLAS or cuBLASLt, else torch's function; or followed by a kernel.

Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.launch import GemmCall
from constrint.kernels.gemm.library.fused import (
    AS_IT_IS,
    MOST,
    TRANSPOSED,
    TYPES,
    FusedLaunch,
    matmul_step,
    matrix_of,
    split,
)
from constrint.kernels.gemm.library.launch import (
    NARROW_SUMS,
    Ask,
    LibraryLaunch,
    ask_of,
    function_of,
    has_scale,
    is_captured,
)
from constrint.kernels.gemm.library.spec import ALGORITHM, LIBRARY
from constrint.kernels.gemm.pointwise.launch import pointwise_launch
from constrint.kernels.launch.plan.driver import has_blas
from constrint.kernels.launch.plan.recipe import MatmulStep, ProductStep, Recipe, RecordedCall, output_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.select.candidate import Config
from constrint.select.spec import Launch

#: Places of A, B, the bias and C among a call's tensors (a, b, bias, c).
A, B, BIAS, SOURCE = 0, 1, 2, 3
#: Operands of cublasGemmEx; torch multiplies others by other functions.
OPERAND_TYPES = (torch.float16, torch.bfloat16)


def library_plan(
    call: GemmCall,
    tensors: tuple[Tensor | None, ...],
    out: Tensor,
    note: str = LIBRARY,
    config: Config | None = None,
) -> RecordedCall:
    """The plan of the library's product, which is called once: cuBLAS or cuBLASLt, else torch's function.

    Args:
        call, tensors, out: The call, its tensors (a, b, bias, c), and its result.
        note: The note of the plan.
        config: The algorithm of cuBLASLt's (`ALGORITHM`); empty: its first one, if it takes the product.

    Raises:
        NotPlannedError: When an operand is a copy, or the library has no algorithm that `config` names.
        CompileError: When the library does not take the product after all.
    """
    stated = planned_of(call, tensors, out.shape)
    step = product_step(call, len(tensors), config)
    if not is_captured(out.device):
        run_once(call, step, config)
    if step is None:
        return RecordedCall(Recipe([], [], 1, 0, note, stated), [])
    return RecordedCall(Recipe([step], [output_of(out), *workspace_of(step)], 1, 0, note), [])


def run_once(call: GemmCall, step: ProductStep | MatmulStep | None, config: Config | None) -> None:
    """Call the library's product by torch's operator, or by the algorithm of a step that `config` names.

    Raises:
        CompileError: When the library does not take the product after all.
    """
    if config and isinstance(step, MatmulStep):
        FusedLaunch(call, step.algorithm).run()
    else:
        LibraryLaunch(call).run()


def product_step(call: GemmCall, out_slot: int, config: Config | None = None) -> ProductStep | MatmulStep | None:
    """The step of the library's product of a call's tensors (a, b, bias, c); None where torch's function runs it.

    cuBLASLt takes as long as cublasGemmEx, which torch calls for plain products, but costs the host 2 us less, since
    its algorithm is chosen once.

    Raises:
        NotPlannedError: When the library has no algorithm that `config` names.
    """
    place = (config or {}).get(ALGORITHM, 0)
    try:
        return matmul_step(call, (A, B, BIAS, SOURCE), out_slot, out_slot + 1, place)
    except NotPlannedError:
        if place:
            raise
        return step_of(call, A, B, out_slot) if has_blas() else None


def workspace_of(step: ProductStep | MatmulStep) -> list[tuple[list[int], list[int], str]]:
    """The allocation of a step's workspace, which is the slot after the result; none where it takes none."""
    size = step.algorithm.workspace_bytes if isinstance(step, MatmulStep) else 0
    return [([size], [1], "uint8")] if size else []


def composed_plan(
    call: GemmCall, tensors: tuple[Tensor | None, ...], out: Tensor, note: str, config: Config | None = None
) -> RecordedCall:
    """The plan of the library's product into the result, and of the pointwise kernel on it; compiles the kernel.

    Arguments are those of `library_plan`.

    Raises:
        NotPlannedError: When no plan can call the library, or an operand is a copy.
        CompileError: When the library does not take the product after all.
        SpilledError, triton.errors.TritonError: When the kernel spills or does not compile.
    """
    planned_of(call, tensors, out.shape)  # operands are those of the call
    product, rest = split(call)
    if rest is None:
        raise NotPlannedError("the library applies the whole epilogue")
    return followed_plan(product, pointwise_launch(call, rest), tensors, out, note, config)


def followed_plan(
    product: GemmCall, launch: Launch, tensors: tuple[Tensor | None, ...], out: Tensor, note: str, config: Config | None
) -> RecordedCall:
    """The plan of the library's product into the result, and of a launch that changes the result in place.

    Arguments and errors are those of `composed_plan`; the first tensors are A and B.
    """
    step = product_step(product, len(tensors), config)
    if step is None:
        raise NotPlannedError("no plan can call the library for this product")
    if not is_captured(out.device):
        run_once(product, step, config)
    recipe, direct, _ = recipe_of([launch], tensors, [out], NotedScratch(), note, may_spill=False)
    if not recipe.steps:
        raise NotPlannedError("there is no core to call the library")
    outputs = [*recipe.outputs, *workspace_of(step)]
    return RecordedCall(Recipe([step, *recipe.steps], outputs, 1, recipe.num_counters, note), direct)


def planned_of(call: GemmCall, tensors: Sequence[Tensor | None], result_shape: Sequence[int]) -> dict[str, Any]:
    """The arguments of `planned_function` for a call on the user's tensors.

    Raises:
        NotPlannedError: When the call's operands are copies of the tensors.
    """
    ask = ask_of(call)
    stated: dict[str, Any] = {
        "dtype": _name(ask.dtype),
        "kind": _name(ask.kind),
        "is_batched": ask.is_batched,
        "end": ask.end,
        "alpha": ask.alpha,
        "beta": ask.beta,
        "activation": ask.activation,
        "views": {},
        "shape": None,
    }
    used = [(A, call.a), (B, call.b)]
    if call.epilogue.source is not None:
        used.append((SOURCE, call.epilogue.source))
    for place, tensor in used:
        original = tensors[place]
        if original is None or original.data_ptr() != tensor.data_ptr():
            raise NotPlannedError("an operand is a copy")
        view = tensor if ask.is_batched else tensor[0]
        if (view.shape, view.stride()) != (original.shape, original.stride()):
            stated["views"][str(place)] = [list(view.shape), list(view.stride())]
    shape = list(call.out.shape if ask.is_batched else call.out.shape[1:])
    if shape != list(result_shape):
        stated["shape"] = list(result_shape)
    return stated


def planned_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    """The function of a call's tensors (a, b, bias, c) that gives its result, on the current device.

    Raises:
        NotPlannedError: For 8-bit operands, when a graph is captured before any call was made.
    """
    dtype, kind = (getattr(torch, stated[name]) for name in ("dtype", "kind"))
    is_scaled = dtype.is_floating_point and dtype.itemsize == 1
    if is_scaled and not has_scale(torch.device("cuda", torch.cuda.current_device())):
        raise NotPlannedError("there is no scale yet, and a graph is captured")
    factors = stated["alpha"], stated["beta"]
    ask = Ask(dtype, kind, stated["is_batched"], stated["end"], *factors, stated["activation"])
    exact = _exactly(function_of(ask), dtype)
    views = {int(place): (tuple(shape), tuple(strides)) for place, (shape, strides) in stated["views"].items()}
    if not views and stated["shape"] is None:
        return exact
    result_shape = stated["shape"]

    def reshaped(*tensors: Tensor | None) -> Tensor:
        viewed = list(tensors)
        for place, (shape, strides) in views.items():
            tensor = viewed[place]
            assert tensor is not None
            viewed[place] = tensor.as_strided(shape, strides)
        result = exact(*viewed)
        return result if result_shape is None else result.view(result_shape)

    return reshaped


def _exactly(multiply: Callable[..., Tensor], dtype: torch.dtype) -> Callable[..., Tensor]:
    """The product with sums of 32 bits."""
    narrow = NARROW_SUMS.get(dtype)
    if narrow is None:
        return multiply
    enter, leave = narrow.enter, narrow.leave

    def exact(a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None) -> Tensor:
        # The effect of `exact_sums` without the time of a context manager.
        enter()
        try:
            return multiply(a, b, bias, c)
        finally:
            leave()

    return exact


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def step_of(call: GemmCall, a_slot: int, b_slot: int, out_slot: int) -> ProductStep | None:
    """The step of a call's product on three slots; None where the BLAS has no function for the call.

    A BLAS reads matrices by columns, and a matrix by rows as its transpose: the step computes C' = B' A'.
    """
    end, types = call.epilogue, (call.b.dtype, call.a.dtype, call.out.dtype)
    is_plain = end.source is None and end.bias is None and end.activation is None and end.alpha == 1.0
    if not is_plain or call.a.shape[0] > 1 or types[0] not in OPERAND_TYPES or types[2] not in TYPES:
        return None
    a, b, out = (matrix_of(tensor[0]) for tensor in (call.a, call.b, call.out))
    if a is None or b is None or out is None or not out.is_by_rows:
        return None
    (m, k), n = call.a.shape[1:], call.b.shape[2]
    strides = b.stride, a.stride, out.stride
    if not min(m, n, k) or max(m, n, k, *strides) > MOST:
        return None
    first, second = (AS_IT_IS if matrix.is_by_rows else TRANSPOSED for matrix in (b, a))
    return ProductStep(
        (first, second),
        (n, m, k),
        (TYPES[types[0]], TYPES[types[1]], TYPES[types[2]]),
        strides,
        (b_slot, a_slot, out_slot),
    )
