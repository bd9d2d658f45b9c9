"""Epilogues are traced once while nothing that they read changes: closures, globals, defaults, and what they call."""

from __future__ import annotations

import gc
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial, wraps
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch
from torch import nn
from torch.nn import functional

from constrint.errors import UsageError
from constrint.kernels.gemm.traced import reads
from constrint.kernels.gemm.traced.reads import FunctionMemo, key_of
from constrint.kernels.gemm.traced.trace import trace

SCALE = 2.0
LIST = [2.0]


class Counted:
    """A memory of traces that counts them."""

    def __init__(self) -> None:
        self.number = 0
        self._memory = FunctionMemo(self._trace)

    def _trace(self, function: Callable[..., Any]) -> str:
        self.number += 1
        return trace(function).text

    def __call__(self, function: Any) -> str:
        text: str = self._memory(function)
        return text

    def __len__(self) -> int:
        return len(self._memory)


@pytest.fixture
def traced() -> Counted:
    return Counted()


def of_constant(value: float) -> str:
    return f"acc;constant {value.hex()};mul 0 1"


def scaled(acc: Any) -> Any:
    return acc * SCALE


def by_helper(acc: Any) -> Any:
    return scaled(acc) + 1


def scaled_by(factor: Any) -> Callable[[Any], Any]:
    return lambda acc: acc * factor


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("settings_of_a_user")
    made.FACTOR = 2.0  # type: ignore[attr-defined]
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_a_lambda_made_anew_at_every_call_is_traced_once(traced: Counted) -> None:
    texts = {traced(lambda acc, bias, r: functional.gelu(acc + bias) * r) for _ in range(20)}
    assert len(texts) == 1
    assert traced.number == 1
    assert {traced(lambda acc: torch.nn.functional.silu(acc) * math.pi + math.sqrt(SCALE)) for _ in range(3)}
    assert traced.number == 2


def test_what_a_closure_holds_is_seen(traced: Counted) -> None:
    for factor in (2.0, 3.0, 2.0, 3.0):
        assert traced(scaled_by(factor)) == of_constant(factor)
    assert traced.number == 2
    factor = 4.0

    def own(acc: Any) -> Any:
        return acc * factor

    assert traced(own) == of_constant(4.0)
    factor = 5.0
    assert traced(own) == of_constant(5.0)


def test_zeros_of_both_signs_integers_and_bools_are_told_apart(traced: Counted) -> None:
    assert traced(scaled_by(0.0)) == of_constant(0.0)
    assert traced(scaled_by(-0.0)) == of_constant(-0.0)
    assert traced(scaled_by(1.0)) == traced(scaled_by(1)) == of_constant(1.0)
    with pytest.raises(UsageError):
        traced(scaled_by(True))
    for _ in range(2):
        traced(scaled_by(float("nan")))
    assert traced.number == 6, "all but the second NaN are traced"


