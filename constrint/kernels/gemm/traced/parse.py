"""An epilogue as a text, `gelu(acc + bias) * r`: Python's expression syntax of names, numbers and operations. No torch.

The text is parsed, never evaluated. Allowed are + - * / ** (2, 3, 4, 0.5, -0.5), comparisons, and, or, not,
`x if condition else y`, and calls of the operations (`where`, `min`, `exp`, `gelu`, ...).
"""

from __future__ import annotations

import ast
from functools import lru_cache

from constrint.errors import UsageError
from constrint.kernels.gemm.traced.expression import ACC, OPERATIONS, Expression, Tape
from constrint.kernels.gemm.traced.trace import TracedValue, apply

#: Letters of a text, at most.
LONGEST = 2000
_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_COMPARED = {ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne"}
_SWAPPED = {ast.Gt: "lt", ast.GtE: "le"}
#: Names of functions in a text.
CALLS = tuple(op for op in OPERATIONS if op not in ("and", "or", "not"))


@lru_cache(maxsize=1024)
def parsed(text: str) -> Expression:
    """The expression of a text; every name but `acc` is an operand.

    Raises:
        UsageError: For a text that is none; says which part.
    """
    if len(text) > LONGEST:
        raise UsageError(f"matmul: an epilogue's text has at most {LONGEST} letters, got {len(text)}.")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        told = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise UsageError(f"matmul: the epilogue {text!r:.80} is no expression: {told}.") from error
    tape = Tape()
    try:
        value = _Reader(tape).read(tree.body)
    except RecursionError as error:
        raise UsageError(f"matmul: the epilogue {text!r:.80} is nested too deeply.") from error
    if not isinstance(value, TracedValue):
        return tape.ended(tape.constant(value))
    return tape.ended(value._place)


class _Reader:
    """Reads a parsed text onto a tape; values are symbols, or numbers where only numbers are joined."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def read(self, node: ast.expr) -> TracedValue | float:
        """The value of a part of the text."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            try:
                return float(node.value)  # type: ignore[arg-type]
            except OverflowError as error:
                raise self._refused(node) from error
        if isinstance(node, ast.Name):
            return TracedValue(self.tape, self.tape.operand(node.id))
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.BoolOp):
            op = "and" if isinstance(node.op, ast.And) else "or"
            value = self._symbol(node.values[0])
            for other in node.values[1:]:
                value = apply(op, value, self._symbol(other))
            return value
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.IfExp):
            return apply("where", *(self._symbol(part) for part in (node.test, node.body, node.orelse)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._called(node, node.func.id)
        raise self._refused(node)

    def _called(self, node: ast.Call, name: str) -> TracedValue:
        if name not in CALLS or not node.args:
            raise self._refused(node)
        return apply(name, *(self._symbol(part) for part in node.args))

    def _symbol(self, node: ast.expr) -> TracedValue:
        value = self.read(node)
        return value if isinstance(value, TracedValue) else TracedValue(self.tape, self.tape.constant(value))

    def _unary(self, node: ast.UnaryOp) -> TracedValue | float:
        if isinstance(node.op, ast.Not):
            return apply("not", self._symbol(node.operand))
        value = self.read(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.USub):
            return -value
        raise self._refused(node)

    def _binary(self, node: ast.BinOp) -> TracedValue | float:
        if isinstance(node.op, ast.Pow):
            power = self.read(node.right)
            if isinstance(power, TracedValue):
                raise self._refused(node)
            raised: TracedValue = self._symbol(node.left) ** power
            return raised
        op = _BINARY.get(type(node.op))
        if op is None:
            raise self._refused(node)
        return apply(op, self._symbol(node.left), self._symbol(node.right))

    def _compared(self, node: ast.Compare) -> TracedValue:
        values = [self._symbol(part) for part in (node.left, *node.comparators)]
        result: TracedValue | None = None
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            pair = (right, left) if type(op) in _SWAPPED else (left, right)
            name = _COMPARED.get(type(op)) or _SWAPPED.get(type(op))
            if name is None:
                raise self._refused(node)
            each = apply(name, *pair)
            result = each if result is None else apply("and", result, each)
        assert result is not None  # Python's grammar has a comparison
        return result

    def _refused(self, node: ast.expr) -> UsageError:
        shown = ast.unparse(node)
        return UsageError(
            f"matmul: an epilogue has no {shown!r:.80}; it consists of {ACC}, operands, numbers, + - * / **, "
            f"comparisons, and, or, not, x if c else y, and {', '.join(CALLS)}."
        )
