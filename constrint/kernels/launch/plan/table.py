"""Tables of launch plans: the launches of an operation for every signature that it has seen.

The first call of a signature is checked, a configuration is chosen, and its kernels are compiled. Later calls are one
look-up, the allocation of the results, and the launch. A signature consists of the tensors' shapes, strides, dtypes,
devices and addresses modulo 128 bytes, and of one more hashable object. Recipes are stored on disk, so that the next
process neither chooses nor compiles.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from constrint import cache
from constrint.core import compiled
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.plan.direct import ADDRESS_STEP, PlainTable, PlanEntry
from constrint.kernels.launch.plan.driver import driver, fast_allocator, reads_tensors
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall, extent, plan_of
from constrint.kernels.launch.plan.scratch import COUNTERS
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.trial import CallTrial, no_trials, rounds_of
from constrint.select.toolchain import compilers
from constrint.select.winners import stamp, when_reloaded

#: Most signatures of a table; the least recently used is dropped first.
CAPACITY = 4096
#: Results of `PlanTable.call` in place of the call's: it has no plan; autograd has to record it; its signature is new.
NO_PLAN, WANTS_GRAD, IS_NEW = None, True, False

#: Records the launches of a call whose tensors do not overlap.
Build = Callable[[tuple[Any, ...], Any], RecordedCall]
#: Returns a function of a call's tensors for the arguments in a recipe.
FunctionOf = Callable[[Mapping[str, Any]], Callable[..., Any]]


class TableState(NamedTuple):
    """The entries of a table, and the hits and misses of its look-ups."""

    entries: int
    hits: int
    misses: int


class PlanTable:
    """An operation's plans, by signature.

    Args:
        name: The operation's name.
        build: Records the recipe of a call; raises NotPlannedError where the call cannot be planned.
        precision: Returns torch's precision settings that products of 32-bit floats depend on; None for an operation
            that depends on none.
        function_of: Returns the function of a recipe that has a function instead of launches; with a true attribute
            `is_open` it is torch's own, which runs whatever listens.
        front: Table of the same calls without gradients: where autograd records a call of it, a function of this table
            runs it, and else it is `WANTS_GRAD`.
    """

    def __init__(
        self,
        name: str,
        build: Build,
        precision: Callable[[], Hashable] | None,
        function_of: FunctionOf | None = None,
        front: PlanTable | None = None,
    ) -> None:
        self.name = name
        self.front = front
        self.build = build
        self.precision = precision
        self.function_of = function_of
        self._table: Any = None
        self._plain: PlainTable | None = None
        #: Trials that have begun to wait, or run.
        self.num_trials = 0
        #: Runs a call whose signature has a plan and returns its results; else `NO_PLAN`, `WANTS_GRAD` or `IS_NEW`.
        #: Takes `is_inner`, whether the caller has already checked for gradients and listeners; `extra`, everything
        #: beside its tensors that the call depends on; and the call's tensors, the first one there is before factors:
        #: floats, whose values are in no signature. None for those that it lacks.
        self.call: Callable[..., Any] = self._first_call
        _TABLES.add(self)

    def _first_call(self, is_inner: bool, extra: Hashable, *tensors: Tensor | float | None) -> Any:
        """`call` until the table is open: from then on callers reach the core without a Python function between."""
        if self._table is None and self._plain is None:
            is_on_gpu = any(getattr(tensor, "is_cuda", False) for tensor in tensors)
            if not is_on_gpu or not self._open():
                return NO_PLAN
        if self._plain is not None:
            self.call = self._plain.call
        else:
            self.call = partial(compiled.table_call, self._table)  # type: ignore[union-attr]
        return self.call(is_inner, extra, *tensors)

    def run(self, extra: Hashable, *tensors: Tensor | float | None) -> Any:
        """Run a call as an operator's kernel and record its plan where it is new; None where there is no plan.

        Observers of operators have already seen the call, so that only observers of launches and memory are checked.
        """
        if launches_are_seen():
            return NO_PLAN
        result = self.call(True, extra, *tensors)
        if result is not IS_NEW:
            return result
        with no_trials():  # the call may come from a compiled graph
            return self.learn(extra, *tensors)

    def learn(self, extra: Hashable, *tensors: Tensor | float | None) -> Any:
        """Record the plan of a new call and run it; None where calls of its signature have no plan.

        Raises:
            ConstrintError: From `build`, for arguments that do not go together.
        """
        device = next(tensor.device for tensor in tensors if isinstance(tensor, Tensor))
        with torch.cuda.device(device):
            if self._plain is None:
                self._learn_recipe(extra, tensors)
            else:
                self._plain.insert(extra, tensors, self._entry(extra, tensors))
            result = self.call(True, extra, *tensors)
        return NO_PLAN if result is IS_NEW else result

    def insert(self, extra: Hashable, function: Callable[..., Any] | None, *tensors: Tensor | float | None) -> None:
        """Let a function run calls of a new signature, in this process; None: such calls have no plan."""
        if self._plain is None:
            self._insert(extra, tensors, None, function)
        else:
            self._plain.insert(extra, tensors, PlanEntry([], (), 0, 0, torch.cuda.current_device(), function))

    def note(self, extra: Hashable, *tensors: Tensor | float | None) -> str:
        """The note of a call's recorded recipe; empty where none is on disk."""
        made = self._stored(self._key(extra, tensors), extra, tensors)
        return "" if made is None else made.recipe.note

    def clear(self) -> None:
        """Forget every plan; recipes on disk stay."""
        self.num_trials = 0
        if self._plain is not None:
            self._plain.clear()
        elif self._table is not None and compiled is not None:
            compiled.table_clear(self._table)

    def state(self) -> TableState:
        """Return the entries of the table, and the hits and misses of its look-ups."""
        if self._plain is not None:
            return TableState(*self._plain.state())
        if self._table is None or compiled is None:
            return TableState(0, 0, 0)
        return TableState(*compiled.table_state(self._table))

    def _open(self) -> bool:
        """Create the table at the first call on a GPU; False where torch finds no GPU."""
        if not torch.cuda.is_available():
            return False
        if compiled is not None and driver() is not None and reads_tensors():
            facts = fast_allocator(), COUNTERS.address, listeners(), self.precision, torch.is_grad_enabled
            self._table = compiled.table(CAPACITY, *facts)
            if self.front is not None and self.front._table is not None and hasattr(compiled, "table_record"):
                compiled.table_record(self.front._table, self._table)
        else:
            self._plain = PlainTable(CAPACITY, listeners(), self.precision)
        return True

    def _learn_recipe(self, extra: Hashable, tensors: tuple[Any, ...]) -> None:
        key = self._key(extra, tensors)
        for source in (self._stored, self._recorded):
            try:
                made = source(key, extra, tensors)
                plan = None if made is None else self._plan(made.recipe, len(tensors))
            except NotPlannedError:
                continue
            if made is not None and plan is not None:
                if made.rivals is None or not self._try(key, extra, tensors, made, plan):
                    self._insert(extra, tensors, made.recipe, plan)
                    if made.rivals is not None:
                        cache.store_soon(self.name, key, msgspec.msgpack.encode(made.recipe))
                return
        self._insert(extra, tensors, None, None)

    def _insert(self, extra: Hashable, tensors: tuple[Any, ...], recipe: Recipe | None, plan: Any) -> None:
        """Insert a plan of the core or a function; None where calls of the signature have no plan."""
        outputs: tuple[Any, ...] = ()
        results, counters = 0, 0
        if recipe is not None and plan is not None and recipe.function is None:
            outputs, results, counters = outputs_of(recipe), recipe.num_results, recipe.num_counters
        assert compiled is not None
        is_open = (True,) if getattr(plan, "is_open", False) else ()
        compiled.table_insert(self._table, extra, tensors, plan, outputs, results, counters, *is_open)

    def _try(self, key: bytes, extra: Hashable, tensors: tuple[Any, ...], made: RecordedCall, plan: Any) -> bool:
        """Insert a trial of a recorded call beside its rivals, each under a key of its own; False without a rival.

        The recipe of the fastest candidate is stored on disk when the trial is over.
        """
        assert made.rivals is not None
        plans, places = [(made.recipe, plan)], [0]
        for place, recipe in enumerate(made.rivals.recipes, 1):
            with suppress(NotPlannedError):
                plans.append((recipe, self._plan(recipe, len(tensors))))
                places.append(place)
        if len(plans) == 1 or not hasattr(compiled, "table_drop"):
            return False
        keys = [(_TRIAL, place, extra) for place in range(len(plans))]
        for under, (recipe, each) in zip(keys, plans, strict=True):
            self._insert(under, tensors, recipe, each)
        rivals = made.rivals

        def settle(of_call: tuple[Any, ...], seconds: Sequence[float], best: int) -> None:
            assert compiled is not None
            self.num_trials = max(0, self.num_trials - 1)
            for under in (*keys, extra):
                compiled.table_drop(self._table, under, of_call)
            labels = [rivals.labels[place] for place in places]
            recipe = msgspec.structs.replace(plans[best][0], note=_note_of(labels, seconds, best))
            self._insert(extra, of_call, recipe, plans[best][1])
            cache.store_soon(self.name, key, msgspec.msgpack.encode(recipe))
            every = dict(zip(places, seconds, strict=True))
            rivals.settled([every.get(place, float("inf")) for place in range(len(rivals.labels))], places[best])

        runs = [partial(self.call, True, under) for under in keys]
        standards = [at for at, place in enumerate(places) if place in rivals.standards]
        rounds = rounds_of([rivals.seconds[place] for place in places])
        preferred = places.index(rivals.preferred) if rivals.preferred in places else 0
        trial = CallTrial(
            runs, rounds, settle, None, standards, rivals.timed, rivals.is_ready, preferred, rivals.least_gain
        )
        self._insert(extra, tensors, None, trial)
        self.num_trials += 1
        return True

    def _plan(self, recipe: Recipe, num_tensors: int) -> Any:
        """The core's plan of a recipe, or the function that runs the call instead.

        Raises:
            NotPlannedError: Where there is neither plan nor function.
        """
        if recipe.function is None:
            return plan_of(recipe, num_tensors)
        if self.function_of is None:
            raise NotPlannedError(f"{self.name} has no functions")
        return self.function_of(recipe.function)

    def _entry(self, extra: Hashable, tensors: tuple[Any, ...]) -> PlanEntry:
        index = torch.cuda.current_device()
        try:
            recipe, direct, _ = self.build(apart(tensors), extra)
        except NotPlannedError:
            return PlanEntry([], (), 0, 0, index)
        counts = recipe.num_results, recipe.num_counters
        function = None if recipe.function is None else self._plan(recipe, len(tensors))
        return PlanEntry(direct, outputs_of(recipe), *counts, index, function)

    def _key(self, extra: Hashable, tensors: tuple[Any, ...]) -> bytes:
        device = next(tensor.device for tensor in tensors if isinstance(tensor, Tensor))
        seen = [
            None
            if tensor is None
            else "factor"
            if isinstance(tensor, float)
            else (*tensor.shape, *tensor.stride(), str(tensor.dtype), tensor.data_ptr() % ADDRESS_STEP)
            for tensor in tensors
        ]
        precision = None if self.precision is None else self.precision()
        return repr(
            (self.name, seen, extra, precision, _device_facts(device.index), compilers(), _tables(device))
        ).encode()

    def _stored(self, key: bytes, extra: Hashable, tensors: tuple[Any, ...]) -> RecordedCall | None:
        data = cache.load(self.name, key)
        if data is None:
            return None
        try:
            return RecordedCall(msgspec.msgpack.decode(data, type=Recipe), [])
        except msgspec.MsgspecError:
            return None

    def _recorded(self, key: bytes, extra: Hashable, tensors: tuple[Any, ...]) -> RecordedCall:
        made = self.build(apart(tensors), extra)
        if made.rivals is None:
            cache.store_soon(self.name, key, msgspec.msgpack.encode(made.recipe))
        return made


