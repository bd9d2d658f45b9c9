"""Plans of a product with a user's epilogue: the fused kernel; or the product's program into the result, then the pass.

The product of a composition is any that `matmul` would run. Where predictions do not tell, the first calls try the
fused kernel and compositions, the library's product among them (`../trial.py`). Needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from constrint.choose import Decision, Program, decide
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import first_call, trial
from constrint.kernels.gemm.checks import stack
from constrint.kernels.gemm.library.planned import followed_plan, planned_of
from constrint.kernels.gemm.library.spec import LIBRARY
from constrint.kernels.gemm.traced.candidates import COMPOSITION, FUSED, composed
from constrint.kernels.gemm.traced.expression import Expression
from constrint.kernels.gemm.traced.launch import TracedCall, fused_launch, pass_launch
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError


@dataclass(frozen=True)
class TracedPlans:
    """The plans of one call.

    Args:
        gpu: The device's model.
        decision: The decision for the call.
        tensors: The call's tensors: a, b, the epilogue's operands.
        a: (..., M, K), two axes where b has two.
        out: The result.
        expression: The epilogue.
        operands: Its operands as kernels read them, by name.
    """

    gpu: GpuModel
    decision: Decision
    tensors: tuple[Tensor | None, ...]
    a: Tensor
    out: Tensor
    expression: Expression
    operands: Mapping[str, Tensor]

    def recorded(self) -> RecordedCall:
        """The plan of the candidate that runs, with those that it is tried against.

        Raises:
            NotPlannedError: When no recorded plan can run it.
            ConstrintError, triton.errors.TritonError: When its kernels do not compile or do not fit.
        """
        tried = trial.fastest(self.decision.request)
        if tried is not None:
            with suppress(*first_call.refusals()):
                return self.plan(tried)
        is_due = trial.is_due(self.decision)
        first, *rivals = self.programs(with_rivals=is_due)
        made = self.plan(first)
        if not is_due:
            return made
        decision = replace(self.decision, program=first)
        return trial.with_rivals(made, decision, rivals, self.plan, label_of, first_call.refusals())

    def programs(self, *, with_rivals: bool) -> list[Program]:
        """Candidates: the one that runs, and those that it is tried against, the fused kernel and compositions.

        Compositions begin with the product's program by `matmul`; then come those with the library's, by further
        algorithms, too. What takes far longer by prediction is left out.
        """
        chosen = self.decision.program
        is_fused = chosen.name == f"gemm.{FUSED}"
        if is_fused and not with_rivals:
            return [chosen]
        own = self.decision.program_of(f"gemm.{COMPOSITION}")
        compositions = [composed(own, each) for each in self._products(with_rivals=with_rivals)] if own.steps else []
        fused = [each for each in self.decision.programs if each.steps and each is not own]
        first, *rest = [*fused, *compositions] if is_fused else [*compositions, *fused]
        most = trial.LIBRARY_REACH * (first.seconds or 0.0)
        return [first, *(each for each in rest if each.seconds is not None and each.seconds <= most)]

    def _products(self, *, with_rivals: bool) -> list[Program]:
        """Programs of the plain product: that of `matmul`, then the library's."""
        request = self._product.request
        tried = trial.fastest(request)
        if tried is not None:
            return [tried]
        product = decide(request)
        if not with_rivals:
            return [product.program]
        return [product.program, *(each for each in trial.rivals_of(product) if trial.is_library(each))]

    @cached_property
    def _product(self) -> first_call.Inspected:
        """The plain product into the result.

        Raises:
            NotPlannedError: Where no kernel computes it.
        """
        b = self.tensors[1]
        assert b is not None
        stacked = stack(self.a, b, None, None, 1.0, 0.0, None, self.out.dtype)
        flat = self.out.view(stacked.a.shape[0], stacked.a.shape[1], stacked.b.shape[2])
        end = first_call.End(out_dtype=self.out.dtype)
        inspected = first_call.inspect(stacked.a, stacked.b, None, None, end, flat)
        if inspected is None:
            raise NotPlannedError("no kernel computes the product")
        return inspected

    def plan(self, program: Program) -> RecordedCall:
        """The plan of a candidate; compiles its kernels.

        Raises:
            NotPlannedError: When no recorded plan can run it, or an operand would be copied.
            ConstrintError, triton.errors.TritonError: When a kernel spills, does not compile or does not fit.
        """
        scratch, note, out = NotedScratch(), label_of(program), self.out
        flat = out.view(-1, out.shape[-1])
        if program.name == f"gemm.{FUSED}":
            b = self.tensors[1]
            assert b is not None
            call = TracedCall(self.a, b, flat, self.expression, self.operands, scratch)
            fused = fused_launch(self.gpu, call, program.step("product").config)
            return recipe_of([fused], self.tensors, [out], scratch, note)
        launch = pass_launch(self.gpu, flat, flat, self.expression, self.operands)
        if launch is None:
            raise NotPlannedError("more elements than a launch of the pass takes")
        step, product = program.step("product"), self._product.call
        if step.kernel == LIBRARY:
            planned_of(product, self.tensors, out.shape)  # operands are those of the call
            return followed_plan(product, launch, self.tensors, out, note, step.config)
        launches = first_call.launches_of(program, product.with_scratch(scratch))
        return recipe_of([*launches, launch], self.tensors, [out], scratch, note, may_spill=False)


def label_of(program: Program) -> str:
    """A program's name and the configuration of its product; for a composition the product's kernel, too."""
    step = program.step("product")
    config = f" {dict(step.config)}" if step.config else ""
    return f"{program.name}{config}" if program.name == step.kernel else f"{program.name}: {step.kernel}{config}"
