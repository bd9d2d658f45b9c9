"""A `CellDefinition` from its text: how an operator, or another process, gets a cell. No torch."""

from __future__ import annotations

from functools import lru_cache

from constrint.errors import UsageError
from constrint.kernels.rnn.language.graph import (
    LEAVES,
    CellDefinition,
    CellGate,
    CellTape,
    CellTapeWriter,
    Parameter,
    StepInput,
)


@lru_cache(maxsize=256)
def definition_of(text: str) -> CellDefinition:
    """The definition whose `text` this is, with the name `cell`, or whose `named_text` it is.

    Raises:
        UsageError: For anything else.
    """
    name, at, unnamed = text.rpartition("@")
    try:
        gates, states, parameters, inputs, tape = unnamed.split("/")
        pairs = [each.split("=") for each in states.split(",")]
        definition = CellDefinition(
            name or "cell",
            tuple(_gate(each) for each in gates.split(",")),
            tuple(name for name, _ in pairs),
            tuple(float.fromhex(value) for _, value in pairs),
            tuple(Parameter(*each.split(":")) for each in parameters.split(",") if each),  # type: ignore[arg-type]
            tuple(StepInput(*each.split(":")) for each in inputs.split(",") if each),
            _tape(tape),
        )
    except (ValueError, TypeError, IndexError, KeyError, UsageError) as error:
        raise UsageError(f"this is no text of a cell: {text:.80}") from error
    if definition.text != unnamed or (at and not name.isidentifier()):
        raise UsageError(f"this is no text of a cell: {text:.80}")
    return definition


def _gate(text: str) -> CellGate:
    name, flags = text.split(":")
    is_apart, has_input, has_recurrent, is_late = (flag == "1" for flag in flags)
    return CellGate(name, is_apart, has_input, has_recurrent, is_late)


def _tape(text: str) -> CellTape:
    nodes, outputs = text.split("|")
    writer, places = CellTapeWriter(), list[int]()
    for each in nodes.split(";"):
        op, *words = each.split(" ")
        if op == "constant":
            places.append(writer.constant(float.fromhex(words[0])))
        elif op in LEAVES:
            places.append(writer.leaf(op, words[0]))
        else:
            name = "" if words[0].isdecimal() else words.pop(0)
            places.append(writer.operation(op, *(places[int(word)] for word in words), name=name))
    pairs = (each.split("=") for each in outputs.split(","))
    return writer.ended({name: places[int(place)] for name, place in pairs})
