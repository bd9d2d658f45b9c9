"""Tables of launch plans: what an operation does for a call of a signature that it has seen.

The first call of a signature is checked, chosen for and compiled; later ones are one look-up, the results' memory, and
the launch. A signature is the shapes, strides, dtypes, devices and addresses (up to 128 bytes) of the tensors, and one
more object. Recipes are kept on disk, so that the next process neither chooses nor compiles.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.utils._device import DeviceContext

from constrint import cache
from constrint.core import compiled
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.plan.direct import ADDRESS_STEP, Entry, PlainTable
from constrint.kernels.launch.plan.driver import driver, fast_allocator, reads_tensors
from constrint.kernels.launch.plan.errors import NotPlannedError
from constrint.kernels.launch.plan.recipe import Made, Recipe, extent, plan_of
from constrint.kernels.launch.plan.scratch import COUNTERS
from constrint.select.compiled import compilers
from constrint.select.winners import stamp, when_reloaded

#: Signatures that a table keeps, the least recently used go first.
CAPACITY = 4096
#: Answers of `PlanTable.call`: such calls have no plan; gradients are to be recorded; the call is new.
NO_PLAN, WANTS_GRAD, IS_NEW = None, True, False

#: Gives the launches of a call; its tensors do not overlap.
Build = Callable[[tuple[Tensor | None, ...], Any], Made]
#: Gives a function of a call's tensors, of what a recipe says.
FunctionOf = Callable[[Mapping[str, Any]], Callable[..., Any]]


class TableState(NamedTuple):
    """What a table holds and how often it was asked."""

    entries: int
    hits: int
    misses: int


class PlanTable:
    """An operation's plans.

    Args:
        name: The operation's.
        build: Gives the recipe of a call; raises NotPlannedError where it goes the long way.
        precision: What 32-bit floating-point products depend on besides the tensors.
        function_of: Makes the function of a recipe that has one instead of launches.
    """

    def __init__(
        self, name: str, build: Build, precision: Callable[[], Hashable], function_of: FunctionOf | None = None
    ) -> None:
        self.name = name
        self.build = build
        self.precision = precision
        self.function_of = function_of
        self._table: Any = None
        self._plain: PlainTable | None = None
        _TABLES.add(self)

    def call(self, is_inner: bool, extra: Hashable, *tensors: Tensor | None) -> Any:
        """The results of a call that was seen before, or one of the three answers above.

        Args:
            is_inner: Neither gradients nor listeners are asked for: the caller has.
            extra: What the call depends on besides its tensors.
            tensors: The call's tensors; None for those that it has not.
        """
        table = self._table
        if table is None:
            if self._plain is None:
                is_on_gpu = any(getattr(tensor, "is_cuda", False) for tensor in tensors)
                if not is_on_gpu or not self._open():
                    return NO_PLAN
            if self._plain is not None:
                return self._plain.call(is_inner, extra, *tensors)
            table = self._table
        return compiled.table_call(table, is_inner, extra, *tensors)  # type: ignore[union-attr]

    def run(self, extra: Hashable, *tensors: Tensor | None) -> Any:
        """As an operator's kernel: the results, learnt where the call is new; None where there is no plan.

        Whatever looks at operators has seen the call; only who looks at launches and at memory is asked for.
        """
        if launches_are_seen():
            return NO_PLAN
        made = self.call(True, extra, *tensors)
        return self.learn(extra, *tensors) if made is IS_NEW else made

    def learn(self, extra: Hashable, *tensors: Tensor | None) -> Any:
        """Make the plan of a new call and run it; None where such calls have no plan.

        Raises:
            ConstrintError: What `build` raises for arguments that do not go together.
        """
        device = next(tensor.device for tensor in tensors if tensor is not None)
        with torch.cuda.device(device):
            if self._plain is None:
                self._learn_recipe(extra, tensors)
            else:
                self._plain.insert(extra, tensors, self._entry(extra, tensors))
            made = self.call(True, extra, *tensors)
        return NO_PLAN if made is IS_NEW else made

    def note(self, extra: Hashable, *tensors: Tensor | None) -> str:
        """The note of a call's recorded recipe; empty where none is on disk."""
        recipe = self._kept(self._key(extra, tensors), extra, tensors)
        return "" if recipe is None else recipe.note

    def clear(self) -> None:
        """Forget every plan; recipes on disk stay."""
        if self._plain is not None:
            self._plain.clear()
        elif self._table is not None and compiled is not None:
            compiled.table_clear(self._table)

    def state(self) -> TableState:
        """What the table holds and how often it was asked."""
        if self._plain is not None:
            return TableState(*self._plain.state())
        if self._table is None or compiled is None:
            return TableState(0, 0, 0)
        return TableState(*compiled.table_state(self._table))

    def _open(self) -> bool:
        """Make the table at the first call on a GPU; False for tensors on a GPU that is not there."""
        if not torch.cuda.is_available():
            return False
        if compiled is not None and driver() is not None and reads_tensors():
            facts = fast_allocator(), COUNTERS.address, listeners(), self.precision, torch.is_grad_enabled
            self._table = compiled.table(CAPACITY, *facts)
        else:
            self._plain = PlainTable(CAPACITY, listeners(), self.precision)
        return True

    def _learn_recipe(self, extra: Hashable, tensors: tuple[Tensor | None, ...]) -> None:
        recipe, plan = None, None
        key = self._key(extra, tensors)
        for source in (self._kept, self._built):
            try:
                recipe = source(key, extra, tensors)
                plan = None if recipe is None else self._plan(recipe, len(tensors))
            except NotPlannedError:
                continue
            if plan is not None:
                break
        outputs: tuple[Any, ...] = ()
        results, counters = 0, 0
        if recipe is not None and plan is not None and recipe.function is None:
            outputs, results, counters = outputs_of(recipe), recipe.num_results, recipe.num_counters
        assert compiled is not None
        compiled.table_insert(self._table, extra, tensors, plan, outputs, results, counters)

    def _plan(self, recipe: Recipe, num_tensors: int) -> Any:
        """The core's plan, or the function that is called instead.

        Raises:
            NotPlannedError: Where there is neither.
        """
        if recipe.function is None:
            return plan_of(recipe, num_tensors)
        if self.function_of is None:
            raise NotPlannedError(f"{self.name} has no functions")
        return self.function_of(recipe.function)

    def _entry(self, extra: Hashable, tensors: tuple[Tensor | None, ...]) -> Entry:
        index = torch.cuda.current_device()
        try:
            recipe, direct = self.build(apart(tensors), extra)
        except NotPlannedError:
            return Entry([], (), 0, 0, index)
        counts = recipe.num_results, recipe.num_counters
        function = None if recipe.function is None else self._plan(recipe, len(tensors))
        return Entry(direct, outputs_of(recipe), *counts, index, function)

    def _key(self, extra: Hashable, tensors: tuple[Tensor | None, ...]) -> bytes:
        device = next(tensor.device for tensor in tensors if tensor is not None)
        seen = [
            None
            if tensor is None
            else (*tensor.shape, *tensor.stride(), str(tensor.dtype), tensor.data_ptr() % ADDRESS_STEP)
            for tensor in tensors
        ]
        return repr(
            (self.name, seen, extra, self.precision(), _device_facts(device.index), compilers(), _tables(device))
        ).encode()

    def _kept(self, key: bytes, extra: Hashable, tensors: tuple[Tensor | None, ...]) -> Recipe | None:
        data = cache.load(self.name, key)
        if data is None:
            return None
        try:
            return msgspec.msgpack.decode(data, type=Recipe)
        except msgspec.MsgspecError:
            return None

    def _built(self, key: bytes, extra: Hashable, tensors: tuple[Tensor | None, ...]) -> Recipe:
        recipe = self.build(apart(tensors), extra).recipe
        cache.store_soon(self.name, key, msgspec.msgpack.encode(recipe))
        return recipe