#: Marks the keys of a trial's candidates.
_TRIAL = "trial"


def _note_of(labels: Sequence[str], seconds: Sequence[float], best: int) -> str:
    """The label of a trial's fastest candidate with the measured times of all."""
    others = [f"{labels[i]} {1e6 * seconds[i]:.1f} us" for i in range(len(labels)) if i != best]
    return f"{labels[best]}, measured here: {1e6 * seconds[best]:.1f} us; " + "; ".join(others)


_TABLES: weakref.WeakSet[PlanTable] = weakref.WeakSet()


@when_reloaded
def clear_plans() -> None:
    """Forget the plans of all operations: the next calls choose again."""
    for table in _TABLES:
        table.clear()


def running_trials(*tables: PlanTable) -> int:
    """Trials of these tables that are not over."""
    return sum(table.num_trials for table in tables)


def plan_states() -> dict[str, TableState]:
    """Return the state of every operation's table, by name."""
    return {table.name: table.state() for table in _TABLES}


def outputs_of(recipe: Recipe) -> tuple[Any, ...]:
    """Return the allocations of a call as the allocator takes them."""
    return tuple((tuple(shape), tuple(strides), getattr(torch, dtype)) for shape, strides, dtype in recipe.outputs)


def apart(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace tensors that overlap others in memory by tensors of equal layout in memory of their own.

    The address of a kernel's argument has to identify one tensor of the call.
    """
    separate: list[Any] = []
    taken: list[tuple[int, int]] = []
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            start, end = extent(tensor)
            if any(start < other_end and other_start < end for other_start, other_end in taken):
                tensor = _stand_in(tensor)
                start, end = extent(tensor)
            taken.append((start, end))
        separate.append(tensor)
    return tuple(separate)


def _stand_in(tensor: Tensor) -> Tensor:
    start, end = extent(tensor)
    memory = torch.empty(end - start + ADDRESS_STEP, dtype=torch.uint8, device=tensor.device)
    skipped = (start - memory.data_ptr()) % ADDRESS_STEP
    whole = memory[skipped : skipped + end - start]
    return whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def launches_are_seen() -> bool:
    """Whether hooks of Triton's listen to launches, or torch fills memory before its use (deterministic algorithms)."""
    knobs = getattr(sys.modules.get("triton.knobs"), "runtime", None)
    hooks = getattr(knobs, "launch_enter_hook", None), getattr(knobs, "launch_exit_hook", None)
    return any(is_heard(hook) for hook in hooks) or torch.are_deterministic_algorithms_enabled()


def is_heard(hook: Any) -> bool:
    """Whether one of Triton's launch hooks has a listener."""
    return hook is not None and bool(getattr(hook, "calls", True))


def is_transformed() -> bool:
    """Whether a transform of torch.func or forward-mode AD takes computations apart.

    These know torch's own operators, so plain PyTorch runs then: another operator would need a rule for each of them,
    and forward-mode AD takes an operator without one for a constant.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _is_followed() -> bool:
    """Whether forward-mode AD is on, or a mode other than that of torch.set_default_device sees torch's functions."""
    if forward_ad._current_level >= 0:
        return True
    number = torch._C._len_torch_function_stack()
    return number > 1 or (number == 1 and type(torch._C._get_function_stack_at(0)) is not DeviceContext)


@lru_cache(maxsize=1)
def listeners() -> tuple[Callable[[], Any], ...]:
    """Functions that are true while calls are traced, transformed or otherwise observed, and no plan runs."""
    c = torch._C
    return (
        c._len_torch_dispatch_stack,
        _is_followed,
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
    """Return the stamp of a device's tables of measured winners; other tables may lead to other choices."""
    gpu = gpu_of(device)
    return "" if gpu is None else stamp(gpu)
