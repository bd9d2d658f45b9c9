"""Products in Triton's interpreter, run by `tests.support.interpreter`: are a kernel's, or `matmul`'s, right?

Every function takes a case read from JSON and says whether the result is within the bound.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.choose import Program, Step
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call
from constrint.kernels.gemm.first_call import End
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine, runtime_precision
from constrint.kernels.gemm.pointwise.launch import pointwise_launch, pointwise_reference
from constrint.kernels.gemm.reference import gemm_reference
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune.check import Case


def in_order(t: Tensor, order: str) -> Tensor:
    """The same values, contiguous by rows ("r") or by columns ("c")."""
    return t if order == "r" else t.transpose(1, 2).contiguous().transpose(1, 2)


def kernel_is_right(case: dict[str, Any]) -> bool:
    """One launch of a named kernel on a poisoned output, against the product in double precision."""
    batch, m, n, k = case["batch"], case["m"], case["n"], case["k"]
    kind = getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(case["seed"])
    shapes = (batch, m, k), (batch, k, n)
    if kind == torch.int8:
        a, b = (torch.randint(-128, 128, s, generator=generator, dtype=kind) for s in shapes)
    else:
        a, b = (torch.randn(s, generator=generator).to(kind) for s in shapes)
    a, b = in_order(a, case["layout"][0]), in_order(b, case["layout"][1])
    out_kind = getattr(torch, case["out_dtype"])
    out = torch.full((batch, m, n), float("nan") if out_kind.is_floating_point else -7, dtype=out_kind)
    bias = torch.randn(n, generator=generator).to(out_kind) if case["bias"] else None
    source = torch.randn((batch, m, n), generator=generator).to(out_kind) if case["beta"] else None
    epilogue = Epilogue(bias, source, case["alpha"], case["beta"], case["activation"])
    machine = Machine(4, case["num_xcds"])
    program = Program(case["kernel"], (Step("product", case["kernel"], case["config"]),))
    first_call.launch(program, GemmCall(a, b, out, machine, epilogue, runtime_precision(a.dtype)))
    z = case["alpha"] * (a.double() @ b.double())
    # Sums of k products in fp32 (int32: exact) grow by at most k rounding steps; the output rounds once.
    bound = 0.0 if kind == torch.int8 else k * 2.0**-23 * case["alpha"] * (a.double().abs() @ b.double().abs())
    z = z + (bias.double() if bias is not None else 0) + (case["beta"] * source.double() if source is not None else 0)
    if case["activation"]:
        z = getattr(torch.nn.functional, case["activation"])(z)
    roundoff = {torch.float16: 2.0**-11, torch.float32: 2.0**-22, torch.int32: 0.0}[out_kind]
    least = 2.0**-24 if out_kind.is_floating_point else 0.0
    return bool(((out.double() - z).abs() <= 1.2 * bound + roundoff * z.abs() + least).all())


def unusual_errors(case: dict[str, Any]) -> list[float]:
    """Errors over their bounds of one configuration on every kind of inputs that products go wrong on."""
    spec, gpu = load_spec(case["kernel"]), load_gpu("h200")
    workload = Workload("gemm", case["sizes"], case["dtype"], case["options"])
    errors = []
    for number in range(5):
        checked = Case(spec, gpu, workload, device="cpu", seed=case["seed"], unusual=number)
        errors.append(checked.check(checked.launches(case["config"])))
        assert not checked.changed_inputs()
    return errors


def dispatch_is_right(case: dict[str, Any]) -> bool:
    """A whole product as if the CPU were the GPU that the case names, against the reference."""
    gpu = load_gpu(case["gpu"]) if case["gpu"] else None
    machine = Machine(gpu.device.sm_count, gpu.device.num_xcds, case["gpu"] == "h200") if gpu else Machine(4)
    setattr(first_call, "machine_of", lambda _: (gpu, machine))  # noqa: B010 - a stand-in for a cached function
    setattr(first_call, "has_nvrtc", lambda: False)  # noqa: B010 - Triton's kernels alone can be interpreted
    generator = torch.Generator().manual_seed(case["seed"])
    batch, m, n, k = case["sizes"]
    kind = getattr(torch, case["dtype"])
    shapes = (batch, m, k), (batch, k, n)
    if kind == torch.int8:
        a, b = (torch.randint(-9, 9, s, generator=generator, dtype=kind) for s in shapes)
    else:
        a, b = (torch.randn(s, generator=generator).to(kind) for s in shapes)
    a, b = in_order(a, case["layout"][0]), in_order(b, case["layout"][1])
    if case.get("expanded"):
        a = a[:1].expand(batch, m, k)
    out_kind = torch.int32 if kind == torch.int8 else kind
    bias = torch.randn(n, generator=generator).to(kind) if case.get("bias") else None
    activation = case.get("activation")
    found = first_call.run(a, b, bias, None, End(1.0, 0.0, activation, out_kind, "kernels"))
    if kind == torch.int8:
        expected = gemm_reference(a, b, bias, activation=activation, out_dtype=out_kind)
    else:
        expected = gemm_reference(a.double(), b.double(), bias, activation=activation, out_dtype=torch.float64)
    bound = k * 2.0**-23 * (a.double().abs() @ b.double().abs()) + 2.0**-10 * expected.double().abs() + 2.0**-23
    return bool(((found.double() - expected.double()).abs() <= bound).all())


def pointwise_is_right(case: dict[str, Any]) -> bool:
    """The pointwise kernel on a random product in place, against its reference in fp64, rounded once."""
    batch, m, n = case.get("batch", 1), case.get("m", 45), case.get("n", 70)
    generator = torch.Generator().manual_seed(m * n)
    product = torch.randn((batch, m, n), generator=generator).to(getattr(torch, case.get("dtype", "float16")))
    bias = torch.randn(n, generator=generator).half() if case.get("bias") else None
    source = torch.randn((batch, m, n), generator=generator).half() if case.get("source") else None
    if source is not None and case.get("by_columns"):
        source = source.mT.contiguous().mT
    if source is not None and case.get("repeated"):
        source = source[:1, :, :1].expand(batch, m, n)
    rest = Epilogue(bias, source, case.get("alpha", 1.0), case.get("beta", 0.0), case.get("activation"))
    operands = torch.empty(batch, m, 8).half(), torch.empty(batch, 8, n).half()
    out = product.clone()
    if case.get("gap"):
        wide = torch.full((batch, m, n + 3), float("nan"), dtype=product.dtype)
        out = wide[:, :, :n].copy_(product)
    call = GemmCall(*operands, out, Machine(4), rest, "ieee")
    pointwise_launch(call, rest).run()
    expected = pointwise_reference(product.double(), rest)
    unit = 2.0**-11 if product.dtype == torch.float16 else 2.0**-22
    bound = unit * expected.abs() + 2.0**-20 * (1.0 + expected.abs()) + 2.0**-24
    is_right = bool(((out.double() - expected).abs() <= bound).all())
    return is_right and (not case.get("gap") or bool(wide[:, :, n:].isnan().all()))