_TABLES: weakref.WeakSet[PlanTable] = weakref.WeakSet()


@when_reloaded
def clear_plans() -> None:
    """Forget the plans of all operations: the next calls choose again."""
    for table in _TABLES:
        table.clear()


def plan_states() -> dict[str, TableState]:
    """What the tables of all operations hold, by name."""
    return {table.name: table.state() for table in _TABLES}


def outputs_of(recipe: Recipe) -> tuple[Any, ...]:
    """What a call allocates, as the allocator takes it."""
    return tuple((tuple(shape), tuple(strides), getattr(torch, dtype)) for shape, strides, dtype in recipe.outputs)


def apart(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """The same tensors; those that overlap others in memory are replaced by memory of their own, laid out alike.

    What an argument of a kernel belongs to is told by its address.
    """
    kept: list[Tensor | None] = []
    taken: list[tuple[int, int]] = []
    for tensor in tensors:
        if tensor is not None:
            start, end = extent(tensor)
            if any(start < other_end and other_start < end for other_start, other_end in taken):
                tensor = _stand_in(tensor)
                start, end = extent(tensor)
            taken.append((start, end))
        kept.append(tensor)
    return tuple(kept)


def _stand_in(tensor: Tensor) -> Tensor:
    start, end = extent(tensor)
    memory = torch.empty(end - start + ADDRESS_STEP, dtype=torch.uint8, device=tensor.device)
    skipped = (start - memory.data_ptr()) % ADDRESS_STEP
    whole = memory[skipped : skipped + end - start]
    return whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def launches_are_seen() -> bool:
    """Whether hooks of Triton's want launches, or torch is to fill memory before it is used."""
    knobs = getattr(sys.modules.get("triton.knobs"), "runtime", None)
    hooks = getattr(knobs, "launch_enter_hook", None), getattr(knobs, "launch_exit_hook", None)
    return any(is_heard(hook) for hook in hooks) or torch.are_deterministic_algorithms_enabled()


def is_heard(hook: Any) -> bool:
    """Whether somebody listens to one of Triton's hooks of launches."""
    return hook is not None and bool(getattr(hook, "calls", True))


def _has_function_modes() -> bool:
    """Whether a mode sees calls of torch's functions, other than that of torch.set_default_device."""
    number = torch._C._len_torch_function_stack()
    return number > 1 or (number == 1 and type(torch._C._get_function_stack_at(0)) is not DeviceContext)


@lru_cache(maxsize=1)
def listeners() -> tuple[Callable[[], Any], ...]:
    """What tells that a call is traced, transformed, recorded or otherwise observed: then it takes the long way."""
    c = torch._C
    return (
        c._len_torch_dispatch_stack,
        _has_function_modes,
        c._are_functorch_transforms_active,
        c._get_tracing_state,
        c._autograd._profiler_enabled,
        c._get_deterministic_algorithms,
    )


@lru_cache(maxsize=64)
def _device_facts(index: int) -> tuple[Any, ...]:
    properties = torch.cuda.get_device_properties(index)
    target = getattr(properties, "gcnArchName", "") or (properties.major, properties.minor)
    return properties.name, target, properties.multi_processor_count, properties.total_memory >> 30


def _tables(device: torch.device) -> str:
    """Which tables of measured winners hold for a device: with others, others are chosen."""
    gpu = gpu_of(device)
    return "" if gpu is None else stamp(gpu)
