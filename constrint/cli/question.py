"""From options to a `Question` about a kernel on a GPU, a text problem, or a file of params and restrictions.

`question_of` checks the options that name a problem, and builds the problems with the user's own rules in them.
"""

from __future__ import annotations

import difflib
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from constrint.answers.question import Question, StatedProblem
from constrint.answers.terminal import printable
from constrint.cli.options import Choice
from constrint.errors import ConstrintError, ParseError, UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, gpu_names, load_gpu
from constrint.model import Constraint, Domain, Problem, Var, is_in
from constrint.model.domain import literal
from constrint.model.ratio import code_variable
from constrint.select import KernelSpec, Operation, Workload
from constrint.select.rank import requests
from constrint.select.workload import workload_of
from constrint.solve import list_backends
from constrint.solve.backends.native import NATIVE

if TYPE_CHECKING:
    from constrint.model.text.members import Names


def question_of(choice: Choice) -> Question:
    """State the problems that the options name: one per implementation, or the one of the file.

    Raises:
        UsageError: When options are missing, contradict each other, or are wrong for the problem.
    """
    _check(choice)
    started = time.perf_counter()
    if choice.gpu is not None and choice.operation is not None:
        return _ask_kernels(choice, choice.operation, load_gpu(choice.gpu), started)
    path = choice.problem or choice.space
    if path is None:
        raise UsageError("name a file with --space FILE.json.")
    names = None if choice.gpu is None else gpu_names(load_gpu(choice.gpu))
    if choice.problem:
        problem = load_problem(path, choice.dialect, names, implicit_variables=bool(choice.implicit_variables))
    else:
        from constrint.model.python.restrictions import load_space

        problem = load_space(path)
    added, _ = add_own_rules(choice, {problem.name: problem}, names)
    title = f"{path}" if choice.gpu is None else f"{path} on {load_gpu(choice.gpu).name}"
    return Question(title, (StatedProblem(title, problem, added[problem.name]),), started=started)


def _check(choice: Choice) -> None:
    typed = {"--gpu": choice.gpu, "--problem": choice.problem, "--space": choice.space}
    named = [option for option, value in typed.items() if value is not None]
    if not named:
        raise UsageError(
            "say what to look at: --gpu NAME (for example mi300x; `constrint gpus` lists them), --problem FILE "
            "or --space FILE.json."
        )
    if len(named) > 1 and named != ["--gpu", "--problem"]:
        raise UsageError(f"{' and '.join(named)} exclude each other; give one of them.")
    of_kernels = {"--kernel": choice.kernel, "--dtype": choice.dtype, "--strict": choice.strict or None}
    extra = [option for option, value in of_kernels.items() if value is not None]
    if extra and (choice.gpu is None or choice.problem):
        raise UsageError(f"{named[-1]} takes no {', '.join(extra)}; these belong to a kernel on a --gpu.")
    if choice.implicit_variables and choice.problem is None:
        raise UsageError("--implicit-variables goes with --problem FILE.")
    if choice.dialect is not None:
        from constrint.model.text.parse import DIALECTS  # the text language is loaded where text is read

        if choice.dialect not in DIALECTS:
            raise UnknownNameError("dialect", choice.dialect, DIALECTS)


def _ask_kernels(choice: Choice, operation: Operation, gpu: GpuModel, started: float) -> Question:
    """The question about all implementations that can take the workload."""
    workload = workload_of(operation, gpu, choice.sizes, choice.dtype)
    able, refusals = requests(operation, gpu, workload)
    # The refusal of a kernel that is for other GPUs is no news.
    known = [s for s in operation.implementations if s.full_name in refusals]
    refused = [s for s in known if takes(s, gpu, s.default_workload(gpu))]
    several = len(able) + len(refused) > 1

    def titled(name: str) -> str:
        return f"{replace(workload, operation=name)} on {gpu.name}"

    if choice.strict:
        able = [replace(request, problem=request.problem.strict()) for request in able]
    names = gpu_names(gpu) if choice.where else None
    added, lacking = add_own_rules(choice, {request.spec.full_name: request.problem for request in able}, names)
    stated = tuple(
        StatedProblem(titled(r.spec.full_name if several else operation.name), r.problem, added[r.spec.full_name], r)
        for r in able
        if r.spec.full_name in added
    )
    reasons = {
        spec.full_name: refusals[spec.full_name].removeprefix(f"{spec.full_name}: ").rstrip(".")
        if workload.dtype in spec.dtypes
        else f"it takes {', '.join(spec.dtypes)}"
        for spec in refused
    }
    notes = [f"not {name}: {reason}" for name, reason in {**reasons, **lacking}.items()]
    refusals |= lacking
    return Question(
        titled(operation.name),
        stated,
        operation,
        refusals,
        tuple(notes),
        several,
        started,
        arguments=_arguments(choice),
        is_default=choice.kernel is None,
        gpu=gpu,
    )


