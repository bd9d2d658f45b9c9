"""`matmul` with a user's epilogue: epilogue(a @ b, operands) by the program that `constrint.choose.decide` chooses.

Later calls of a signature run a plan (`planned.py`): one look at what the function reads (`reads.py`), one look-up, and
the launch of the fused kernel, or of a product and the pass. Calls that are traced, and those that need gradients, run
the operator `constrint::traced_gemm`, which has a fake implementation and gradients: the product is computed again, and
the epilogue's derivative is plain PyTorch. CPU tensors run the reference. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.choose import Decision, Request, decide
from constrint.errors import ConstrintError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.checks import check_shapes, check_types, common_batch, stack
from constrint.kernels.gemm.first_call import has_nvrtc, machine_of, refusals
from constrint.kernels.gemm.implementations import config_of, config_text
from constrint.kernels.gemm.launch import runtime_precision
from constrint.kernels.gemm.library.launch import refusal_of_call
from constrint.kernels.gemm.operands import product_of, with_aligned_stride
from constrint.kernels.gemm.operator import PLAIN_END, plan_key
from constrint.kernels.gemm.operator import PLANS as PRODUCTS
from constrint.kernels.gemm.reference import default_out_dtype, gemm_reference
from constrint.kernels.gemm.traced.candidates import COMPOSITION, FUSED, NAMES, OPERATION, Traced
from constrint.kernels.gemm.traced.expression import Expression, Tape
from constrint.kernels.gemm.traced.launch import TracedCall, fused_launch, lies_of, pass_launch, readable
from constrint.kernels.gemm.traced.parse import parsed
from constrint.kernels.gemm.traced.planned import TracedPlans
from constrint.kernels.gemm.traced.reference import evaluated, gradients
from constrint.kernels.gemm.traced.text import COLUMN, FULL
from constrint.kernels.gemm.traced.trace import TracedEpilogue, traced
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, NO_PLAN, WANTS_GRAD, PlanTable, is_transformed

AUTO = "auto"
Epilogue = str | Callable[..., Any]
#: Types of results that the kernels and the pass store.
RESULTS = (torch.float16, torch.bfloat16, torch.float32)


class Asked(NamedTuple):
    """A checked call.

    Args:
        a: (..., M, K), at least two axes.
        b: (..., K, N), likewise.
        text: The epilogue's tape.
        operands: Its operands in the order of the tape, as they were given.
        laid: The same as the kernels read them: of 0 axes, or broadcast to a matrix (rows of C, N).
        kind: Type of the result.
        shape: Shape of the result.
    """

    a: Tensor
    b: Tensor
    text: str
    operands: tuple[Tensor, ...]
    laid: tuple[Tensor, ...]
    kind: torch.dtype
    shape: tuple[int, ...]


def traced_matmul(
    a: Tensor,
    b: Tensor,
    epilogue: Epilogue,
    operands: Mapping[str, Tensor | float],
    *,
    out_dtype: torch.dtype | None = None,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
) -> Tensor:
    """epilogue(a @ b, operands); arguments and errors are those of `matmul`."""
    is_new = False
    if not is_compiling():
        named = _tensors_of(epilogue, operands)
        if named is not None:
            end = named[0], out_dtype, kernel, "" if config is None else config_text(config)
            out: Any = _PLANS.call(False, end, a, b, *named[1])
            if out is not IS_NEW and out is not NO_PLAN and out is not WANTS_GRAD:
                known: Tensor = out
                return known
            is_new = out is IS_NEW
    asked = checked(a, b, epilogue, operands, out_dtype, kernel, config)
    if is_new:
        out = _PLANS.learn((asked.text, *end[1:]), a, b, *asked.operands)
        if out is not NO_PLAN:
            learnt: Tensor = out
            return learnt
    options = asked.text, asked.kind, kernel, config_text(config)
    if not is_compiling() and is_transformed():
        # An operator would need a rule for each transform.
        return _reference(asked.a, asked.b, asked.laid, *options[:2]).reshape(asked.shape)
    first = _flat(asked.a) if asked.b.dim() == 2 else asked.a
    result: Tensor = torch.ops.constrint.traced_gemm(first, asked.b, list(asked.laid), *options).reshape(asked.shape)
    return result


def _tensors_of(epilogue: Any, operands: Any) -> tuple[str, list[Any]] | None:
    """An epilogue's tape and the operands in its order; None where they have to be checked first."""
    text, names, order = _tape_of(epilogue)
    if not names and not operands:
        return text, []
    if type(operands) is not dict or len(operands) != len(names):
        return None
    numbers, tensors = [], []
    for name in names:
        value = operands.get(name)
        if type(value) is float or type(value) is int:
            numbers.append((name, float(value).hex()))
        elif value is None:
            return None
    if numbers:
        text, order = _compiled_in(text, tuple(numbers))
    for name in order:
        tensors.append(operands[name])
    return text, tensors


