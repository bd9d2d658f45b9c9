"""Loads GPU models: by name from the user's own files and those that ship with constrint, or by path.

A file with `base: NAME` takes `arch`, `sm`, `memory.l1` and `matrix` from that GPU, key by key, with the sources and
unconfirmed entries that belong to them; whatever belongs to the device (`device`, `memory.l2`, `memory.dram`,
`compute`) it states itself. It then passes three stages: the schema's types (`explain` turns a violation into an error
with the way out), the checks that types cannot express (`checks.py`), and the vendor's own.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn, cast, get_args, get_origin, get_type_hints

import msgspec

from constrint.errors import HardwareModelError, UnknownNameError, UsageError, shortened
from constrint.hwmodels.checks import findings, form_of_target
from constrint.hwmodels.files import DATA, find, index, read_yaml, user_index
from constrint.hwmodels.schema import GpuModel
from constrint.hwmodels.vendors import BUILT_IN, Vendor, get_vendor

#: Largest m or n of a matrix instruction; bounds how far `[8, 16, ..., 256]` is written out.
MAX_SIZE = 4096

#: Paths of the blocks that a base gives.
_INHERITED = ("arch", "sm", "memory.l1", "matrix")


def load_gpu(name_or_path: str | Path) -> GpuModel:
    """Load one GPU: a name or alias in any case (`h200`, `RX 7900 XTX`), or a path to a YAML file.

    A string is a path when it ends in .yaml or .yml or contains a path separator. Models that ship with
    constrint are read once per process, the user's own files every time.

    Raises:
        UnknownNameError: When no GPU has that name; lists the nearest.
        HardwareModelError: When the file breaks the schema; names the file, the key and the rule.
    """
    if isinstance(name_or_path, Path):
        return _load_file(name_or_path)
    if not isinstance(name_or_path, str) or not name_or_path.strip():
        raise UsageError(f"a GPU is named by a non-empty string or a path; got {name_or_path!r}.")
    if is_path(name_or_path):
        return _load_file(Path(name_or_path).expanduser())
    return _load_found(find(name_or_path))


def is_path(text: str) -> bool:
    """Whether a GPU's name is meant as a path."""
    return text.lower().endswith((".yaml", ".yml")) or any(sep in text for sep in (os.sep, os.altsep or "/", "/"))


def list_gpus() -> tuple[str, ...]:
    """Canonical names of every GPU that ships with constrint: by vendor, then in order of their files."""
    files = index().files
    folders = {name: path.parent.name for name, path in files.items()}
    return tuple(sorted(files, key=lambda name: ((*BUILT_IN, folders[name]).index(folders[name]), files[name].stem)))


def load_all() -> tuple[GpuModel, ...]:
    """Every GPU that ships with constrint, in the order of `list_gpus`."""
    shipped = index().files
    return tuple(_load_shipped(shipped[name]) for name in list_gpus())


def load_user_gpus() -> tuple[dict[Path, GpuModel], list[str]]:
    """The user's own GPUs by their files, and a sentence on each file that cannot be loaded."""
    models, refused = {}, []
    for path in user_index().files.values():
        try:
            models[path] = _load_file(path)
        except HardwareModelError as error:
            refused.append(str(error))
    return models, refused


def content_of(gpu: GpuModel) -> bytes:
    """Serialise a model: equal bytes exactly for equal models."""
    return msgspec.msgpack.encode(gpu)


def _load_file(path: Path) -> GpuModel:
    return _model_of(_read(path), str(path))


_load_shipped = functools.cache(_load_file)


def _load_found(path: Path) -> GpuModel:
    return _load_shipped(path) if _ships(path) else _load_file(path)


@functools.lru_cache(maxsize=256)
def _ships(path: Path) -> bool:
    """Whether a file comes with constrint."""
    return path.is_relative_to(DATA)


def _read(path: Path, above: tuple[Path, ...] = ()) -> Any:
    """A file as parsed, with what its base states; `above` are the files whose base it is."""
    raw = read_yaml(path)
    base = _find_base(raw, path, above)
    if base is None:
        return raw
    stated = _read(base, (*above, path))
    _load_found(base)  # the base is checked first: its errors are its own
    return _merge(raw, stated, path)


