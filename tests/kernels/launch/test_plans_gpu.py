"""Launch plans on the GPU of this machine: what a call that goes by its plan must still do, as torch's own calls do."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch
import triton

from constrint.flashrnn import GRU, LSTM, rnn
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.operator import PLANS
from constrint.kernels.launch.plan import recipe
from constrint.kernels.launch.plan import table as tables
from constrint.kernels.launch.plan.table import clear_plans, plan_states
from constrint.kernels.rnn.plans import BACKWARD, FORWARD

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]


def randn(*shape: int, dtype: Any = torch.bfloat16, seed: int = 0) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def new_stream() -> Any:
    make: Any = torch.cuda.Stream  # untyped in torch
    return make()


def close(ours: Any, a: Any, b: Any) -> None:
    exact = a.double() @ b.double()
    assert float((ours.double() - exact).norm()) <= 6e-3 * float(exact.norm())


def hits(call: Any) -> int:
    """How often a call is found in the table of products."""
    before = PLANS.state().hits
    call()
    return PLANS.state().hits - before


def test_a_repeated_signature_is_found_and_others_are_not_mistaken_for_it() -> None:
    a, b = randn(96, 160), randn(160, 128)
    matmul(a, b)
    assert hits(lambda: matmul(a, b)) == 1
    for x, y in ((a, randn(128, 160).t()), (randn(160, 96).t(), b), (randn(96, 168)[:, 4:164], b), (a[:, ::2], b[::2])):
        close(matmul(x, y), x, y)
        close(matmul(x, y), x, y)
    shifted = randn(96 * 160 + 1)[1:].view(96, 160)
    close(matmul(shifted, b), shifted, b)


def test_one_tensor_twice_is_not_one_argument() -> None:
    a, b = randn(128, 128), randn(128, 128, seed=1)
    close(matmul(a, a), a, a)
    close(matmul(a, b), a, b)
    close(matmul(a, a.t()), a, a.t())
    overlapping = randn(200, 128)
    close(matmul(overlapping[:128], overlapping[64:192]), overlapping[:128], overlapping[64:192])
    close(matmul(a, b), a, b)


def test_lazily_negated_views_are_negated() -> None:
    a, b = randn(64, 64, dtype=torch.float32), randn(64, 64, dtype=torch.float32)
    negated = torch.complex(b, a).conj().imag
    assert negated.is_neg()
    matmul(a, b)
    exact = negated.resolve_neg().double() @ b.double()
    assert float((matmul(negated, b).double() - exact).norm()) <= 1e-5 * float(exact.norm())


def test_the_precision_of_fp32_products_is_part_of_the_signature() -> None:
    a, b = randn(256, 1024, dtype=torch.float32), randn(1024, 256, dtype=torch.float32)
    exact = a.double() @ b.double()
    before, errors = torch.get_float32_matmul_precision(), {}
    try:
        for precision in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            errors[precision] = float((matmul(a, b).double() - exact).norm() / exact.norm())
    finally:
        torch.set_float32_matmul_precision(before)
    assert errors["highest"] < 2e-6 < 1e-4 < errors["high"] < 2e-3


@pytest.mark.parametrize("k", [64, 32768])
def test_streams_graphs_and_threads(k: int) -> None:
    """The longer product is split, with counters and partial sums in memory of its own."""
    a, b = randn(64, k), randn(k, 64)
    expected = matmul(a, b)
    stream = new_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        on_side = matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = matmul(a, b)
    fresh = randn(64, k, seed=5)
    kept = a.clone()
    a.copy_(fresh)
    graph.replay()
    torch.cuda.synchronize()
    close(captured, fresh, b)
    a.copy_(kept)
    assert torch.equal(on_side, expected)
    wrong: list[str] = []

    def work(number: int) -> None:
        own = new_stream()
        x = randn(64, k, seed=number)
        torch.cuda.synchronize()
        with torch.cuda.stream(own):
            first = matmul(x, b)
            for _ in range(50):
                if not torch.equal(matmul(x, b), first):
                    wrong.append(f"thread {number}")
        own.synchronize()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_first_call_of_a_signature_may_be_captured() -> None:
    a, b = randn(72, 88), randn(88, 104)
    matmul(randn(80, 88), b)  # loads what has to be loaded
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = matmul(a, b)
    graph.replay()
    torch.cuda.synchronize()
    close(out, a, b)


def test_gradients_checkpoints_hooks_and_second_derivatives() -> None:
    from torch.utils.checkpoint import checkpoint

    x, w = randn(32, 64, dtype=torch.float32).requires_grad_(), randn(64, 48, dtype=torch.float32).requires_grad_()
    expected = torch.autograd.grad((x @ w).pow(3).sum(), (x, w))
    torch.testing.assert_close(torch.autograd.grad(matmul(x, w).pow(3).sum(), (x, w)), expected, rtol=1e-4, atol=1e-2)
    again = checkpoint(lambda a, b: matmul(a, b).pow(3), x, w, use_reentrant=False).sum()
    torch.testing.assert_close(torch.autograd.grad(again, (x, w)), expected, rtol=1e-4, atol=1e-2)
    packed: list[Any] = []

    def pack(tensor: Any) -> Any:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        matmul(x, w)
    assert len(packed) == 2

    def twice(multiply: Any) -> Any:
        (grad,) = torch.autograd.grad(multiply(x, w).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(grad.pow(2).sum(), w)[0]

    torch.testing.assert_close(twice(matmul), twice(torch.matmul), rtol=1e-3, atol=1.0)


@pytest.mark.parametrize("cell", [LSTM, GRU])
def test_a_layer_refuses_what_would_spoil_its_gradient(cell: Any) -> None:
    layer, x = cell(32, 32, device="cuda", batch_first=True), randn(5, 3, 32, dtype=torch.float32)
    layer(x)
    output, _ = layer(x)

    def spoil() -> None:
        output.mul_(2)
        output.sum().backward()

    with pytest.raises(RuntimeError, match=r"modified in|in-place|inplace"):
        spoil()
    with torch.no_grad():
        output, last = layer(x)
        kept = (last[0] if isinstance(last, tuple) else last).clone()
        output.zero_()
        assert torch.equal(last[0] if isinstance(last, tuple) else last, kept)


@pytest.mark.parametrize("cell", [LSTM, GRU])
def test_a_planned_layer_is_differentiated_twice_as_the_reference_is(cell: Any) -> None:
    layer, x = cell(32, 32, device="cuda", batch_first=True), randn(5, 3, 32, dtype=torch.float32)
    plain = cell(32, 32, device="cuda", batch_first=True, backend="reference")
    plain.load_state_dict(layer.state_dict())
    layer(x.requires_grad_())[0].sum().backward()
    found = []
    for one in (layer, plain):
        (gradient,) = torch.autograd.grad(one(x)[0].square().sum(), x, create_graph=True)
        second = torch.autograd.grad(gradient.square().sum(), [x, *one.parameters()])
        found.append([gradient.detach(), *second])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_observers_see_the_operator_and_the_kernel() -> None:
    from torch.profiler import ProfilerActivity, profile

    a, b = randn(64, 64), randn(64, 64)
    matmul(a, b)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
        matmul(a, b)
        torch.cuda.synchronize()
    names = {event.key for event in seen.key_averages()}
    assert "constrint::gemm" in names
    assert any(name.startswith("gemm") and name.endswith("kernel") for name in names), names
    calls: list[Any] = []
    hook = triton.knobs.runtime.launch_enter_hook
    hook.add(calls.append)
    try:
        out = matmul(a, b)
        layer = LSTM(32, 32, device="cuda", backend="triton")
        with torch.no_grad():
            layer(randn(4, 2, 32, dtype=torch.float32))
    finally:
        hook.remove(calls.append)
    assert len(calls) >= 2
    close(out, a, b)


def test_torch_func_and_operators() -> None:
    a, b = randn(4, 32, 48, dtype=torch.float32), randn(48, 16, dtype=torch.float32)
    torch.testing.assert_close(torch.func.vmap(lambda x: matmul(x, b))(a), a @ b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        torch.func.grad(lambda x: matmul(x, b).sum())(a), torch.func.grad(lambda x: (x @ b).sum())(a)
    )
    arguments = (a.requires_grad_(), b.expand(4, 48, 16), None, None, 1.0, 0.0, None, torch.float32)
    torch.library.opcheck(torch.ops.constrint.gemm.default, arguments)
    wx, r = randn(2, 3, 4, 2, 16, dtype=torch.float32), randn(4, 2, 16, 16, dtype=torch.float32)
    call = (wx.requires_grad_(), r.requires_grad_(), None, None, None, None, "lstm", "auto", True, False, 0.0)
    torch.library.opcheck(torch.ops.constrint.rnn_forward.default, call)


def test_deterministic_mode_autocast_and_inference_mode() -> None:
    a, b = randn(64, 4096, dtype=torch.float32), randn(4096, 64, dtype=torch.float32)
    expected = matmul(a, b)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(matmul(a, b), expected)
    finally:
        torch.use_deterministic_algorithms(False)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert matmul(a, b).dtype == torch.bfloat16
        output, _ = LSTM(32, 32, device="cuda")(randn(4, 2, 32, dtype=torch.float32))
        assert output.dtype == torch.bfloat16
    with torch.inference_mode():
        assert torch.equal(matmul(a, b), expected)
        assert matmul(a, b).is_inference()


def test_several_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for index in (0, 1, 0, 1):
        a, b = (x.to(f"cuda:{index}") for x in (randn(64, 2048), randn(2048, 64)))
        close(matmul(a, b), a, b)
        assert matmul(a, b).device.index == index
        layer = LSTM(32, 32, device=f"cuda:{index}")
        x = randn(4, 2, 32, dtype=torch.float32).to(f"cuda:{index}")
        output, _ = layer(x)
        output.sum().backward()
        expected = torch.nn.LSTM(32, 32, device=f"cuda:{index}")
        expected.load_state_dict(layer.state_dict())
        torch.testing.assert_close(output, expected(x)[0], rtol=1e-3, atol=1e-3)


def test_the_table_is_bounded_counts_and_can_be_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CAPACITY", 3)
    small = tables.PlanTable("small", PLANS.build, PLANS.precision, PLANS.function_of)
    b = randn(64, 64)
    for rows in (16, 32, 48, 64, 80):
        a = randn(rows, 64)
        assert small.call(False, None, a, b, None, None) is False
        close(small.learn(None, a, b, None, None), a, b)
        close(small.call(False, None, a, b, None, None), a, b)
    state = small.state()
    assert (state.entries, state.misses) == (3, 5)
    small.clear()
    assert small.state().entries == 0
    matmul(b, b)
    assert plan_states()["matmul"].entries > 0
    clear_plans()
    assert all(state.entries == 0 for state in plan_states().values())
    close(matmul(b, b), b, b)


def test_without_the_core_triton_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "reads_tensors", lambda: False)
    monkeypatch.setattr(recipe, "reads_tensors", lambda: False)
    for table in (PLANS, FORWARD, BACKWARD):
        monkeypatch.setattr(table, "_table", None)
        monkeypatch.setattr(table, "_plain", None)
        monkeypatch.setattr(table, "call", table._first_call)
    for m, n, k in ((64, 96, 128), (33, 65, 77), (64, 64, 32768)):
        a, b = randn(m, k), randn(k, n)
        close(matmul(a, b), a, b)
        close(matmul(a, b), a, b)
    assert PLANS._plain is not None
    assert PLANS.state().hits >= 3
    ours = LSTM(32, 32, device="cuda")
    theirs = torch.nn.LSTM(32, 32, device="cuda")
    theirs.load_state_dict(ours.state_dict())
    x = randn(7, 3, 32, dtype=torch.float32)
    for layer in (ours, theirs):
        layer.zero_grad()
        layer(x)[0].square().sum().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=2e-3, atol=2e-3)


def compiled_kernels() -> dict[str, int]:
    """Variants that Triton has compiled for the recurrent kernels and the GEMM's."""
    from constrint.kernels.gemm.descriptor.kernel import gemm_descriptor_kernel
    from constrint.kernels.gemm.pointer.kernel import gemm_kernel
    from constrint.kernels.rnn.triton.kernel_backward import backward_kernel
    from constrint.kernels.rnn.triton.kernel_edges import before_kernel, ends_kernel
    from constrint.kernels.rnn.triton.kernel_forward import forward_kernel

    kernels = (forward_kernel, backward_kernel, before_kernel, ends_kernel, gemm_descriptor_kernel, gemm_kernel)
    return {kernel.__name__: sum(len(caches[0]) for caches in kernel.device_caches.values()) for kernel in kernels}


