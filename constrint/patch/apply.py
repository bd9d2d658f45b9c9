"""`patch`: the walk through a model that applies the rules. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from constrint.errors import UsageError
from constrint.patch.report import Left, PatchReport, Replaced
from constrint.patch.rules import RULES, Change


def patch(
    model: nn.Module, *, linear: bool = True, activations: bool = True, recurrent: bool = True
) -> PatchReport:  # fmt: skip
    """Let a model's modules run by the kernels of this package, in place.

    Modules change their class: parameters, buffers, hooks, tied weights and the names of the state dict stay the same
    objects. What a module computes stays the same within the rounding of its dtype. Under torch.compile linear layers
    are torch's own, so that inductor fuses what surrounds them.

    Args:
        model: The model, on any device.
        linear: Replace `torch.nn.Linear`, and GPT-2's `Conv1D`.
        activations: Let linear layers in a `torch.nn.Sequential`, or in any module that calls its children one after
            the other, end in the activation that follows them, alone or as a gated pair, and let the gate of
            transformers' layers of experts be one pass.
        recurrent: Replace `torch.nn.LSTM`, `GRU` and `RNN`, and `LSTMCell`, `GRUCell` and `RNNCell`.

    Returns:
        What was replaced, and what was left and why. `report.undo()`, or the end of a `with` block, takes it back.

    Raises:
        UsageError: When the model is no `torch.nn.Module`.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"constrint.patch takes a torch.nn.Module, got {type(model).__name__}.")
    is_on = {"linear": linear, "activations": activations, "recurrent": recurrent}
    replaced: list[Replaced] = []
    left: list[Left] = []
    changes: list[tuple[nn.Module, Change]] = []
    for name, module in list(_modules(model)):
        for rule in RULES:
            verdict = rule.verdict(module) if is_on[rule.option] else None
            kind = type(module).__name__
            if isinstance(verdict, str):
                left.append(Left(name, kind, verdict))
            elif verdict is not None:
                changes.append((module, verdict))
                replaced.append(Replaced(name, kind, _full_name(verdict.after), verdict.gain))
    undoing = [_apply(module, change) for module, change in changes]
    return PatchReport(replaced, left, undoing)


def _modules(model: nn.Module, name: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """All modules once, with their first names; none inside a scripted one, whose code is compiled already."""
    seen = set() if seen is None else seen
    if id(model) in seen or isinstance(model, torch.jit.ScriptModule):
        return
    seen.add(id(model))
    yield name, model
    for child_name, child in model.named_children():
        yield from _modules(child, f"{name}.{child_name}" if name else child_name, seen)


def _apply(module: nn.Module, change: Change) -> Callable[[], None]:
    before = type(module)
    change.prepare(module)
    module.__class__ = change.after
    return partial(_undo, module, before, change)


def _undo(module: nn.Module, before: type[nn.Module], change: Change) -> None:
    if type(module) is not change.after:
        return  # somebody changed it since, on purpose
    module.__class__ = before
    change.restore(module)


def _full_name(kind: type[nn.Module]) -> str:
    return f"constrint.{kind.__module__.split('.')[1]}.{kind.__name__}"
