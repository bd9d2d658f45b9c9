"""The parameters that a restriction speaks of: by name or as `p["name"]`, with their values."""

from __future__ import annotations

import ast
import difflib
import unicodedata
from collections.abc import Mapping

from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.python.place import Place
from constrint.model.python.quotient import InexactError, Number, Quotient
from constrint.model.ratio import code_variable


class Parameters:
    """Finds parameters in a restriction's tree."""

    def __init__(self, place: Place, domains: Mapping[str, Domain]) -> None:
        self.place, self.domains = place, domains
        # Python reads identifiers in this form.
        self.spelled = {unicodedata.normalize("NFKC", name): name for name in domains}

    def name_of(self, node: ast.expr) -> str | None:
        """The parameter that a name, or `p["name"]`, stands for; None for another node."""
        if isinstance(node, ast.Name):
            name = node.id
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id not in self.domains
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            name = node.slice.value
        else:
            return None
        if name in self.domains:
            return name
        if name in self.spelled:
            return self.spelled[name]
        near = difflib.get_close_matches(name, list(self.domains), n=1, cutoff=0.5)
        known = f"did you mean {near[0]!r}?" if near else f"the parameters are {', '.join(list(self.domains)[:20])}."
        raise self.place.at(node, f"there is no parameter {name!r}; {known}")

    def variable(self, name: str) -> e.Var:
        """What stands for the codes of a parameter."""
        return code_variable(name, self.domains[name])

    def number(self, name: str) -> Number:
        """The value of a parameter, as Python computes with it."""
        domain = self.domains[name]
        if domain.labels is not None and not all(isinstance(label, (int, float)) for label in domain.labels):
            raise InexactError(f"{name} has values that are no numbers")
        if domain.scale == 0:
            raise InexactError(f"{name} has values that are not finite")
        floats = any(isinstance(label, float) for label in domain.labels or ())
        return Quotient(self.variable(name), e.Const(domain.scale)) if floats else self.variable(name)

    def names_in(self, node: ast.expr) -> list[str]:
        """The parameters in a node, in declared order."""
        found: set[str] = set()
        stack: list[ast.AST] = [node]
        while stack:
            part = stack.pop()
            name = self.name_of(part) if isinstance(part, (ast.Name, ast.Subscript)) else None
            if name is not None:
                found.add(name)
            elif isinstance(part, ast.Call):
                stack.extend(part.args)
            elif not isinstance(part, (ast.Lambda, ast.comprehension, ast.ListComp, ast.SetComp, ast.GeneratorExp)):
                stack.extend(ast.iter_child_nodes(part))
        return [name for name in self.domains if name in found]