def why(
    a: Tensor,
    b: Tensor,
    epilogue: Epilogue,
    operands: Mapping[str, Tensor | float],
    *,
    out_dtype: torch.dtype | None = None,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
    gpu: GpuModel | str | None = None,
) -> Decision:
    """The decision for the same arguments.

    Raises:
        UsageError: When the tensors are on no GPU and none is named, or nothing is chosen for the product.
    """
    asked = checked(a, b, epilogue, operands, out_dtype, kernel, config)
    if gpu is None and not a.is_cuda:
        raise UsageError("matmul.why: tensors on the CPU run the reference in plain PyTorch; name a GPU, gpu='h200'.")
    model = gpu if isinstance(gpu, GpuModel) or gpu is None else load_gpu(gpu)
    first = _flat(asked.a) if asked.b.dim() == 2 else asked.a
    reason = _no_kernel(first, asked.b, asked.kind)
    if reason:
        raise UsageError(f"matmul.why: {reason}; plain PyTorch computes it, and nothing is chosen.")
    options = Expression.of_text(asked.text), asked.kind, kernel, config_text(config)
    decision = decide(request_for(first, asked.b, asked.laid, *options, model))
    if gpu is not None:
        return decision
    recorded = _PLANS.note((asked.text, out_dtype, kernel, config_text(config)), a, b, *asked.operands)
    return replace(decision, recorded=recorded)


# Check.


def all_operands(
    bias: Tensor | None, c: Tensor | None, epilogue: Any, operands: Any, ends: tuple[float, float, str | None]
) -> dict[str, Any]:
    """Operands of a user's epilogue, with `bias` and `c` among them.

    Raises:
        TypeError, UsageError: Beside factors or an activation, for operands without an epilogue, and for one twice.
    """
    if epilogue is None:
        raise UsageError("matmul: operands belong to an epilogue; give epilogue=, a function or a text.")
    if ends != (1.0, 0.0, None):
        raise UsageError("matmul: an epilogue stands in place of alpha, beta and activation; write them into it.")
    if bias is None and c is None and type(operands) is dict:
        return operands
    if operands is not None and not isinstance(operands, Mapping):
        raise TypeError(f"matmul: operands is a mapping of names to tensors, got {type(operands).__name__}.")
    every = dict(operands or {})
    for name, value in (("bias", bias), ("c", c)):
        if value is not None and name in every:
            raise UsageError(f"matmul: {name} is given as an argument and in operands.")
        if value is not None:
            every[name] = value
    return every


def checked(
    a: Any, b: Any, epilogue: Any, operands: Any, out_dtype: Any, kernel: str, config: Mapping[str, int] | None
) -> Asked:
    """The call with its epilogue traced.

    Raises:
        RuntimeError, TypeError, UnknownNameError, UsageError: For arguments that do not go together; see `matmul`.
    """
    text, named, order = _expression(epilogue, operands)
    return _asked(a, b, text, tuple([named[name] for name in order]), order, out_dtype, kernel, config)


def _asked(
    a: Any, b: Any, text: str, operands: tuple[Tensor, ...], order: Sequence[str], out_dtype: Any, kernel: str,
    config: Mapping[str, int] | None,
) -> Asked:  # fmt: skip
    """A call after its checks besides those of the epilogue itself."""
    check_types(a, b, None, None, out_dtype)
    kernel = kernel.removeprefix("gemm.") if isinstance(kernel, str) else kernel
    if kernel not in (AUTO, *NAMES):
        raise UnknownNameError("kernel", str(kernel), (AUTO, *NAMES))
    if config is not None and kernel != FUSED:
        raise UsageError(f'matmul: with an epilogue, config needs kernel="{FUSED}", got kernel={kernel!r}.')
    kind = out_dtype or _usual_kind(a.dtype)
    if kind not in (*RESULTS, torch.float64):
        raise TypeError(f"matmul: with an epilogue, out_dtype is a float of 16 to 64 bits, got {kind}.")
    if b.dim() < 2:
        raise RuntimeError("matmul: with an epilogue, b has two axes at least.")
    lead = a if a.dim() != 1 else a[None]
    check_shapes(lead, b, None)
    shape = (*common_batch(lead.shape[:-2], b.shape[:-2]), lead.shape[-2], b.shape[-1])
    laid = tuple([_laid(name, t, a.device, shape) for name, t in zip(order, operands, strict=True)])
    return Asked(lead, b, text, operands, laid, kind, shape if a.dim() != 1 else (*shape[:-2], shape[-1]))


