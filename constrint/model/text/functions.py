"""Functions of the text language: their names, what they take, and what is built."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Final

from constrint.errors import shortened
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model import logic, sequences, words
from constrint.model.logic import Element
from constrint.model.operations import BINARY
from constrint.model.ratio import Ratio, Symbol, fractions
from constrint.model.text.arrays import ArrayReader
from constrint.model.text.lexer import Token
from constrint.model.text.members import Each, Listed, Literal, TextArray, kind_of

#: Functions of integers and their numbers of arguments; None for any number, also of items of arrays.
FUNCTIONS: Final[dict[str, int | None]] = {
    **{name: None if rule.many else 2 for name, rule in BINARY.items() if not rule.sign},
    "abs": 1,
    "pow2": 1,
    "element": None,
}
#: Functions with conditions among their arguments, and their numbers of arguments.
LOGIC_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], int | None]]] = {
    "all_different": (words.all_different, None),
    "count": (logic.count, None),
    "exactly": (words.exactly, None),
    "at_least": (words.at_least, None),
    "at_most": (words.at_most, None),
    "exists": (c.any_of, None),
    "iff": (logic.iff, 2),
    "xor": (logic.xor, 2),
    "if_then_else": (logic.if_then_else, 3),
}
#: Functions of whole lists, and their numbers of arguments.
LIST_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "global_cardinality": (words.global_cardinality, 3),
    "lex_less": (words.lex_less, 2),
    "lex_less_equal": (words.lex_less_equal, 2),
    "inverse": (sequences.inverse, 2),
    "circuit": (sequences.circuit, 1),
    "no_overlap": (sequences.no_overlap, 2),
    "cumulative": (sequences.cumulative, 4),
    "regular": (sequences.regular, 4),
}
#: `forall` and `sum` take any numbers of arguments, items of arrays or a loop.
KNOWN: Final = (*FUNCTIONS, *LOGIC_FUNCTIONS, *LIST_FUNCTIONS, "forall", "sum")
#: Functions whose loop may have its body on the next line: they take nothing else that could end there.
LOOPS: Final = frozenset(("forall", "exists", "sum"))

#: Functions of a number and conditions; in a loop, `exactly(2, i in 1..n) (x[i] > 1)`, the number comes first.
CARDINALITIES: Final = ("exactly", "at_least", "at_most")

#: Functions of other languages, and what is written instead of them.
_INSTEAD: Final = {
    "implies": "write a -> b",
    "mod": "write a % b",
    "div": "write a // b",
    "pow": "write a ^ b",
    "among": "write count(i in 1..n) (x[i] in {1, 2})",
    "all": "write forall(i in 1..n) (x[i] > 2)",
    "any": "write exists(i in 1..n) (x[i] > 2)",
    "gcc": "write global_cardinality(x, [1, 2], [n, m])",
    "lex_lesseq": "write lex_less_equal(x, y)",
    "lex_less_eq": "write lex_less_equal(x, y)",
    "disjunctive": "write no_overlap(starts, durations)",
    "automaton": "write regular(x, start, [accepting], [(state, value, next)])",
    "alldiff": "write all_different(x)",
    "nvalue": "count the values that occur: count(v in 1..9) (exists(i in 1..n) (x[i] == v))",
}


def no_function(name: str) -> str:
    """Says that there is no such function, and which one may be meant."""
    plain = name.lower().replace("_", "")
    near = [k for k in KNOWN if k.replace("_", "").startswith(plain) or plain == k.replace("_", "")]
    near = near or difflib.get_close_matches(name.lower(), KNOWN, n=1)
    hint = _INSTEAD.get(name.lower()) or (
        f"did you mean `{near[0]}`?" if near else f"known: {', '.join(sorted(KNOWN))}"
    )
    return f"there is no function `{shortened(name)}`; {hint}"


def called(reader: ArrayReader, name: Token, args: Sequence[tuple[Any, Token]]) -> Any:
    """Builds what a function gives.

    Args:
        reader: What reads the text.
        name: The function's name.
        args: Its arguments, and where each begins.

    Raises:
        ParseError: When it does not take these.
    """
    word = name.value
    if word in LIST_FUNCTIONS:
        return _of_lists(reader, name, args)
    flat = reader.flat(args)
    for value, token in flat:
        if isinstance(value, (Literal, Listed, Symbol)) or (isinstance(value, Ratio) and word != "sum"):
            if isinstance(value, Ratio) and word in FUNCTIONS:
                raise reader.error(f"{kind_of(value)}, and an integer is expected; multiply it by {value.den}", token)
            raise reader.error(f"{kind_of(value)}, which {word} does not take", token)
    given = [value for value, _ in flat]
    if word in LOGIC_FUNCTIONS or word == "forall":
        function, num_arguments = LOGIC_FUNCTIONS.get(word, (None, None))
        if num_arguments is not None and len(given) != num_arguments:
            raise reader.error(f"{word} takes {num_arguments} arguments, got {len(given)}", name)
        if word in CARDINALITIES and not given:
            raise reader.error(f"{word} takes a number and conditions: {word}(2, a > 1, b > 1)", name)
        if function is None:
            conditions = tuple(c.as_condition(value, "forall") for value in given)
            is_loop = len(args) == 1 and isinstance(args[0][0], Each)
            return Each(conditions, args[0][0].labels) if is_loop else c.all_of(*conditions)
        return function(*given)
    numbers = [reader.as_number(value, token) for value, token in flat]
    if word == "sum":
        return _sum(numbers)
    return _of_numbers(reader, name, numbers)


def _sum(numbers: Sequence[Any]) -> Any:
    if any(isinstance(number, Ratio) for number in numbers):
        total, *others = numbers
        for number in others:
            total = fractions("+", total, number)
        return total
    return e.add(*numbers) if numbers else e.Const(0)


def _of_numbers(reader: ArrayReader, name: Token, args: Sequence[Any]) -> Any:
    word = name.value
    num_arguments = FUNCTIONS[word]
    if num_arguments is not None and len(args) != num_arguments:
        raise reader.error(f"{word} takes {num_arguments} argument(s), got {len(args)}", name)
    if not args:
        raise reader.error(f"{word} needs at least one argument", name)
    if word == "pow2":
        return e.Calculation("pow", (e.Const(2), args[0]))
    if word == "element":
        if len(args) < 2:
            raise reader.error("element takes an index and at least one item: element(i, 10, 20)", name)
        return Element(tuple(args))
    return e.Calculation(word, tuple(args))


def _of_lists(reader: ArrayReader, name: Token, args: Sequence[tuple[Any, Token]]) -> c.Constraint:
    """A function of lists; successors and inverse lists count from the arrays' first indices."""
    word = name.value
    function, num_arguments = LIST_FUNCTIONS[word]
    if len(args) != num_arguments:
        raise reader.error(f"{word} takes {num_arguments} argument(s), got {len(args)}", name)
    lists = [reader.plain(value, token) for value, token in args]
    if word in ("circuit", "inverse"):
        lowers = [value.lowers[0] if isinstance(value, TextArray) else 0 for value, _ in args]
        # The numbers in one list are the indices of the other one.
        lists = [_from_0(one, lower) for one, lower in zip(lists, reversed(lowers), strict=True)]
    if word == "regular":
        lists[1:] = [_fixed(reader, one, token) for one, (_, token) in zip(lists[1:], args[1:], strict=True)]
    if word == "global_cardinality":
        lists[1] = _fixed(reader, lists[1], args[1][1])
    return function(*lists)  # type: ignore[no-any-return]


def _from_0(exprs: Any, lower: int) -> Any:
    return tuple(expr - lower for expr in exprs) if lower and isinstance(exprs, tuple) else exprs


def _fixed(reader: ArrayReader, value: Any, token: Token) -> Any:
    """Numbers without variables."""
    if isinstance(value, tuple):
        return tuple(_fixed(reader, one, token) for one in value)
    if value.variables:
        raise reader.error(f"a fixed number is needed here; {min(value.variables)} is a variable", token)
    return value.value({})