def _arguments(choice: Choice) -> tuple[str, ...]:
    """The options that put the same question to another command."""
    named = [f"--gpu {choice.gpu}"] + ([f"--kernel {choice.kernel}"] if choice.kernel else [])
    words = [word for pair in named for word in pair.split(" ", 1)]
    for name, value in choice.sizes.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    words += ["--dtype", choice.dtype] if choice.dtype else []
    for option, texts in (("--set", choice.set_), ("--where", choice.where)):
        words += [word for text in texts or () for word in (option, text)]
    words += ["--dialect", choice.dialect] if choice.dialect else []
    words += ["--implicit-variables"] if choice.implicit_variables else []
    return (*words, *(["--strict"] if choice.strict else []))


def takes(spec: KernelSpec, gpu: GpuModel, workload: Workload) -> bool:
    """Whether a kernel takes a workload on a GPU."""
    try:
        spec.check_workload(gpu, workload)
    except ConstrintError:
        return False
    return True


def check_backend(name: str) -> None:
    """Raise UnknownNameError for an unknown solver back-end."""
    if name not in NATIVE and name not in list_backends():
        raise UnknownNameError("back-end", name, list_backends())


def load_problem(
    path: Path, dialect: str | None = None, names: Names | None = None, *, implicit_variables: bool = False
) -> Problem:
    """Read and parse a problem file; `names` are numbers of a GPU that it may use. Parser warnings go to stderr.

    Raises:
        UsageError: When the file cannot be read, or has no variable to find a value for.
    """
    from constrint.model.text.lexer import MAX_TEXT, read_text
    from constrint.model.text.parse import parse

    text = read_text(path, "the problem file", MAX_TEXT)
    with shown_warnings():
        problem = parse(text, dialect=dialect, source=str(path), names=names, implicit_variables=implicit_variables)
    if not problem.variables:
        raise UsageError(f"{path} has no variables: declare what is looked for, such as `var x in 1..8`.")
    return problem


#: Largest domain whose values a message lists.
MAX_SHOWN = 24


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print warnings of the parser as one line each on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"warning: {printable(str(warning.message))}", file=sys.stderr)


def add_own_rules(
    choice: Choice, problems: Mapping[str, Problem], names: Names | None = None
) -> tuple[dict[str, tuple[Constraint, ...]], dict[str, str]]:
    """Add the user's rules to every problem that has their parameters.

    A value that only another kernel takes leaves a problem without a solution.

    Args:
        choice: The options with the rules.
        problems: The problems by their kernels.
        names: Numbers of a GPU that rules may name.

    Returns:
        The added rules by kernel, and the reasons of the kernels that lack a parameter.

    Raises:
        UsageError: When a text is not a rule, a parameter is unknown, a value is not in its domain, or no problem has
            all the parameters.
    """
    rules = [_setting(problems, text) for text in choice.set_ or ()]
    rules += [_rule(problems, text, choice.dialect or "standard", names) for text in choice.where or ()]
    lacking: dict[str, str] = {}
    added: dict[str, tuple[Constraint, ...]] = {}
    for kernel, problem in problems.items():
        missing = sorted({n for rule in rules for n in rule.variables if n not in problem.variables})
        if missing:
            lacking[kernel] = f"it has no parameter {' and no parameter '.join(map(repr, missing))}"
        else:
            added[kernel] = tuple(problem.add(rule) for rule in rules)
    if not added and problems:
        reasons = "; ".join(f"{kernel}: {reason}" for kernel, reason in lacking.items())
        raise UsageError(f"no kernel has all the parameters that --set and --where name. {reasons}.")
    return added, lacking


