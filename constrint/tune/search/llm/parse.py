"""Parse a proposer's reply: text becomes typed records, or refusals that name the mistake and the way out.

The author of the text may be mistaken or hostile: it is parsed and never evaluated, every length is bounded, and every
mistake is a refusal, not an exception.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from constrint.errors import ConstrintError, UnknownNameError
from constrint.model import Constraint, DialectWarning, parse_constraint
from constrint.tune.search.llm.records import (
    MAX_PROPOSALS,
    MAX_RULE,
    ActionProposal,
    Edit,
    Preference,
    Proposal,
    ProposalRefusal,
    Restriction,
    SourceProposal,
    SpaceProposal,
    TaskKernel,
    Values,
    Verdict,
)

#: Longest reply that is read, in characters.
MAX_REPLY: Final = 200_000
#: Most characters of a value that a message quotes.
_SHOWN: Final = 60
_FENCE: Final = re.compile(r"```[A-Za-z]{0,10}[ \t]*\r?\n(.*?)```", re.DOTALL)
#: Exceptions of text that is no JSON of the schema.
_NOT_READ: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


@dataclass(frozen=True)
class Parsed:
    """The proposals of a reply that can be used, and the reasons for which the others cannot."""

    proposals: tuple[Proposal, ...] = ()
    refusals: tuple[ProposalRefusal, ...] = ()


class _Reply(msgspec.Struct, forbid_unknown_fields=True):
    """A reply with its proposals undecoded: each is decoded by itself, so that one mistake costs one proposal."""

    proposals: list[msgspec.Raw]


def parse_reply(text: str, kernels: Sequence[TaskKernel]) -> Parsed:
    """Parse a reply: a JSON object with a list `proposals`, perhaps in a code fence among other text.

    A proposal with a mistake is refused whole, with a message for each mistake.

    Args:
        text: The reply.
        kernels: The kernels with their parameters; no other kernel may be named.
    """
    if len(text) > MAX_REPLY:
        return _refused(f"the reply has {len(text):,} characters; at most {MAX_REPLY:,} are read. Propose less.")
    try:
        reply = msgspec.json.decode(_json_of(text), type=_Reply)
    except _NOT_READ as error:
        return _refused(
            f"the reply is no JSON object of the schema: {_reason(error)}. "
            'Answer with {"proposals": [...]} alone, or in one code fence.'
        )
    if len(reply.proposals) > MAX_PROPOSALS:
        return _refused(f"{len(reply.proposals)} proposals; at most {MAX_PROPOSALS} are read. Leave the weakest out.")
    taken: list[Proposal] = []
    refusals: list[ProposalRefusal] = []
    for number, raw in enumerate(reply.proposals):
        where = f"proposals[{number}]"
        try:
            proposal: Proposal = msgspec.json.decode(raw, type=Proposal)
        except _NOT_READ as error:
            message, _, place = _reason(error).partition(" - at `$")
            below = place.removesuffix("`").removeprefix(".")
            refusals.append(_at(f"{where}.{below}" if below else where, message))
            continue
        mistakes = list(faults(proposal, kernels, where))
        refusals += mistakes
        taken += [] if mistakes else [proposal]
    return Parsed(tuple(taken), tuple(refusals))


def faults(proposal: Proposal, kernels: Sequence[TaskKernel], where: str = "") -> Iterator[ProposalRefusal]:
    """Mistakes of a proposal: names, values and rules that its kernel does not have."""
    yield from _unprintable(msgspec.to_builtins(proposal), where)
    if isinstance(proposal, SourceProposal):
        return
    kernel = _kernel(proposal.kernel, kernels)
    if isinstance(kernel, str):
        yield _at(f"{where}.kernel", kernel)
    elif isinstance(proposal, ActionProposal):
        yield from _action_faults(proposal, kernel, where)
    else:
        yield from _values_faults(proposal.values, kernel, where)
        yield from _rule_faults(proposal.rules, kernel, f"{where}.rules")
        yield from _rule_faults(proposal.preferences, kernel, f"{where}.preferences")


def edit_faults(edit: Edit, kernels: Sequence[TaskKernel]) -> Iterator[ProposalRefusal]:
    """Mistakes of a judge's edit of constraints; a model may be the judge."""
    space = SpaceProposal(kernel=edit.kernel, values=edit.values, rules=edit.add, preferences=edit.prefer)
    yield from faults(space, kernels, "edit")


def read_rule(rule: str, names: Iterable[str]) -> Constraint:
    """Parse a proposed rule as a constraint over named parameters.

    Raises:
        ConstrintError: When the rule is no condition of the constraint language, names no parameter, or an unknown one.
    """
    parameters = list(names)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DialectWarning)
        try:
            constraint = parse_constraint(rule[: MAX_RULE + 1])
        except DialectWarning:
            raise ConstrintError("`%` beside `*` or `/` is ambiguous here; add brackets: (a % b) * c") from None
    for name in sorted(constraint.variables):
        if name not in parameters:
            raise UnknownNameError("parameter", name[:_SHOWN], parameters)
    if not constraint.variables:
        raise ConstrintError(f"the rule mentions no parameter; the kernel has {', '.join(parameters)}")
    return constraint


