"""The choice for the device of a call: the first of the model's that compiles, fits and does not spill.

It does not go through `choose.decide`: a `Request` names a registered operation by sizes, while this space belongs to
one decorator, and its candidates are compiled with the arguments of the call.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from constrint.errors import InfeasibleError, UnsupportedError
from constrint.kernels.launch.autotune.call import Call
from constrint.kernels.launch.look import SpilledError, check_spills
from constrint.kernels.launch.policy import PASS_FAILED
from constrint.select.candidate import Candidate
from constrint.select.spec import KernelSpec

#: Candidates that may spill before the one that spills least is taken.
MOST_SPILLING = 4


def first_that_runs(call: Call, spec: KernelSpec, candidates: Sequence[Candidate]) -> Candidate:
    """The model's first choice, or the next one where the compiler or the device refuses it, or it spills.

    Raises:
        InfeasibleError: When all are refused; says why the last one was.
    """
    if device_of(call) == "cpu":
        return candidates[0]
    from triton.errors import TritonError

    name = call.signature.name
    spilling: list[tuple[int, Candidate]] = []
    refused: Exception | None = None
    for candidate in candidates:
        values = spec.values_of(candidate.config)
        try:
            _look(call.signature.function.run(*call.args, grid=call.grid, warmup=True, **call.kwargs, **values))
        except SpilledError as error:
            spilling.append((error.compiled.spill_bytes, candidate))
            if len(spilling) == MOST_SPILLING:
                break
        except (TritonError, RuntimeError) as error:
            if not isinstance(error, TritonError) and PASS_FAILED not in str(error):
                raise
            refused = error
            message = f"{name}: {dict(values)} is refused and the next choice taken: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=6)
        else:
            return candidate
    if spilling:
        return min(spilling, key=lambda one: one[0])[1]
    raise InfeasibleError(
        f"{name}: all {len(candidates)} configurations that were compiled are refused, the last one because of "
        f"{type(refused).__name__}: {refused}. State `registers` and `smem_bytes` of the space."
    )


def _look(kernel: Any) -> None:
    """Raise where a compiled kernel does not fit the device, or spills."""
    if hasattr(kernel, "result"):
        kernel = kernel.result()
    if hasattr(kernel, "_init_handles"):
        kernel._init_handles()
        check_spills([kernel])


def device_of(call: Call) -> str:
    """The device that a call runs on: `cpu` in Triton's interpreter.

    Raises:
        UnsupportedError: For tensors that no kernel runs on.
    """
    device = call.device
    if device is not None and device.type not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"{call.signature.name}: a kernel runs on tensors of a GPU, got the device {device}; `ranking` and "
            "`compile` take others."
        )
    return "cpu" if device is None else str(device)


def on_device(call: Call) -> AbstractContextManager[Any]:
    """Makes the device of a call's tensors the current one."""
    import torch

    return nullcontext() if device_of(call) == "cpu" else torch.cuda.device(call.device)


def is_captured(call: Call) -> bool:
    """Whether launches go into a CUDA graph, where nothing can be measured."""
    import torch

    return device_of(call) != "cpu" and torch.cuda.is_current_stream_capturing()