def _usual_kind(dtype: torch.dtype) -> torch.dtype:
    """Type of the result where none is named: sums of integers end as floats."""
    return default_out_dtype(dtype) if dtype != torch.int8 else torch.float32


def _expression(epilogue: Any, operands: Any) -> tuple[str, dict[str, Tensor], tuple[str, ...]]:
    """The tape with numbers in place, the tensors of the other operands, and their names in its order."""
    if not isinstance(operands, Mapping):
        raise TypeError(f"matmul: operands is a mapping of names to tensors, got {type(operands).__name__}.")
    text, names, order = _tape_of(epilogue)
    given = set(operands)
    if given != set(names):
        wanted, got = (", ".join(sorted(map(str, each))) or "none" for each in (names, given))
        raise UsageError(f"matmul: the epilogue's operands are {wanted}; operands has {got}.")
    tensors, numbers = {}, []
    for name, value in operands.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers.append((name, float(value)))
        else:
            raise TypeError(f"matmul: operand {name!r} is a tensor or a number, got {type(value).__name__}.")
    if numbers:
        text, order = _with_numbers(text, tuple(numbers))
    return text, tensors, order


# Under torch.compile these run while a graph is made, on arguments that are constants of it.


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _tape_of(epilogue: Any) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The tape of a function or a text, and the names of its operands: a plain tuple, which Dynamo unpacks."""
    found: TracedEpilogue = _of_text(epilogue) if isinstance(epilogue, str) else traced(epilogue)
    return found.text, found.names, found.order


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _with_numbers(text: str, values: tuple[tuple[str, float], ...]) -> tuple[str, tuple[str, ...]]:
    """The tape with constants in place of operands that are numbers, and the names of the others in its order."""
    return _compiled_in(text, tuple([(name, value.hex()) for name, value in values]))


@lru_cache(maxsize=1024)
def _of_text(text: str) -> TracedEpilogue:
    return TracedEpilogue.of(parsed(text))


@lru_cache(maxsize=1024)
def _compiled_in(text: str, values: tuple[tuple[str, str], ...]) -> tuple[str, tuple[str, ...]]:
    """`_with_numbers` of numbers in hexadecimal digits, which tell -0.0 from 0.0."""
    tape, places, numbers = Tape(), [], dict(values)
    for step in Expression.of_text(text).steps:
        if step.op == "operand":
            is_number = step.name in numbers
            places.append(tape.constant(float.fromhex(numbers[step.name])) if is_number else tape.operand(step.name))
        elif step.op == "constant":
            places.append(tape.constant(step.value))
        else:
            places.append(tape.operation(step.op, *(places[at] for at in step.args)))
    expression = tape.ended(places[-1])
    return expression.text, expression.operands


def _laid(name: str, t: Tensor, device: torch.device, shape: tuple[int, ...]) -> Tensor:
    """An operand as the kernels read it: of 0 axes, (M, 1), (1, N) or (M, N), M being all rows of C."""
    if t.device != device:
        raise RuntimeError(f"matmul: a is on {device}, operand {name!r} on {t.device}.")
    if t.is_complex():
        raise TypeError(f"matmul: operand {name!r} is complex.")
    if t.numel() == 1 and t.dim() <= len(shape):
        return t.reshape(())
    if t.dim() > len(shape) or not all(
        size in (1, whole) for size, whole in zip(reversed(t.shape), reversed(shape), strict=False)
    ):
        raise RuntimeError(
            f"matmul: operand {name!r} is of shape {tuple(t.shape)}, not broadcast to the result's {shape}: one "
            "element, a column (M, 1), a row (N,) or a matrix (M, N)."
        )
    columns = shape[-1]
    if t.shape[-1] == columns and t.numel() == columns:
        return t.reshape(1, columns)
    if t.shape[-1] == 1:
        return t.expand(*shape[:-1], 1).reshape(-1, 1)
    return t.expand(shape).reshape(-1, columns)


def _flat(a: Tensor) -> Tensor:
    return a.flatten(0, -2) if a.dim() > 1 else a[None]


# Decide.


def _no_kernel(a: Tensor, b: Tensor, kind: torch.dtype) -> str:
    """Why no kernel of ours computes a call; empty if one may."""
    if torch.float64 in (a.dtype, kind):
        return "products of fp64 are torch's"
    if not a.numel() or not b.numel():
        return "there is no product without elements"
    return ""


def request_for(
    a: Tensor, b: Tensor, operands: Sequence[Tensor], expression: Expression, kind: torch.dtype, kernel: str,
    config: str, gpu: GpuModel | None = None,
) -> Request:  # fmt: skip
    """The request for a call; on the device of its tensors where no GPU is named."""
    here, device = (gpu, None) if gpu is not None else (machine_of(a.device)[0], a.device)
    batch = common_batch(a.shape[:-2], b.shape[:-2])
    wide_a, wide_b = (t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in (a, b))
    lies = [lies_of(t, b.shape[-1]) for t in operands]
    first = [next((i for i, each in enumerate(lies) if each == kind_), None) for kind_ in (COLUMN, FULL)]
    ahead = (None if first[0] is None else operands[first[0]][0]), (None if first[1] is None else operands[first[1]])
    sizes = [t.numel() * t.element_size() for t in operands]
    extra = sum(size for i, size in enumerate(sizes) if i not in first)
    source = None if ahead[1] is None or len(wide_a) > 1 else ahead[1][None]
    product = product_of(
        with_aligned_stride(wide_a),
        with_aligned_stride(wide_b),
        ahead[0],
        source,
        kind,
        is_three_pass=runtime_precision(a.dtype) == "tf32x3",
        has_nvrtc=has_nvrtc(),
        no_library=refusal_of_call(wide_a, wide_b),
        activation=expression.text,
    )
    detail = Traced(product, sum(sizes), extra, "" if b.dim() == 2 else "a batch ends in a pass")
    named = "" if kernel == AUTO else kernel.removeprefix("gemm.")
    return Request(OPERATION, product.workload, here, device, kernel=named, config=config_of(config), detail=detail)


# Launch.


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call on (a, b, operands in the order of the tape): the fused kernel, or a product and a pass.

    Raises:
        NotPlannedError: For calls that plain PyTorch computes, or whose operands have to be copied first.
        RuntimeError, TypeError, UsageError: For arguments that do not go together; see `matmul`.
        UnsupportedError: When the caller named the kernel, and it does not compute the call.
    """
    a, b, *operands = tensors
    text, out_dtype, kernel, config = extra
    expression = Expression.of_text(text)
    asked = _asked(a, b, text, tuple(operands), expression.operands, out_dtype, kernel, config_of(config))  # type: ignore[arg-type]
    first = _flat(asked.a) if asked.b.dim() == 2 else asked.a
    reason = _no_kernel(first, asked.b, asked.kind)
    is_named = kernel.endswith(FUSED)
    if reason and not is_named:
        raise NotPlannedError(reason)
    copied = reason or _copied((first, asked.b) if asked.b.dim() == 2 else (), asked.laid)
    if copied and is_named:
        raise UnsupportedError(f"gemm.cuda does not compute this product: {copied}.")
    decision = decide(request_for(first, asked.b, asked.laid, expression, asked.kind, kernel, config))
    if decision.gpu is None or copied or not has_nvrtc():
        return _composition(asked)
    out = torch.empty(asked.shape, dtype=asked.kind, device=asked.a.device)
    named = dict(zip(expression.operands, asked.laid, strict=True))
    try:
        return TracedPlans(decision.gpu, decision, tensors, first, out, expression, named).recorded()
    except (ConstrintError, *refusals()):  # type: ignore[misc]
        if is_named:
            raise
        return _composition(asked)


