"""The stages of a module's forward pass, read off a trace: children one after the other, activations, gated pairs.

A trace runs the module's own code on a symbol in place of the input; children are not entered. Whatever does more than
call children on each other's results, multiply two of these, or look at dtypes is not understood, and stays as it is.
Needs torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from constrint.nn.activations import activation_of
from constrint.nn.mlp import Stage

#: Whether a child of a module is a linear layer.
IsLayer = Callable[[Any], bool]
#: Multiplications of two tensors in a trace.
_PRODUCTS = (operator.mul, torch.mul)


def stages_of(module: nn.Module, is_layer: IsLayer) -> tuple[Stage, ...]:
    """The stages, at least one of which is more than one child; empty where the forward pass is not understood.

    Args:
        module: A module with children of `layers` and of activations.
        is_layer: Whether a child is a linear layer, which may end in an activation.
    """
    children = module._modules
    if not any(is_layer(child) for child in children.values()):
        return ()
    if not any(child is not None and activation_of(child) for child in children.values()):
        return ()
    graphs = [_graph(module, is_training) for is_training in (False, True)]
    if graphs[0] is None or graphs[1] is None or str(graphs[0]) != str(graphs[1]):
        return ()
    found = _stages(graphs[0], dict(children), is_layer)
    return found if found and any(stage.activation for stage in found) else ()


class _TracedInput(fx.Proxy):
    """A symbol that knows its dtype: that of the module's weights."""

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = self.tracer.dtype  # type: ignore[attr-defined]
        return found


class _Tracer(fx.Tracer):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Children are not entered."""
        return True

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """A symbol for a node."""
        return _TracedInput(node, self)


def _graph(module: Any, is_training: bool) -> fx.Graph | None:
    """The trace of a forward pass in a mode of the module itself; None where its code does not run on symbols."""
    before = module.training
    parameter = next(module.parameters(), None)
    if parameter is None:
        return None
    module.__dict__["training"] = is_training
    try:
        return _Tracer(parameter.dtype).trace(module)
    except Exception:  # noqa: BLE001 - code of others, which is left alone then
        return None
    finally:
        module.__dict__["training"] = before


def _stages(graph: fx.Graph, children: dict[str, Any], is_layer: IsLayer) -> tuple[Stage, ...]:
    """The stages from the result back to the input; empty for other graphs."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    results = [node for node in graph.nodes if node.op == "output"]
    if len(inputs) != 1 or len(results) != 1 or not isinstance(results[0].args[0], fx.Node):
        return ()
    # Weights whose dtype was looked at have no users.
    number = sum(
        node.op not in ("placeholder", "output") and (node.op != "get_attr" or bool(node.users)) for node in graph.nodes
    )
    at, stages, seen = results[0].args[0], [], 0
    while at is not inputs[0]:
        stage, before, nodes = _stage(at, children, is_layer)
        if stage is None or before is None:
            return ()
        stages.append(stage)
        at, seen = before, seen + nodes
    return tuple(reversed(stages)) if seen == number else ()


def _stage(node: fx.Node, children: dict[str, Any], is_layer: IsLayer) -> tuple[Stage | None, fx.Node | None, int]:
    """The stage that ends in a node, the node that it reads, and how many nodes it has."""
    if node.op == "call_function" and node.target in _PRODUCTS and len(node.args) == 2 and not node.kwargs:
        for one, other in (node.args, node.args[::-1]):
            pair, before, nodes = _pair(one, children, is_layer)
            up, also = _call(other)
            if pair is not None and up and also is before and isinstance(children.get(up), nn.Linear):
                is_plain = isinstance(children.get(pair.module), nn.Linear) and _is_used_once(one, other)
                return (pair._replace(up=up), before, nodes + 2) if is_plain else (None, None, 0)
        return None, None, 0
    pair, before, nodes = _pair(node, children, is_layer)
    if pair is not None:
        return pair, before, nodes
    name, before = _call(node)
    return (Stage(name), before, 1) if name and name in children else (None, None, 0)


def _pair(node: Any, children: dict[str, Any], is_layer: IsLayer) -> tuple[Stage | None, fx.Node | None, int]:
    """A linear layer and the activation that ends it."""
    name, inner = _call(node)
    activation = activation_of(children[name]) if name and name in children else None
    layer, before = _call(inner)
    if activation is None or layer not in children or not is_layer(children[layer]):
        return None, None, 0
    return (Stage(layer, activation, name), before, 2) if _is_used_once(inner) else (None, None, 0)


def _call(node: Any) -> tuple[str, Any]:
    """The name of the child that a node calls on one tensor, and that tensor's node; else nothing."""
    if not isinstance(node, fx.Node) or node.op != "call_module" or node.kwargs or len(node.args) != 1:
        return "", None
    return str(node.target), node.args[0] if isinstance(node.args[0], fx.Node) else None


def _is_used_once(*nodes: Any) -> bool:
    return all(len(node.users) == 1 for node in nodes)