def _find_base(raw: Any, path: Path, above: tuple[Path, ...]) -> Path | None:
    """The file that `base` names; None where a file names none.

    Args:
        raw: The parsed file, from which the key is taken.
        path: The file.
        above: Files that name this one as their base.

    Raises:
        HardwareModelError: When there is no such GPU, or the file is its own base.
    """
    if not isinstance(raw, dict) or "base" not in raw:
        return None
    name = raw.pop("base")
    if not isinstance(name, str):
        raise HardwareModelError(f"{path}: base: must be the name of a GPU, in quotes; it is {name!r}.")
    try:
        base = find(name, shipped_first=True)
    except UnknownNameError as error:
        # Where no name is near, all that are known would make a long message of one about a file.
        text = str(error) if error.nearest else f"unknown GPU {shortened(name)!r}; `constrint gpu` lists all."
        raise HardwareModelError(f"{path}: base: {text}") from None
    if base.resolve() in [file.resolve() for file in (path, *above)]:
        raise HardwareModelError(f"{path}: base: {shortened(name)} leads back to this file; name another GPU.")
    return base


def _merge(raw: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    """The file with the base's blocks; a key that the file states stays as it is.

    Args:
        raw: The parsed file without `base`.
        base: The base's, which loads.
        path: The file, for messages.

    Raises:
        HardwareModelError: When the two are of different vendors, or one source key has two texts.
    """
    if raw.get("vendor") != base["vendor"]:
        raise HardwareModelError(
            f"{path}: base: {base['name']} is of the vendor {base['vendor']}; a base is of the file's own."
        )
    merged = dict(raw)
    used: dict[str, None] = {}
    taken: set[str] = set()
    for block in _INHERITED:
        *outer, key = block.split(".")
        above, base_above = merged, base
        for step in outer:
            above[step] = dict(inner) if isinstance(inner := above.get(step, {}), dict) else inner
            above, base_above = above[step], base_above[step]
        own, other = (above.get(key, {}), base_above[key]) if isinstance(above, dict) else (None, {})
        if not isinstance(own, dict):
            continue  # the schema says what is wrong with it
        missing = {inner: value for inner, value in other.items() if inner not in own and inner != "sources"}
        if missing:
            used |= dict.fromkeys(other["sources"])
            taken |= set(_paths(missing, block))
            stated = own.get("sources", [])
            # What a file states may be anything: the schema says later what is no key of a source.
            more = [source for source in other["sources"] if source not in stated] if isinstance(stated, list) else []
            sources = [*stated, *more] if isinstance(stated, list) else stated
            above[key] = {**own, **missing, "sources": sources}
    _take_texts(merged, base, used, taken, path)
    notes = raw.get("notes", [])
    if isinstance(notes, list):
        merged["notes"] = [
            *notes,
            f"what this file does not state of {', '.join(_INHERITED)} is that of {base['name']}",
        ]
    return merged


def _take_texts(
    merged: dict[str, Any], base: dict[str, Any], used: dict[str, None], taken: set[str], path: Path
) -> None:
    """Add the texts of the sources that came with blocks, and the unconfirmed entries of inherited keys."""
    own = merged.get("sources", {})
    if isinstance(own, dict):
        for key in used:
            if own.get(key, base["sources"][key]) != base["sources"][key]:
                raise HardwareModelError(
                    f"{path}: sources.{key}: the base has another text for this key; give yours another name."
                )
        merged["sources"] = {**own, **{key: base["sources"][key] for key in used}}
    entries = merged.get("unconfirmed", [])
    if isinstance(entries, list):
        inherited = [entry for entry in base["unconfirmed"] if entry.partition(":")[0].strip() in taken]
        merged["unconfirmed"] = [*entries, *inherited]


def _paths(value: Any, path: str) -> Iterator[str]:
    """Paths of all keys below a block."""
    for key, inner in value.items():
        yield f"{path}.{key}"
        if isinstance(inner, dict):
            yield from _paths(inner, f"{path}.{key}")


def check_file(path: Path) -> tuple[GpuModel | None, list[str]]:
    """Every broken rule of a file, a sentence each, and the model; None where not even the form is right."""
    try:
        raw = _read(path)
        model = _typed(raw, str(path))
    except HardwareModelError as error:
        return None, [str(error)]
    return model, [f"{path}: {sentence}" for sentence in _broken_rules(raw, model)]


def _model_of(raw: Any, source: str) -> GpuModel:
    """The model that a parsed file states, once it has passed every check."""
    model = _typed(raw, source)
    for sentence in _broken_rules(raw, model):
        raise HardwareModelError(f"{source}: {sentence}")
    return model


def _broken_rules(raw: dict[str, Any], model: GpuModel) -> Iterator[str]:
    """A sentence on each broken rule: the key, the rule, the value seen."""
    for path_of_key, rule in findings(raw, model):
        seen = _value_at(path_of_key, raw)
        numbers = seen if isinstance(seen, list) else [seen]
        is_shown = "it is" not in rule and all(isinstance(number, int | float) for number in numbers)
        yield _sentence(path_of_key, f"{rule}; it is {_shown(seen)}" if is_shown else rule)


def _typed(raw: Any, source: str) -> GpuModel:
    """The model that a parsed file states, by the types of the schema alone."""
    if not isinstance(raw, dict):
        raise HardwareModelError(f"{source}: a GPU's file is a mapping of keys; this is a {_kind(raw)}.")
    vendor, sm = raw.get("vendor"), raw.get("sm")
    struct: Any = GpuModel
    tagged = raw
    if isinstance(sm, dict) and isinstance(vendor, str):
        # The file says the vendor once; the struct of the SM is chosen by it.
        if "vendor" in sm:
            raise HardwareModelError(f"{source}: sm.vendor: unknown key; the vendor is stated at the top.")
        tagged = {**raw, "sm": {**sm, "vendor": vendor}}
        try:
            maker = get_vendor(vendor)
        except UnknownNameError as error:
            raise HardwareModelError(f"{source}: vendor: {error}") from None
        _check_target(raw.get("arch"), maker, source)
        struct = _struct_with(maker)
    _expand_progressions(tagged, source)
    try:
        read = msgspec.convert(tagged, struct)
    except msgspec.ValidationError as error:
        explain(str(error), source, struct, raw)
    return GpuModel(**{key: getattr(read, key) for key in GpuModel.__struct_fields__})


def _refuse(source: str, path: str, rule: str) -> NoReturn:
    """Raise the error about one key."""
    raise HardwareModelError(f"{source}: {_sentence(path, rule)}")


def _sentence(path: str, rule: str) -> str:
    """The error about one key; of long names in the file its beginning is shown."""
    return f"{shortened(path)}: {shortened(rule, MAX_RULE)}."


@functools.cache
def _struct_with(vendor: Vendor) -> type[GpuModel]:
    """A GPU's file whose `sm` block is read as the vendor's struct."""
    struct: Any = msgspec.defstruct(
        "GpuFile", [("sm", vendor.sm_type)], bases=(GpuModel,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return cast("type[GpuModel]", struct)


def _check_target(arch: Any, vendor: Vendor, source: str) -> None:
    """Refuse a target of another vendor first: the keys of the `sm` block are those of one vendor."""
    target = arch.get("target") if isinstance(arch, dict) else None
    rule = form_of_target(vendor, target) if isinstance(target, str) and target else ""
    if rule:
        raise HardwareModelError(f"{source}: arch.target: {rule}.")


def _expand_progressions(raw: dict[str, Any], source: str) -> None:
    """Write out `[8, 16, ..., 256]` in the sizes of matrix instructions."""
    matrix = raw.get("matrix")
    rows = matrix.get("instructions") if isinstance(matrix, dict) else None
    for place, row in enumerate(rows if isinstance(rows, list) else ()):
        for key in ("m", "n"):
            sizes = row.get(key) if isinstance(row, dict) else None
            if isinstance(sizes, list) and "..." in sizes:
                row[key] = _progression(sizes, f"{source}: matrix.instructions[{place}].{key}")


def _progression(sizes: list[Any], where: str) -> list[int]:
    padded: list[Any] = sizes if len(sizes) > 3 else [0, 0, "", 0]
    *head, before, last, dots, end = padded
    if dots == "..." and all(type(size) is int for size in (*head, before, last, end)):
        step = last - before
        if step > 0 and last < end <= MAX_SIZE and (end - last) % step == 0:
            return [*head, before, *range(last, end + 1, step)]
    raise HardwareModelError(
        f"{where}: write a progression as [8, 16, ..., 256]: two terms, dots, the last (<= {MAX_SIZE})."
    )


def _kind(value: Any) -> str:
    return {list: "list", str: "text", type(None): "null"}.get(type(value), type(value).__name__)


_AT = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
#: Longest value in a message, and longest rule with the values in it, in characters.
MAX_SHOWN, MAX_RULE = 60, 300
#: Rules of the schema in words, by the beginning of msgspec's messages.
_RULES = (
    (r"Expected int \| null", "must be a whole number, or null where nobody knows it"),
    (r"Expected float \| null", "must be a number, or null where nobody knows it"),
    (r"Expected str \| null", "must be text, in quotes"),
    (r"Expected int >= (.*)", r"must be a whole number of at least \1"),
    (r"Expected int <= (.*)", r"must be a whole number of at most \1"),
    (r"Expected int", "must be a whole number"),
    (r"Expected float > (.*)", r"must be a number above \1"),
    (r"Expected float <= (.*)", r"must be a number of at most \1"),
    (r"Expected float", "must be a number"),
    (r"Expected bool", "must be true or false"),
    (r"Expected str matching regex (.*)", r"must be text in quotes of the form \1"),
    (r"Expected str of length >= 1", "must be text of at least one character"),
    (r"Expected str", "must be text, in quotes"),
    (r"Expected array of length >= 1", "must be a list of at least one item"),
    (r"Expected array", "must be a list, [a, b]"),
    (r"Expected (object|Sm)", "must be a mapping of keys to values"),
)


def explain(message: str, source: str, struct: type[msgspec.Struct], raw: Any) -> NoReturn:
    """Raise msgspec's error in terms of the file: its key, the rule, the value seen, valid values.

    Args:
        message: msgspec's message.
        source: The file.
        struct: The schema.
        raw: The parsed file.

    Raises:
        HardwareModelError: Always.
    """
    match = _AT.fullmatch(message)
    what = (match["what"] if match else message).replace("`", "")
    path = ((match and match["path"]) or "").removeprefix("$").removeprefix(".")
    prefix = f"{path}." if path else ""
    if unknown := _UNKNOWN.fullmatch(match["what"] if match else message):
        _refuse(source, prefix + unknown[1], f"unknown key.{_near(unknown[1], path, struct)}".rstrip("."))
    if missing := _MISSING.fullmatch(match["what"] if match else message):
        reason = "; every block names where its values come from" if missing[1] == "sources" else ""
        _refuse(source, prefix + missing[1], f"missing{reason}")
    valid = [value for value in _valid(_hint_at(path, struct)) if value is not None]
    listed = ", ".join(map(str, valid))
    if match and match["key"]:
        bad = next((key for key in _value_at(path, raw) or () if key not in valid), "")
        _refuse(source, f"{prefix}{bad}", f"unknown key. Known: {listed}")
    if what.startswith("Invalid enum value"):
        rule = f"must be {'one of ' if len(valid) > 1 else ''}{listed}"
    else:
        rule = _in_words(what.partition(", got")[0])
    seen = _value_at(path, raw)
    shown = "" if seen is _UNSEEN else f"; it is {_shown(seen)}"
    _refuse(source, path or "the file", f"{rule}{shown}")


_UNSEEN = object()


def _in_words(rule: str) -> str:
    for pattern, words in _RULES:
        if match := re.fullmatch(pattern, rule):
            return match.expand(words)
    return rule


def _shown(value: Any) -> str:
    text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _value_at(path: str, raw: Any) -> Any:
    """Value of the file at a path; `_UNSEEN` where the path is ambiguous."""
    for step in _STEP.findall(path):
        if step.startswith("["):
            number = step[1:-1]
            if not isinstance(raw, list) or not number.isdigit():
                return _UNSEEN
            raw = raw[int(number)]
        elif isinstance(raw, dict) and step in raw:
            raw = raw[step]
        else:
            return _UNSEEN
    return raw


def _near(key: str, path: str, struct: type[msgspec.Struct]) -> str:
    """Hint at the nearest key, or at all keys."""
    nested = _struct_in(_hint_at(path, struct))
    keys = list(nested.__struct_fields__) if nested is not None else []
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.6) or [k for k in keys if k.startswith(key)][:1]
    return f" Did you mean {near[0]!r}? Units are part of the key." if near else f" Known: {', '.join(keys)}."


def _hint_at(path: str, struct: Any) -> Any:
    """The type of the value at a path."""
    hint = struct
    for step in _STEP.findall(path):
        if step.startswith("["):
            continue
        nested = _struct_in(hint)
        if nested is None:
            return None
        hint = get_type_hints(nested, include_extras=True).get(step)
    return hint


def _struct_in(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((nested for inner in get_args(hint) if (nested := _struct_in(inner)) is not None), None)


def _valid(hint: Any) -> tuple[Any, ...]:
    """The values that a type lists."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((values for inner in get_args(hint) if (values := _valid(inner))), ())
