"""`gated_matmul` on the CPU: results, gradients, torch.compile, refusals, and the decision for named GPUs."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch
from torch import Tensor

from constrint.choose import Request, decide
from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS
from constrint.kernels.gemm.gated import gated_matmul
from constrint.kernels.gemm.gated.launch import GatedCall, why_not
from constrint.kernels.gemm.gated.op import _launched as launched
from constrint.kernels.gemm.reference import ACTIVATIONS as REFERENCES
from constrint.select import Workload


def operands(*, dtype: torch.dtype = torch.float64, grad: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = (2, 3, 16), (16, 10), (16, 10), (10,), (10,)
    return [torch.randn(shape, dtype=dtype, requires_grad=grad) for shape in shapes]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_results_are_those_of_plain_torch(activation: str) -> None:
    a, gate, up, bias_gate, bias_up = operands()
    out = gated_matmul(a, gate, up, activation=activation, bias_gate=bias_gate, bias_up=bias_up)
    expected = REFERENCES[activation](a @ gate + bias_gate) * (a @ up + bias_up)
    torch.testing.assert_close(out, expected)


def test_stacked_weights_are_gate_then_up() -> None:
    a, gate, up, *_ = operands()
    torch.testing.assert_close(gated_matmul(a, torch.cat([gate, up], 1)), gated_matmul(a, gate, up))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_are_right(activation: str) -> None:
    tensors = operands(grad=True)

    def function(a: Tensor, gate: Tensor, up: Tensor, bias_gate: Tensor, bias_up: Tensor) -> Tensor:
        out: Tensor = gated_matmul(a, gate, up, activation=activation, bias_gate=bias_gate, bias_up=bias_up)
        return out

    assert torch.autograd.gradcheck(function, tensors)


def test_torch_compile_sees_one_operator() -> None:
    a, gate, up, *_ = operands(dtype=torch.float32)

    def function(x: Tensor) -> Tensor:
        out: Tensor = gated_matmul(x, gate, up, activation="gelu") + 1
        return out

    compiled = torch.compile(function, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(a), gated_matmul(a, gate, up, activation="gelu") + 1)


# torch looks at the gradients of its own copies, and hides its warning where warnings are no errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_the_operator_keeps_its_contract() -> None:
    tensors = [t.reshape(-1, t.shape[-1]) if t.dim() == 3 else t for t in operands()]
    tensors = [t.requires_grad_() for t in tensors]
    torch.library.opcheck(torch.ops.constrint.gated.default, (*tensors, "silu"))


def test_transforms_run_plain_torch() -> None:
    a, gate, up, *_ = operands()
    each = torch.func.vmap(lambda x: gated_matmul(x, gate, up))(a)
    torch.testing.assert_close(each, gated_matmul(a, gate, up))


def test_what_does_not_go_together_is_refused() -> None:
    a, gate, up, bias_gate, _ = operands()
    with pytest.raises(RuntimeError, match="one K and one N"):
        gated_matmul(a, gate, up[:, :4])
    with pytest.raises(RuntimeError, match="one dtype"):
        gated_matmul(a, gate.float(), up.float())
    with pytest.raises(RuntimeError, match=r"\(K, 2 N\)"):
        gated_matmul(a, gate[:, :3])
    with pytest.raises(RuntimeError, match="bias_gate is"):
        gated_matmul(a, gate, up, bias_gate=bias_gate[:3])
    with pytest.raises(UnknownNameError, match="activation"):
        gated_matmul(a, gate, up, activation="swish")
    with pytest.raises(UnknownNameError, match="kernel"):
        gated_matmul(a, gate, up, kernel="skinny")
    with pytest.raises(UsageError, match="config needs"):
        gated_matmul(a, gate, up, config={"tile_m": 64})
    with pytest.raises(TypeError, match="must be a tensor"):
        gated_matmul(a, None)


def test_why_decides_between_one_launch_and_a_composition() -> None:
    a, weights = torch.empty(8192, 768, dtype=torch.bfloat16), torch.empty(2 * 3072, 768, dtype=torch.bfloat16)
    decision = gated_matmul.why(a, weights.t(), gpu="h200")
    assert {program.name for program in decision.programs} == {"gated.cuda", "gated.composition"}
    assert decision.program.name == "gated.cuda"
    assert "gated.composition" in str(decision)
    elsewhere = gated_matmul.why(a, weights.t(), gpu="a100-sxm4-80gb")
    assert {program.name for program in elsewhere.programs} == {"gated.cuda", "gated.pointer", "gated.composition"}
    assert elsewhere.program_of("gated.cuda").refusal
    assert elsewhere.program_of("gated.pointer").seconds
    with pytest.raises(UsageError, match="name a GPU"):
        gated_matmul.why(a, weights.t())


def test_a_named_kernel_that_cannot_run_says_why() -> None:
    workload = Workload("gated", {"m": 64, "n": 100, "k": 64}, "bf16", {"transpose_b": 1})
    with pytest.raises(UnsupportedError, match="multiples of 16 bytes"):
        decide(Request("gated", workload, load_gpu("h200"), kernel="cuda"))


def test_calls_that_the_kernel_does_not_take_are_told() -> None:
    a, both = torch.empty(8, 64).half(), torch.empty(2 * 24, 64).half()
    gate, up, out = both[:24].t(), both[24:].t(), torch.empty(8, 24).half()
    bias = torch.empty(25).half()
    assert why_not(GatedCall(a, gate, up, out)) == ""
    assert "lie alike" in why_not(GatedCall(a, gate, up.contiguous(), out))
    assert "bias of one dtype" in why_not(GatedCall(a, gate, up, out, bias[:24]))
    assert "two elements" in why_not(GatedCall(a, gate, up, out, bias[1:], bias[:24]))
    assert "fp16 and bf16" in why_not(GatedCall(a.float(), gate.float(), up.float(), out.float()))
    assert "multiples of 16" in why_not(GatedCall(a[:, :60], gate[:60], up[:60], torch.empty(8, 25).half()[:, :24]))


def test_a_sum_of_nothing_is_its_bias() -> None:
    bias = torch.randn(4)
    out = gated_matmul(torch.empty(2, 3, 0), torch.empty(0, 4), torch.empty(0, 4), activation="sigmoid", bias_up=bias)
    assert torch.equal(out, (0.5 * bias).expand(2, 3, 4))
    assert gated_matmul(torch.empty(0), torch.empty(0, 8)).shape == (4,)


def test_a_named_kernel_that_observed_calls_cannot_run_says_why() -> None:
    """Without a plan, as under deterministic algorithms, the refusal is the documented one."""
    a, both = torch.empty(8, 64).half(), torch.empty(64, 48).half()
    with pytest.raises(UnsupportedError, match="lie alike"):
        launched((a, both[:, :24], both[:, 24:].contiguous(), None, None), "silu", "cuda", "")
    with pytest.raises(UnsupportedError, match="contiguous biases"):
        launched((a, both[:, :24], both[:, 24:], both[0, ::2], None), "silu", "pointer", "")
    with pytest.raises(UnsupportedError, match="without elements"):
        launched((a[:, :0], both[:0, :24], both[:0, 24:], None, None), "silu", "cuda", "")
