"""What a ranking or a space found, in the form in which people use it: Triton, JSON, CSV, C, Kernel Tuner, CUTLASS.

`export(found, "triton")` gives the text of a file. A format is a file in `formats/` that ends with `FORMAT`, a call of
`register`, or an entry point of the group `constrint.exports`.
"""

from typing import TYPE_CHECKING, Final

from constrint.lazy import lazily, names_of

if TYPE_CHECKING:
    from constrint.export.found import Found, Row
    from constrint.export.registry import Format, format_named, list_formats, register
    from constrint.export.write import export

_NAMES: Final = {
    "found": ("Found", "Row"),
    "registry": ("Format", "format_named", "list_formats", "register"),
    "write": ("export",),
}
__getattr__ = lazily(__name__, _NAMES)
__dir__ = names_of(globals(), _NAMES)

__all__ = ["Format", "Found", "Row", "export", "format_named", "list_formats", "register"]