def _setting(problems: Mapping[str, Problem], text: str) -> Constraint:
    """The rule of `--set NAME=VALUE[,VALUE]`."""
    name, equals, value_text = text.partition("=")
    name = name.strip()
    if not equals:
        raise UsageError(f"--set takes NAME=VALUE, for example --set tile_m=128; got {text!r}.")
    domain = domain_of(problems.values(), name)
    if domain.labels is not None:
        codes = [code_in(domain, part, f"--set {name}") for part in value_text.split(",")]
        return is_in(code_variable(name, domain), codes).labelled(f"asked for by --set {text}", f"set_{name}")
    values = [integer(part, f"--set {name}") for part in value_text.split(",")]
    for value in values:
        if value not in domain:
            raise UsageError(f"--set {name}={value}: {name} takes {allowed(domain)} {nearest(domain, value)}")
    rule: Constraint = Var(name) == values[0] if len(values) == 1 else is_in(Var(name), values)
    return rule.labelled(f"asked for by --set {text}", f"set_{name}")


def _rule(problems: Mapping[str, Problem], text: str, dialect: str, gpu: Names | None) -> Constraint:
    """The rule of `--where RULE`."""
    from constrint.model.text.parse import parse_constraint

    try:
        with shown_warnings():
            variables = {n: d for problem in problems.values() for n, d in problem.variables.items()}
            rule = parse_constraint(text, dialect=dialect, variables=variables, names=gpu)
    except ParseError as error:
        raise UsageError(f"--where is not a rule: {error}\nA rule looks like: tile_k <= 64") from None
    names = list(dict.fromkeys(name for problem in problems.values() for name in problem.variables))
    for name in sorted(rule.variables - set(names)):
        near = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"--where {text!r}: there is no parameter {name!r}.{hint} Parameters: {', '.join(names)}.")
    return rule.labelled(f"asked for by --where {text!r}", "where")


def domain_of(problems: Iterable[Problem], name: str) -> Domain:
    """The values of a parameter in all problems together.

    Raises:
        UnknownNameError: When no problem has the parameter; names the nearest ones.
    """
    every = [problem.variables for problem in problems]
    domains = [variables[name] for variables in every if name in variables]
    if not domains:
        raise UnknownNameError("parameter", name, {parameter for variables in every for parameter in variables})
    if all(domain.values == domains[0].values for domain in domains[1:]):
        return domains[0]
    values = dict.fromkeys(value for domain in domains for value in domain.values)
    reasons = {domain.because for domain in domains}
    # The reason of one kernel's values need not be the reason of the other's.
    return Domain.from_values(list(values), reasons.pop() if len(reasons) == 1 else "")


def integer(text: str, what: str) -> int:
    """A piece of an argument as an integer."""
    try:
        return int(text.strip())
    except ValueError:
        shown = text.strip() if len(text) <= 40 else f"{text[:40]}..."
        raise UsageError(f"{what}: expected an integer, got {shown!r}.") from None


def code_in(domain: Domain, text: str, what: str) -> int:
    """The code of a labelled value: `1.5`, `true`, `none`, or text with or without quotes."""
    label = text.strip()
    for value in domain.labels or ():
        if label in (literal(value), str(value)):
            code = domain.code_of(value)
            if code is not None:
                return code
    raise UsageError(f"{what}={label[:40]}: it takes {', '.join(map(literal, domain.labels or ()))}.")


def allowed(domain: Domain) -> str:
    """The values of a parameter for a message, with their reason."""
    listed = domain.listed is not None and domain.size <= MAX_SHOWN
    text = ", ".join(map(str, domain.values)) if listed else f"{domain.lower}..{domain.upper}"
    if domain.listed is not None and not listed:
        text = f"{domain.size} values of {text}"
    elif domain.step != 1:
        text += f" in steps of {domain.step}"
    return f"{text} ({domain.because})." if domain.because else f"{text}."


def nearest(domain: Domain, value: int) -> str:
    """The values of a parameter that are nearest to a value outside its domain."""
    if domain.listed is not None:
        near = sorted(domain.listed, key=lambda v: (abs(v - value), v))[:2]
    else:
        below = min(max(value - (value - domain.lower) % domain.step, domain.lower), domain.upper)
        near = [below, min(below + domain.step, domain.upper)] if value > domain.lower else [below]
    return f"Nearest: {' or '.join(str(v) for v in sorted(set(near)))}."
