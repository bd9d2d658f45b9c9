"""Launches of one drawn product: again, with other values, on several streams, in a graph, with gradients."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.launches.bounds import worst_of
from benchmarks.launches.fields import drawn_axpy, drawn_conjugate, drawn_gemv, drawn_jacobi, drawn_spmv
from benchmarks.launches.kinds import Drawn, RefusedError, drawn_direct, drawn_matmul
from benchmarks.launches.memory import MODES, POISON, Guarded
from benchmarks.launches.others import (
    drawn_gated,
    drawn_grouped,
    drawn_linear,
    drawn_quantised,
    drawn_scaled,
    drawn_traced,
    values_for,
)
from constrint.errors import InfeasibleError, UnsupportedError
from constrint.kernels.launch.look import SpilledError

#: Kinds and how often each is drawn.
KINDS: dict[str, tuple[int, Callable[[random.Random], Drawn]]] = {
    "matmul": (30, drawn_matmul),
    "direct": (30, drawn_direct),
    "gradients": (10, lambda draw: drawn_matmul(draw, with_gradients=True)),
    "linear": (6, drawn_linear),
    "gated": (9, drawn_gated),
    "traced": (6, drawn_traced),
    "grouped": (8, drawn_grouped),
    "scaled": (9, drawn_scaled),
    "quantised": (9, drawn_quantised),
    "axpy": (4, drawn_axpy),
    "gemv": (6, drawn_gemv),
    "spmv": (8, drawn_spmv),
    "jacobi": (8, drawn_jacobi),
    "cg": (4, drawn_conjugate),
}
#: Products of a group that are drawn until one is computed, at most.
MOST_DRAWS = 12
#: Streams at once, and modes of values of a group beside whole numbers.
STREAMS, NUM_MODES = 3, 5
#: Shares of groups on streams, and in graphs.
ON_STREAMS, IN_GRAPHS = 0.7, 0.6


@dataclass
class Outcome:
    """What came of a group.

    Args:
        launches: Number of results that were compared.
        failures: One line each: the case, what was called, and what was wrong.
        counts: Launches by kind and way.
        refused: Products that a named kernel does not compute, by reason.
    """

    launches: int = 0
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def run_group(seed: int, number: int, device: str, only: str = "") -> Outcome:
    """Draw a product by (seed, number) and launch it in many ways."""
    outcome = Outcome()
    draw = random.Random(f"{seed}:{number}")
    names = [only] if only else list(KINDS)
    kind = draw.choices(names, [KINDS[name][0] for name in names])[0]
    for attempt in range(MOST_DRAWS):
        drawn = KINDS[kind][1](draw)
        try:
            Group(seed, number, attempt, drawn, device, outcome, draw).run()
        except RefusedError as error:
            outcome.refused[str(error)[:90]] += 1
            continue
        except SpilledError:
            outcome.refused[f"{kind}: spills, so it is not launched"] += 1
            continue
        except (InfeasibleError, UnsupportedError) as error:
            outcome.refused[str(error)[:90]] += 1
            continue
        except Exception as error:  # every other exception is a finding
            if "out of memory" in str(error):
                outcome.refused["out of memory"] += 1
                continue
            outcome.failures.append(f"{seed}:{number} {drawn}: {type(error).__name__}: {str(error)[:300]}")
            if "CUDA error" in str(error) or "cuda" in type(error).__name__.lower():
                raise
        return outcome
    return outcome


class Group:
    """The launches of one drawn product."""

    def __init__(
        self, seed: int, number: int, attempt: int, drawn: Drawn, device: str, outcome: Outcome, draw: random.Random
    ) -> None:
        self.seed, self.number, self.attempt, self.drawn = seed, number, attempt, drawn
        self.device, self.outcome, self.draw = device, outcome, draw
        self.launches = 0
        self.on_gpu = device != "cpu"

    def run(self) -> None:
        """All launches."""
        torch.set_float32_matmul_precision(self.drawn.precision)
        with self._determinism():
            first = self._operands("ints")
            self._called(first, "ints", "first")
            self._called(first, "ints", "again")
            for mode in self.draw.sample(MODES[1:], NUM_MODES):
                if mode == "special" and not self.on_gpu:
                    continue  # torch's own activations on the CPU lose infinities
                self._fill(first, mode)
                if self.drawn.grads and mode in ("special", "large", "denormal"):
                    continue
                self._called(first, mode, "values")
            if self.on_gpu and not self.drawn.grads and self.draw.random() < ON_STREAMS:
                self._on_streams()
            if self.on_gpu and self.drawn.in_graphs and self.draw.random() < IN_GRAPHS:
                self._in_graph(first)
            self._fill(first, "ints")
            self._called(first, "ints", "last")

    def run_twice(self) -> None:
        """Two launches."""
        torch.set_float32_matmul_precision(self.drawn.precision)
        operands = self._operands("ints")
        for mode in ("ints", "normal"):
            self._fill(operands, mode)
            self._called(operands, mode, "sanitized")

    # Operands.

    def _operands(self, mode: str) -> dict[str, Guarded]:
        found = {name: Guarded.at(place, self.device) for name, place in self.drawn.places.items()}
        self._fill(found, mode)
        return found

    def _fill(self, operands: dict[str, Guarded], mode: str) -> None:
        self.launches += 1
        for place, (name, one) in enumerate(operands.items()):
            generator = torch.Generator(self.device)
            generator.manual_seed(hash((self.seed, self.number, self.attempt, self.launches, place)) % (1 << 62))
            own = "zeros" if mode == "zeros" and name not in ("a", "x") else mode
            own = "normal" if own == "zeros" and name != "a" else own
            own = "normal" if mode in ("denormal", "large") and name not in ("a", "x") else own
            one.fill(values_for(self.drawn, name, own, generator, self.device))
            one.remember()

    # One launch.

    def _called(self, operands: dict[str, Guarded], mode: str, how: str) -> None:
        views = {name: one.view for name, one in operands.items()}
        if self.drawn.grads:
            self._trained(operands, mode)
            return
        exact = self.drawn.exact(views, mode == "ints")
        out = self._poisoned_call(views, exact[0])
        self._judge(out, operands, exact, mode, how)
        if how == "again":
            second = self._poisoned_call(views, exact[0])
            self._judge(second, operands, exact, mode, "repeated")
            if self.drawn.repeats and not _are_same(_tensor(out), _tensor(second)):
                self._fail(mode, "repeated", "two launches differ")

    def _poisoned_call(self, views: dict[str, Tensor], like: Tensor) -> Any:
        """A call whose result's memory is poison before, where the allocator reuses the block that was freed last."""
        if self.on_gpu and like.numel():
            for size in (2, 4):
                torch.full((like.numel() * size,), POISON, dtype=torch.uint8, device=self.device)
        return self.drawn.call(views)

    def _judge(self, out: Any, operands: dict[str, Guarded], exact: Any, mode: str, how: str) -> None:
        self.outcome.launches += 1
        self.outcome.counts[f"{self.drawn.kind} {how}"] += 1
        self.outcome.counts[f"values {mode}"] += 1
        beside = out.written_beside() if isinstance(out, Guarded) else []
        if beside:
            self._fail(mode, how, f"bytes beside the result were written: {beside}, by {self.drawn.chosen}")
        why = worst_of(_tensor(out), exact[0], exact[1], exact[2], self.drawn.activation)
        if why:
            self._fail(mode, how, why)
        changed = [name for name, one in operands.items() if not one.is_unchanged()]
        if changed:
            self._fail(mode, how, f"memory of {', '.join(changed)} was written")

    def _fail(self, mode: str, how: str, why: str) -> None:
        case = f"{self.seed}:{self.number}"
        self.outcome.failures.append(f"{case} [{how}, {mode}] {self.drawn}: {why}")

    def _trained(self, operands: dict[str, Guarded], mode: str) -> None:
        """A call and its gradients."""
        names = self.drawn.grads
        views = {
            name: one.view.detach().requires_grad_() if name in names else one.view for name, one in operands.items()
        }
        plain = {name: one.view for name, one in operands.items()}
        exact = self.drawn.exact(plain, mode == "ints")
        out = self._poisoned_call(views, exact[0])
        self._judge(out.detach(), operands, exact, mode, "with gradients")
        if not out.numel():
            return
        gradient = torch.randint(-2, 3, out.shape, device=self.device).to(out.dtype)
        found = torch.autograd.grad(out, [views[name] for name in names], gradient)
        assert self.drawn.gradient is not None
        expected = self.drawn.gradient(plain, gradient, mode == "ints")
        for name, seen in zip(names, found, strict=True):
            self.outcome.launches += 1
            self.outcome.counts[f"{self.drawn.kind} gradient of {name}"] += 1
            why = worst_of(seen, *expected[name])
            if why:
                self._fail(mode, f"gradient of {name}", why)

    # Several at once.

    def _on_streams(self) -> None:
        sets = [self._operands(self.draw.choice(("ints", "normal"))) for _ in range(STREAMS)]
        modes = ["normal"] * STREAMS
        exacts = [self.drawn.exact({name: one.view for name, one in each.items()}, False) for each in sets]
        streams: list[Any] = [_stream() for _ in range(STREAMS)]
        torch.cuda.synchronize()
        outs: list[tuple[int, Any]] = []
        for _ in range(2):
            for place, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    outs.append((place, self.drawn.call({name: one.view for name, one in sets[place].items()})))
        torch.cuda.synchronize()
        for place, out in outs:
            self._judge(out, sets[place], exacts[place], modes[place], "on streams")

    def _in_graph(self, operands: dict[str, Guarded]) -> None:
        views = {name: one.view for name, one in operands.items()}
        self._fill(operands, "normal")
        side: Any = _stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.drawn.call(views)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.drawn.call(views)
        for mode in ("ints", "normal"):
            self._fill(operands, mode)
            exact = self.drawn.exact(views, mode == "ints")
            _tensor(out).fill_(float("nan") if _tensor(out).is_floating_point() else -1)
            graph.replay()
            self._judge(_tensor(out), operands, exact, mode, "in a graph")

    @contextmanager
    def _determinism(self) -> Iterator[None]:
        """A share of groups with torch's deterministic algorithms, which fill new memory with NaN."""
        if not self.on_gpu or self.draw.random() > 0.12:
            yield
            return
        torch.use_deterministic_algorithms(True)
        self.drawn.repeats = True
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)


def _stream() -> Any:
    make: Any = torch.cuda.Stream
    return make()


def _tensor(out: Any) -> Tensor:
    found: Tensor = out.view if isinstance(out, Guarded) else out
    return found


def _are_same(first: Tensor, second: Tensor) -> bool:
    return torch.equal(first.double().nan_to_num(7.25), second.double().nan_to_num(7.25))
