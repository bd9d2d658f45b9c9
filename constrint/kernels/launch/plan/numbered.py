"""Plans of calls with factors: numbers that change from call to call, so that no plan may hold them.

A `PlanTable` looks a call up by its tensors and one hashable object. The numbers of a `NumberedTable` belong to
neither: alpha of an update may be another one in every iteration, and all of them are one signature. A plan is here a
function of the numbers and the call's tensors, which launches a kernel that was prepared for the signature.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.launch.plan.prepared import PreparedLaunch
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall
from constrint.kernels.launch.plan.table import NO_PLAN, Build, PlanTable, launches_are_seen

Numbers = tuple[float, ...]
#: Runs a call: takes its numbers, then its tensors.
Run = Callable[..., Any]


class NumberedTable(PlanTable):
    """An operation's plans by signature, whose functions also take numbers that are in no signature.

    Args:
        name: The operation's name.
        build: Decides about a call and states what runs it, as `stated_call` does.
        prepare: Makes the function of a signature from what `build` has stated and the first call's tensors.
    """

    def __init__(
        self, name: str, build: Build, prepare: Callable[[Mapping[str, Any], tuple[Tensor | None, ...]], Run]
    ) -> None:
        super().__init__(name, build, torch.get_float32_matmul_precision, self._function)
        self._prepare = prepare
        self._held = threading.local()

    def call_with(self, numbers: Numbers, extra: Hashable, *tensors: Tensor | None) -> Any:
        """`PlanTable.call` with the numbers of this call."""
        self._held.numbers = numbers
        return self.call(False, extra, *tensors)

    def learn_with(self, numbers: Numbers, extra: Hashable, *tensors: Tensor | None) -> Any:
        """`PlanTable.learn` with the numbers of this call."""
        self._held.numbers = numbers
        return self.learn(extra, *tensors)

    def run_with(self, numbers: Numbers, extra: Hashable, *tensors: Tensor | None) -> Any:
        """`PlanTable.run` with the numbers of this call; without a plan what `build` states runs, too.

        Raises:
            ConstrintError: From `build`.
            NotPlannedError: From `build`, where nothing of this package runs the call.
        """
        self._held.numbers = numbers
        result = NO_PLAN if launches_are_seen() else self.run(extra, *tensors)
        if result is NO_PLAN:
            stated = self.build(tensors, extra).recipe.function
            assert stated is not None  # every call of such a table states a function
            result = self._prepare(stated, tensors)(numbers, *tensors)
        return result

    def _function(self, stated: Mapping[str, Any]) -> Run:
        run: Run | None = None

        def function(*tensors: Tensor | None) -> Any:
            nonlocal run
            numbers = self._held.numbers
            if run is None:
                run = self._prepare(stated, tensors)
            return run(numbers, *tensors)

        return function


def stated_call(kernel: str, config: Mapping[str, int], note: str, **more: Any) -> RecordedCall:
    """The recipe of a call that a function runs: `prepare` of the table takes kernel, config and more, by name."""
    return RecordedCall(Recipe([], [], 1, 0, note, {"kernel": kernel, "config": dict(config), **more}), [])


class NamedLaunch:
    """A prepared launch of a Triton kernel whose tensors and numbers are given by name; the others stay as they were.

    Args:
        launch: The `TritonLaunch` of the first call.
        changing: Names of the arguments that every call gives, in the order in which it gives them.
    """

    def __init__(self, launch: Any, changing: tuple[str, ...]) -> None:
        self._launch = PreparedLaunch(launch.function, launch.grid, launch.arguments, launch.options)
        names = [param.name for param in launch.function.params if not param.is_constexpr]
        values = launch.values()
        self._values = [None if name in changing else values[name] for name in names]
        self._places = tuple(names.index(name) for name in changing)

    def __call__(self, *values: Any) -> None:
        """Launch on the current stream of the kernel's device."""
        arguments = self._values.copy()
        for place, value in zip(self._places, values, strict=True):
            arguments[place] = value
        self._launch(*arguments)