def _composition(asked: Asked) -> RecordedCall:
    """The plan of a product and a pass, each of which has a plan of its own: for products that are no plan's part.

    Raises:
        NotPlannedError: Where the pass has none.
    """
    like = torch.empty(asked.shape, dtype=asked.kind, device=asked.a.device)
    _build_pass((like, *asked.operands), (asked.text, asked.kind))
    usual = asked.kind == default_out_dtype(asked.a.dtype)
    stated = {"text": asked.text, "kind": str(asked.kind).removeprefix("torch."), "is_usual": usual}
    return RecordedCall(Recipe([], [], 1, 0, f"gemm.{COMPOSITION}", stated), [])


def _function_of(stated: Mapping[str, Any]) -> Callable[..., Tensor | None]:
    """The function of a composition's (a, b, operands); its result is None where calls are observed in between."""
    text, kind = stated["text"], getattr(torch, stated["kind"])
    end = plan_key(1.0, 0.0, None, None if stated["is_usual"] else kind, AUTO, None)
    extra = text, kind

    def composed(a: Tensor, b: Tensor, *operands: Tensor) -> Tensor | None:
        product: Any = PRODUCTS.call(True, end, a, b, None, None)
        if product is IS_NEW:
            product = PRODUCTS.learn(end, a, b, None, None)
        if product is NO_PLAN:
            return None
        out: Any = _PASSES.call(True, extra, product, *operands)
        if out is IS_NEW:
            out = _PASSES.learn(extra, product, *operands)
        ended: Tensor | None = out
        return ended

    return composed