def read_verdict(text: str, kernels: Sequence[TaskKernel]) -> Verdict | None:
    """Parse a model's verdict; None for any other text. An edit with a mistake is dropped from the verdict."""
    try:
        # A reply may stand in a code fence: its object lies between the outermost braces.
        verdict: Verdict = msgspec.json.decode(text[max(text.find("{"), 0) : text.rfind("}") + 1], type=Verdict)
    except _NOT_READ:
        return None
    has_mistake = verdict.edit is not None and any(edit_faults(verdict.edit, kernels))
    return msgspec.structs.replace(verdict, edit=None) if has_mistake else verdict


def _refused(message: str) -> Parsed:
    return Parsed(refusals=(_at("", message),))


def _at(where: str, message: str) -> ProposalRefusal:
    return ProposalRefusal(where=where, message=message)


def _json_of(text: str) -> str:
    """The JSON in a reply: the whole text, else its first code fence, else the text between the outermost braces."""
    whole = text.strip().lstrip("\ufeff")
    if whole.startswith("{"):
        return whole
    fenced = _FENCE.search(whole)
    if fenced is not None:
        return fenced[1]
    first, last = whole.find("{"), whole.rfind("}")
    return whole[first : last + 1] if 0 <= first < last else whole


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "it is not text" if isinstance(error, UnicodeError) else str(error)[:300]


def _unprintable(part: Any, where: str) -> Iterator[ProposalRefusal]:
    """Control characters in any text of a proposal, which a terminal would obey; source may have them."""
    if isinstance(part, str) and not _is_plain(part):
        yield _at(where, f"control characters are not taken; saw {_shown(part)}.")
    for name, inner in part.items() if isinstance(part, dict) else ():
        if name != "source":
            yield from _unprintable(name, where)
            yield from _unprintable(inner, f"{where}.{name}".removeprefix("."))
    for place, inner in enumerate(part if isinstance(part, list | tuple) else ()):
        yield from _unprintable(inner, f"{where}[{place}]")


def _is_plain(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _kernel(name: str, kernels: Sequence[TaskKernel]) -> TaskKernel | str:
    """The kernel of that name, or the error message for an unknown one."""
    for kernel in kernels:
        if kernel.name == name:
            return kernel
    return str(UnknownNameError("kernel", name[:_SHOWN], [kernel.name for kernel in kernels]))


def _values_faults(several: Sequence[Values], kernel: TaskKernel, where: str) -> Iterator[ProposalRefusal]:
    parameters: set[str] = set()
    for place, part in enumerate(several):
        at = f"{where}.values[{place}]"
        message = _value_fault(part.parameter, part.values, kernel)
        if message:
            yield _at(at, message)
        elif part.parameter in parameters:
            yield _at(at, f"{part.parameter} has values already; give each parameter once.")
        parameters.add(part.parameter)


def _value_fault(name: str, values: Sequence[int], kernel: TaskKernel) -> str:
    """Error message for values that a parameter does not have; empty where it has them all."""
    params = {param.name: param for param in kernel.params}
    if name not in params:
        return str(UnknownNameError("parameter", name[:_SHOWN], params))
    outside = [value for value in values if value not in params[name].values]
    if not outside:
        return ""
    shown = ", ".join(map(str, outside[:6]))
    return f"{name} cannot be {shown}: {kernel.name} has {', '.join(map(str, sorted(params[name].values)))}."


def _rule_faults(
    rules: Sequence[Restriction | Preference], kernel: TaskKernel, where: str
) -> Iterator[ProposalRefusal]:
    names = [param.name for param in kernel.params]
    for place, part in enumerate(rules):
        try:
            read_rule(part.rule, names)
        except ConstrintError as error:
            message = f"{_shown(part.rule)} is no rule that can be taken: {error}"
            yield _at(f"{where}[{place}].rule", message)


def _action_faults(proposal: ActionProposal, kernel: TaskKernel, where: str) -> Iterator[ProposalRefusal]:
    moved = kernel.actions.get(proposal.action, ())
    if not moved:
        able = ", ".join(kernel.actions) or "none"
        message = f"{kernel.name} has no parameter that `{proposal.action}` moves; its actions: {able}."
        yield _at(f"{where}.action", message)
        return
    name = proposal.parameter or moved[0]
    if name not in moved:
        message = str(UnknownNameError(f"parameter of `{proposal.action}`", name[:_SHOWN], moved))
        yield _at(f"{where}.parameter", message)
    elif proposal.value is not None and (fault := _value_fault(name, (proposal.value,), kernel)):
        yield _at(f"{where}.value", fault)
    if proposal.config is None:
        return
    for parameter, value in proposal.config.items():
        if message := _value_fault(parameter, (value,), kernel):
            yield _at(f"{where}.config", message)
    missing = [param.name for param in kernel.params if param.name not in proposal.config]
    if missing:
        message = f"a configuration has a value for each parameter; missing: {', '.join(missing)}."
        yield _at(f"{where}.config", message)