def test_a_changed_global_is_seen(traced: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert traced(scaled) == traced(scaled) == of_constant(2.0)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert traced(scaled) == of_constant(3.0)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert traced(scaled) == of_constant(2.0)
    assert traced.number == 2


def test_a_global_in_place_of_a_builtin_is_seen(traced: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(acc: Any) -> Any:
        return acc * max(2.0, 1.0)

    assert traced(end) == traced(end) == of_constant(2.0)
    monkeypatch.setitem(globals(), "max", lambda x, y: 7.0)
    assert traced(end) == of_constant(7.0)
    monkeypatch.delitem(globals(), "max")
    assert traced(end) == of_constant(2.0)
    assert traced.number == 2


def test_functions_that_it_calls_are_seen(traced: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    first = traced(by_helper)
    assert traced(by_helper) == first
    assert traced.number == 1
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    second = traced(by_helper)
    assert second != first
    monkeypatch.setitem(globals(), "scaled", lambda acc: acc - 1)
    assert traced(by_helper) not in (first, second)
    assert traced.number == 3


def test_attributes_of_modules_are_seen(traced: Counted, module: ModuleType) -> None:
    def times(acc: Any, settings: Any) -> Any:
        return acc * settings.FACTOR

    end: Any = lambda acc: times(acc, module)  # noqa: E731
    for factor in (2.0, 2.0, 3.0):
        module.FACTOR = factor  # type: ignore[attr-defined]
        assert traced(end) == of_constant(factor)
    assert traced.number == 2
    del module.FACTOR
    module.__getattr__ = lambda name: 5.0  # type: ignore[method-assign]
    assert key_of(end) is None
    assert traced(end) == of_constant(5.0)


def test_a_replaced_function_of_torch_is_seen(traced: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(acc: Any) -> Any:
        return functional.relu(acc) * 2

    first = traced(end)
    monkeypatch.setattr(functional, "relu", lambda acc: acc + 1)
    assert traced(end) != first
    monkeypatch.undo()
    assert traced(end) == first


def test_defaults_are_seen(traced: Counted) -> None:
    def end(acc: Any, factor: float = 2.0, *, shift: float = 1.0) -> Any:
        return acc * factor + shift

    first = traced(end)
    assert traced(end) == first
    end.__defaults__ = (3.0,)
    second = traced(end)
    end.__kwdefaults__ = {"shift": 4.0}
    assert len({first, second, traced(end)}) == 3
    end.__defaults__, end.__kwdefaults__ = (2.0,), {"shift": 1.0}
    assert traced(end) == first
    assert traced.number == 3


def test_partial_functions_are_taken_apart(traced: Counted) -> None:
    def end(acc: Any, factor: float, shift: float = 0.0) -> Any:
        return acc * factor + shift

    texts = [traced(partial(end, factor=f, shift=s)) for f, s in ((2.0, 1.0), (2.0, 1.0), (1.0, 2.0))]
    assert texts[0] == texts[1] != texts[2]
    assert traced.number == 2
    assert traced(partial(partial(end, shift=1.0), factor=2.0)) == texts[0]


class Scaling:
    """An object whose method is an epilogue."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def end(self, acc: Any) -> Any:
        return acc * self.factor

    def __call__(self, acc: Any) -> Any:
        return acc * self.factor


@pytest.mark.parametrize("as_function", [lambda o: o.end, lambda o: o, lambda o: lambda acc: o.end(acc)])
def test_methods_and_objects_are_traced_at_every_call(as_function: Callable[[Any], Any], traced: Counted) -> None:
    scaling = Scaling(2.0)
    assert traced(as_function(scaling)) == of_constant(2.0)
    scaling.factor = 3.0
    assert traced(as_function(scaling)) == of_constant(3.0)
    assert len(traced) == 0


def test_modules_of_torch_are_traced_at_every_call(traced: Counted) -> None:
    layer = nn.GELU()
    first = traced(layer.forward)
    layer.approximate = "tanh"
    assert traced(layer.forward) != first
    assert len(traced) == 0


def test_what_can_change_in_place_is_traced_at_every_call(traced: Counted) -> None:
    tensor, numbers, names = torch.tensor(2.0), [2.0], {"x": 2.0}
    for end, change in (
        (lambda acc: acc * float(tensor), lambda: tensor.fill_(3.0)),
        (lambda acc: acc * numbers[0], lambda: numbers.__setitem__(0, 3.0)),
        (lambda acc: acc * names["x"], lambda: names.update(x=3.0)),
        (lambda acc: acc * LIST[0], lambda: LIST.__setitem__(0, 3.0)),
        (lambda acc, numbers=numbers: acc * (numbers[0] - 1.0), lambda: numbers.__setitem__(0, 4.0)),
    ):
        assert traced(end) == of_constant(2.0)
        change()
        assert traced(end) == of_constant(3.0)
    assert len(traced) == 0
    LIST[0] = 2.0


def test_what_does_not_give_the_same_twice_is_traced_at_every_call() -> None:
    import random
    import time

    def by_import(acc: Any) -> Any:
        import settings_of_a_user  # type: ignore[import-not-found]

        return acc * settings_of_a_user.FACTOR

    def by_name(acc: Any) -> Any:
        return acc * globals()["SCALE"]

    def stores(acc: Any) -> Any:
        global SCALE
        SCALE = 2.0
        return acc

    def decorated(acc: Any) -> Any:
        return acc

    decorated.factor = 2.0  # type: ignore[attr-defined]
    ends: tuple[Callable[..., Any], ...] = (
        lambda acc: acc * random.random(),
        lambda acc: acc * time.time(),
        lambda acc: acc * torch.rand(()).item(),
        lambda acc: acc * torch.get_num_threads(),
        lambda acc: acc * decorated.factor,  # type: ignore[attr-defined]
        lambda acc: acc * getattr(math, "pi"),  # noqa: B009
        lambda acc: acc * scaled.__globals__["SCALE"],
        lambda acc: acc * undefined,  # type: ignore[name-defined]  # noqa: F821
        wraps(scaled)(lambda *args: scaled(*args)),
        *(by_import, by_name, stores),
    )
    assert [key_of(end) for end in ends] == [None] * len(ends)


def test_functions_that_call_each_other_have_a_key(traced: Counted) -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    def cube(acc: Any) -> Any:
        return power(acc, 3)

    assert traced(cube) == traced(cube) == "acc;mul 0 0;mul 0 1"
    assert traced.number == 1


def test_an_empty_cell_is_no_key() -> None:
    def end(acc: Any) -> Any:
        return acc * later

    assert key_of(end) is None
    later = 2.0
    assert key_of(end) is not None


def test_what_fails_is_traced_again(traced: Counted) -> None:
    end = scaled_by("x")
    for _ in range(2):
        with pytest.raises((UsageError, TypeError)):
            traced(end)
    assert traced.number == 2
    assert len(traced) == 0


def test_a_change_during_the_tracing_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(function: Any) -> str:
        text = trace(function).text
        monkeypatch.setitem(globals(), "SCALE", 3.0)  # as another thread would
        return text

    memory = FunctionMemo(change)
    assert memory(scaled) == of_constant(2.0)
    assert memory(scaled) == of_constant(3.0)


def test_functions_and_modules_are_not_kept_alive(traced: Counted) -> None:
    class Large:
        """Stands for what a namespace holds."""

    def made() -> tuple[FunctionType, weakref.ref[Any], weakref.ref[Any]]:
        large, space = Large(), {"factor": 2.0}
        space["large"] = large  # type: ignore[assignment]
        exec("def helper(acc): return acc * factor\ndef end(acc): return helper(acc)", space)  # noqa: S102
        return space["end"], weakref.ref(large), weakref.ref(space["helper"])  # type: ignore[return-value]

    end, large, helper = made()
    assert traced(end) == traced(end) == of_constant(2.0)
    assert traced.number == 1
    end.__globals__.clear()
    del end
    gc.collect()
    assert large() is None
    assert helper() is None


def test_the_memory_is_bounded(traced: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "CAPACITY", 4)
    for factor in range(10):
        assert traced(scaled_by(float(factor))) == of_constant(float(factor))
    assert len(traced) == 4
    assert traced(scaled_by(9.0)) == of_constant(9.0)
    assert traced.number == 10
    assert traced(scaled_by(0.0)) == of_constant(0.0)
    assert traced.number == 11, "the oldest went first"
    for number in range(10):
        space: dict[str, Any] = {}
        exec(f"def end(acc): return acc * {float(number)}", space)  # noqa: S102
        assert traced(space["end"]) == of_constant(float(number))


def test_threads_get_their_own_functions() -> None:
    memory, wrong = FunctionMemo(lambda function: trace(function).text), []

    def work(seed: int) -> None:
        for number in range(200):
            factor = float((seed + number) % 7)
            if memory(scaled_by(factor)) != of_constant(factor):
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(memory) == 7
