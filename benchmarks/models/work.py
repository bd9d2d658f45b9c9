"""One block in a process of its own: prepared beside others, then checked and timed alone on the GPU."""

from __future__ import annotations

import copy
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from unittest import mock

#: Calls of a round of timing, rounds, and calls until every trial is over.
CALLS, ROUNDS, SETTLING = 6, 11, 8
#: Bounds of errors against fp32: this multiple of the unpatched model's, and this much more, of outputs and gradients.
SHARE, OF_OUTPUT, OF_GRADIENT = 1.5, 2.0**-9, 2.0**-6


class Task(NamedTuple):
    """What a process does.

    Args:
        name: A key of `blocks.BLOCKS`.
        how: "eager" or "compile".
        layers: Layers of the model.
        is_small: Whether sizes are those for a machine without a GPU.
    """

    name: str
    how: str
    layers: int
    is_small: bool


def serve(task: Task, pipe: Connection) -> None:
    """Prepare; say so; wait for a word; check and time; send the rows."""
    began = time.perf_counter()
    if task.how == "compile":
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # every process compiles its own
    try:
        trained = Trained(task)
        trained.prepare()
        pipe.send(("ready", time.perf_counter() - began))
        pipe.recv()
        pipe.send(("rows", trained.rows()))
    except Exception as error:  # noqa: BLE001 - what does not run is a row of the table
        lines = traceback.format_exc().splitlines()
        print(f"{task.name} {task.how}: " + "\n".join(lines[-12:]), flush=True)
        message = str(error).splitlines()[0][:100] if str(error) else ""
        pipe.send(("rows", [{"outcome": f"{type(error).__name__}: {message}"}]))


class Trained:
    """A block before and after the patch, with the functions that are timed."""

    def __init__(self, task: Task) -> None:
        import torch

        import constrint
        from benchmarks.models.blocks import BLOCKS

        self.task = task
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)
        model, inputs = BLOCKS[task.name](task.layers, task.is_small)
        dtype = torch.bfloat16
        self.before: Any = model.eval().to(self.device, dtype)
        self.inputs = {n: t.to(self.device, dtype if t.is_floating_point() else None) for n, t in inputs.items()}
        self.after: Any = copy.deepcopy(self.before)
        self.report = constrint.patch(self.after)
        self.gradient: Any = None
        both = self.before, self.after
        self.runs: list[Any] = [torch.compile(m) for m in both] if task.how == "compile" else list(both)

    def output(self, run: Any, inputs: Any = None) -> Any:
        """The last hidden state."""
        return run(**(self.inputs if inputs is None else inputs)).last_hidden_state

    def forward(self, run: Any) -> Any:
        """A call without gradients."""
        import torch

        with torch.no_grad():
            return self.output(run)

    def step(self, run: Any) -> Any:
        """Outputs and all gradients of weights, without an optimizer."""
        import torch

        out = self.output(run)
        if self.gradient is None:
            generator = torch.Generator().manual_seed(1)
            self.gradient = torch.randn(out.shape, generator=generator).to(out)
        model = getattr(run, "_orig_mod", run)
        model.zero_grad(set_to_none=True)
        out.backward(self.gradient)
        return out

    def prepare(self) -> None:
        """Compile everything; trials wait until nobody else uses the GPU."""
        with trials_wait():
            for run in self.runs:
                for function in (self.forward, self.step):
                    for _ in range(3):  # the first call of a shape is torch's
                        function(run)
        self._wait()
        if self.device == "cuda":
            import torch

            for model in (self.before, self.after):
                model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()

    def rows(self) -> list[dict[str, Any]]:
        """Check, then time: a row for the forward pass and one for the step."""
        for function in (self.forward, self.step):
            for _ in range(1 if self.task.is_small else SETTLING):
                for run in self.runs:
                    function(run)
                self._wait()
        facts = self.checked()
        facts |= {"replaced": len(self.report.replaced), "left": len(self.report.left)}
        rows = []
        for what, function in (("forward", self.forward), ("step", self.step)):
            rows.append({"what": what, **self.timed(function), **facts})
        return rows

    def checked(self) -> dict[str, Any]:
        """Errors of outputs and gradients against fp32, before and after, relative in the 2-norm, and the outcome."""
        import torch

        wide = copy.deepcopy(self.before).float()
        inputs = {n: t.float() if t.is_floating_point() else t for n, t in self.inputs.items()}
        exact = self.output(wide, inputs)
        wide.zero_grad(set_to_none=True)
        exact.backward(self.gradient.float())
        right = {n: p.grad for n, p in wide.named_parameters() if p.grad is not None}
        least = 0.01 * statistics.median(float(t.double().norm()) for t in right.values())
        errors, of_gradients = [], []
        for run, model in zip(self.runs, (self.before, self.after), strict=True):
            out = self.step(run)
            errors.append(_apart(out, exact))
            found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
            if found.keys() != right.keys():
                return {"outcome": "gradients are missing"}
            # A gradient may be nothing but rounding, that of a key's bias for one: see `least`.
            of_gradients.append({n: _apart(found[n], right[n], least) for n in right})
            with torch.no_grad():
                errors.append(_apart(self.output(run), exact))
        of_step, of_forward, after_step, after_forward = errors
        wrong = [
            after > SHARE * before + OF_OUTPUT for before, after in ((of_step, after_step), (of_forward, after_forward))
        ]
        ratios = {n: of_gradients[1][n] / (SHARE * e + OF_GRADIENT) for n, e in of_gradients[0].items()}
        worst = max(ratios, key=lambda n: ratios[n])
        outcome = "wrong output" if any(wrong) else f"wrong gradient of {worst}" if not ratios[worst] <= 1.0 else "ok"
        return {
            "error_before": of_step, "error_after": max(after_step, after_forward),
            "gradient_before": max(of_gradients[0].values()), "gradient_after": max(of_gradients[1].values()),
            "outcome": outcome,
        }  # fmt: skip

    def timed(self, function: Callable[[Any], object]) -> dict[str, float]:
        """Median us of a call before and after the patch, in turn; the rounds' median ratio, and its spread."""
        seen: list[list[float]] = [[], []]
        calls, rounds = (1, 2) if self.task.is_small else (CALLS, ROUNDS)
        for _ in range(rounds):
            for times, run in zip(seen, self.runs, strict=True):
                function(run)  # what the other one left in caches is none of this one's
                self._wait()
                began = time.perf_counter()
                for _ in range(calls):
                    function(run)
                self._wait()
                times.append(1e6 * (time.perf_counter() - began) / calls)
        ratios = [before / after for before, after in zip(*seen, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        before, after = (statistics.median(times) for times in seen)
        return {"before_us": before, "after_us": after, "ratio": middle, "spread": (high - low) / 2}

    def _wait(self) -> None:
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()


def _apart(found: Any, right: Any, least: float = 1e-30) -> float:
    """The distance of two tensors over the norm of the second, or `least`; infinite where one is not finite."""
    wide = right.detach().double()
    distance = float((found.detach().double() - wide).norm()) / max(float(wide.norm()), least)
    return distance if distance == distance else float("inf")


@contextmanager
def trials_wait() -> Iterator[None]:
    """Calls inside compile the candidates of trials, but time none of them: other processes use the GPU, too."""
    from constrint.kernels.launch.plan.trial import CurrentDevice

    with mock.patch.object(CurrentDevice, "is_captured", return_value=True):
        yield