def _copied(matrices: Sequence[Tensor], operands: Sequence[Tensor | None]) -> str:
    """Why operands would have to be copied for the fused kernel, or the pass; empty if not."""
    if any(with_aligned_stride(t[None]).data_ptr() != t.data_ptr() for t in matrices):
        return "an operand would be copied"
    if any(t is not None and readable(t) is not t for t in operands):
        return "an operand of the epilogue would be copied"
    return ""


_PLANS = PlanTable("traced_matmul", _build, torch.get_float32_matmul_precision, _function_of)


def _build_pass(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a pass on a product (..., N) and the epilogue's operands, broadcast to it.

    Raises:
        NotPlannedError: Where plain PyTorch computes it.
    """
    product, *operands = tensors
    text, kind = extra
    assert product is not None
    gpu = machine_of(product.device)[0]
    if gpu is None or not has_nvrtc() or not product.numel() or product.dtype not in RESULTS or kind not in RESULTS:
        raise NotPlannedError("the pass is compiled by NVRTC for a device with a model, and stores 16 or 32 bits")
    if not product.is_contiguous():
        raise NotPlannedError("the product would be copied")
    expression = Expression.of_text(text)
    shape = tuple(product.shape) if product.dim() > 1 else (1, product.shape[0])
    given = {name: t for name, t in zip(expression.operands, operands, strict=True) if t is not None}
    used = {name: _laid(name, t, product.device, shape) for name, t in given.items()}
    if any(readable(t) is not t or t.data_ptr() != given[name].data_ptr() for name, t in used.items()):
        raise NotPlannedError("an operand would be copied")
    out = torch.empty(product.shape, dtype=kind, device=product.device)
    flat = product.view(-1, shape[-1]), out.view(-1, shape[-1])
    try:
        launch = pass_launch(gpu, *flat, expression, used)
        if launch is None:
            raise NotPlannedError("more elements than a launch of the pass takes")
        return recipe_of([launch], tensors, [out], NotedScratch(), "gemm.traced pass")
    except ConstrintError as error:
        raise NotPlannedError(str(error)) from error


_PASSES = PlanTable("traced_pass", _build_pass, lambda: None)


def _product(a: Tensor, b: Tensor, kind: torch.dtype) -> Tensor:
    """a @ b by the operator of `matmul`, in `kind`."""
    stacked = stack(a, b, None, None, 1.0, 0.0, None, kind)
    end = None, None, *PLAIN_END[:3], stacked.kind, *PLAIN_END[4:]
    out: Tensor = torch.ops.constrint.gemm(stacked.a, stacked.b, *end)
    return out.reshape(stacked.result_shape)


def _composed(a: Tensor, b: Tensor, operands: Sequence[Tensor], text: str, kind: torch.dtype) -> Tensor:
    """The product by `matmul`, rounded to the result's type, then the pass; (M, N) with all rows of C."""
    product = _product(a, b, kind)
    product = product.reshape(-1, product.shape[-1])
    read = [readable(t) for t in operands]
    out: Tensor | None = _PASSES.run((text, kind), product, *read)
    if out is not None:
        return out
    expression = Expression.of_text(text)
    return evaluated(expression, product, dict(zip(expression.operands, operands, strict=True)), kind)


def _reference(a: Tensor, b: Tensor, operands: Sequence[Tensor], text: str, kind: torch.dtype) -> Tensor:
    """The call in plain PyTorch; (M, N) with all rows of C."""
    expression = Expression.of_text(text)
    wide = torch.float64 if torch.float64 in (a.dtype, kind) else torch.float32
    acc = gemm_reference(a, b, out_dtype=wide)
    acc = acc.reshape(-1, acc.shape[-1])
    return evaluated(expression, acc, dict(zip(expression.operands, operands, strict=True)), kind)


torch.library.define(
    "constrint::traced_gemm",
    "(Tensor a, Tensor b, Tensor[] operands, str epilogue, ScalarType out_dtype, str implementation,"
    " str config) -> Tensor",
)


@torch.library.impl("constrint::traced_gemm", "CUDA")
def _on_gpu(
    a: Tensor, b: Tensor, operands: list[Tensor], epilogue: str, out_dtype: torch.dtype, implementation: str,
    config: str,
) -> Tensor:  # fmt: skip
    out: Tensor | None = _PLANS.run((epilogue, out_dtype, implementation, config), a, b, *operands)
    if out is not None:
        return out.view(-1, out.shape[-1])
    if implementation.endswith(FUSED) and not _no_kernel(a, b, out_dtype):
        return _launched(a, b, operands, epilogue, out_dtype, config)
    return _composed(a, b, operands, epilogue, out_dtype)


def _launched(a: Tensor, b: Tensor, operands: Sequence[Tensor], text: str, kind: torch.dtype, config: str) -> Tensor:
    """A call of the fused kernel without a plan, where launches are observed or operands are copied."""
    expression, read = Expression.of_text(text), [readable(t) for t in operands]
    decision = decide(request_for(a, b, read, expression, kind, FUSED, config))
    assert decision.gpu is not None
    out = torch.empty((a.shape[0], b.shape[1]), dtype=kind, device=a.device)
    call = TracedCall(a, b, out, expression, dict(zip(expression.operands, read, strict=True)))
    fused_launch(decision.gpu, call, decision.config).run()
    return out


@torch.library.impl("constrint::traced_gemm", "CPU")
def _on_cpu(
    a: Tensor, b: Tensor, operands: list[Tensor], epilogue: str, out_dtype: torch.dtype, implementation: str,
    config: str,
) -> Tensor:  # fmt: skip
    return _reference(a, b, operands, epilogue, out_dtype).contiguous()


@torch.library.register_fake("constrint::traced_gemm")  # type: ignore[untyped-decorator]
def _fake(
    a: Tensor, b: Tensor, operands: list[Tensor], epilogue: str, out_dtype: torch.dtype, implementation: str,
    config: str,
) -> Tensor:  # fmt: skip
    rows = a.shape[-2]
    for size in torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]):  # type: ignore[no-untyped-call]
        rows = rows * size
    return a.new_empty((rows, b.shape[-1]), dtype=out_dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, operands, ctx.epilogue = inputs[:4]
    ctx.save_for_backward(a, b, *operands)


def _backward(ctx: Any, gradient: Tensor) -> Any:
    """The product is computed again in 32 bits or more; products of the gradients are `matmul`'s."""
    a, b, *operands = ctx.saved_tensors
    expression = Expression.of_text(ctx.epilogue)
    wide = torch.float64 if torch.float64 in (a.dtype, gradient.dtype) else torch.float32
    acc = _product(a, b, wide)
    named = dict(zip(expression.operands, operands, strict=True))
    of_acc, of_operands = gradients(expression, acc.reshape(gradient.shape), named, gradient)
    grad_a, grad_b = None, None
    if of_acc is not None:
        slope = of_acc.reshape(acc.shape).to(a.dtype)
        grad_a = _summed(_product(slope, b.mT, a.dtype), a) if ctx.needs_input_grad[0] else None
        grad_b = _summed(_product(a.mT, slope, b.dtype), b) if ctx.needs_input_grad[1] else None
    found = [of_operands.get(name) for name in expression.operands]
    of_each = [
        slope.to(t.dtype) if slope is not None and t.is_floating_point() else None
        for slope, t in zip(found, operands, strict=True)
    ]
    return grad_a, grad_b, of_each, None, None, None, None


def _summed(slope: Tensor, like: Tensor) -> Tensor:
    return slope.sum_to_size(like.shape)


torch.library.register_autograd("constrint::traced_gemm", _backward, setup_context=_save)