@pytest.mark.parametrize(("size", "dtype"), [(512, torch.float16), (64, torch.float32)])
def test_batch_sizes_and_lengths_never_seen_compile_nothing(size: int, dtype: Any) -> None:
    layer = LSTM(size, size, device="cuda", dtype=dtype)
    layer(randn(20, 16, size, dtype=dtype))[0].sum().backward()
    number = compiled_kernels()
    for time, batch in ((20, 12), (33, 16), (7, 9), (64, 11), (1, 10)):
        layer(randn(time, batch, size, dtype=dtype))[0].sum().backward()
        assert compiled_kernels() == number, (time, batch)


PROGRAM = """
import json, sys
import torch
from constrint.flashrnn import LSTM
from constrint.kernels.gemm import matmul
torch.manual_seed(0)
a = torch.randn(256, 512, device="cuda").half()
layer = LSTM(64, 64, device="cuda")
out = layer(torch.randn(5, 3, 64, device="cuda"))[0]
out.sum().backward()
sums = [float(x.double().sum()) for x in (matmul(a, a.t()), out, layer.weight_hh_l0.grad)]
print(json.dumps({"sums": sums, "triton": "triton" in sys.modules, "dynamo": "torch._dynamo" in sys.modules}))
"""


def test_later_processes_neither_choose_nor_compile(tmp_path: Path) -> None:
    environment = os.environ | {"CONSTRINT_CACHE": str(tmp_path / "own"), "TRITON_CACHE_DIR": str(tmp_path / "triton")}

    def run(**more: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment | more, capture_output=True, text=True, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    first, second = run(), run()
    assert first["triton"]
    assert not second["triton"]
    assert not second["dynamo"]
    assert second["sums"] == first["sums"]
    for path in (tmp_path / "own").rglob("*"):
        if path.is_file() and path.parent.name == "kernels":
            path.write_bytes(path.read_bytes()[:-1])
    assert run()["sums"] == first["sums"]
    assert run(CONSTRINT_CACHE="0")["triton"]


def test_functional_recurrence_with_states_goes_by_plan() -> None:
    wx, r = randn(3, 6, 4, 2, 32, dtype=torch.float32), randn(4, 2, 32, 32, dtype=torch.float32) / 6
    whole = rnn(wx, r)[0]
    first, last = rnn(wx[:, :4], r)
    before = FORWARD.state().hits
    for _ in range(2):
        second, _ = rnn(wx[:, 4:], r, states=last)
    assert FORWARD.state().hits > before
    torch.testing.assert_close(torch.cat([first, second], 2), whole, rtol=1e-5, atol=1e-5)
