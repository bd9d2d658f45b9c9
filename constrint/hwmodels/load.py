"""Loading GPU models: by name from the files that ship with constrint, or by path from a user's own."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, cast

import msgspec

from constrint.errors import HardwareModelError, UnknownNameError, UsageError
from constrint.hwmodels import names
from constrint.hwmodels.check import findings
from constrint.hwmodels.messages import explain
from constrint.hwmodels.parse import read_yaml
from constrint.hwmodels.schema import GpuModel
from constrint.hwmodels.targets import form_of_target
from constrint.hwmodels.vendors import Vendor, get_vendor, list_vendors

#: Largest m or n of a matrix instruction; bounds how far `[8, 16, ..., 256]` is written out.
MAX_SIZE = 4096


def load_gpu(name_or_path: str | Path) -> GpuModel:
    """Load one GPU: a name or alias in any case (`h200`, `RX 7900 XTX`), or a path to a YAML file.

    A string is a path when it ends in .yaml or .yml or contains a path separator. Models that ship with
    constrint are read once per process, files of a path every time.

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
    return _load_shipped(names.find(name_or_path))


def is_path(text: str) -> bool:
    """Whether a GPU's name is meant as a path."""
    return text.lower().endswith((".yaml", ".yml")) or any(sep in text for sep in (os.sep, os.altsep or "/", "/"))


def list_gpus() -> tuple[str, ...]:
    """Canonical names of every GPU that ships with constrint: by vendor, then in order of their files."""
    files = names.index().files
    folders = {vendor.name: place for place, vendor in enumerate(list_vendors())}
    # A folder of a vendor that is not known comes last; loading its files says what is wrong.
    place_of = {name: folders.get(path.partition("/")[0], len(folders)) for name, path in files.items()}
    return tuple(sorted(files, key=lambda name: (place_of[name], files[name])))


def load_all() -> tuple[GpuModel, ...]:
    """Every GPU that ships with constrint, in the order of `list_gpus`."""
    return tuple(load_gpu(name) for name in list_gpus())


def content_of(gpu: GpuModel) -> bytes:
    """Everything that a model states, as bytes: equal for equal models, and other ones after any edit."""
    return msgspec.msgpack.encode(gpu)


def _load_file(path: Path) -> GpuModel:
    source = str(path)
    raw = read_yaml(path)
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
    model = GpuModel(**{key: getattr(read, key) for key in GpuModel.__struct_fields__})
    for path_of_key, rule in findings(raw, model):
        raise HardwareModelError(f"{source}: {path_of_key}: {rule}.")
    return model


_load_shipped = functools.cache(_load_file)


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
    for index, row in enumerate(rows if isinstance(rows, list) else ()):
        for key in ("m", "n"):
            sizes = row.get(key) if isinstance(row, dict) else None
            if isinstance(sizes, list) and "..." in sizes:
                row[key] = _progression(sizes, f"{source}: matrix.instructions[{index}].{key}")


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
