"""Typed results of all commands, and their renderings: tables, JSON, CSV, Markdown, files of other tools, pages.

`facts` holds the records that reports, proposals and exports share: `ParamFacts` (a tunable parameter), `RuleFacts` (a
rule and what it removes), `KernelFacts` (an implementation's space), `GpuFacts`, `CandidateFacts`, `MeasuredFacts`.
`table` holds `Column`, `Table` and `Page`, `layout` fits a table to a terminal. `registry` lists all formats by name,
and writes a page in every format of `--format`; `exported` and `formats/` write files of other tools.
"""

from typing import TYPE_CHECKING, Final

from constrint.lazy import lazily, names_of

if TYPE_CHECKING:
    from constrint.answers.exported import Export, Row
    from constrint.answers.registry import Format, PageFormat, RecordFormat
    from constrint.answers.table import Cell, Column, Page, Shown, Table

_NAMES: Final = {
    "exported": ("Export", "Row"),
    "registry": ("Format", "PageFormat", "RecordFormat"),
    "table": ("Cell", "Column", "Page", "Shown", "Table"),
}
__getattr__ = lazily(__name__, _NAMES)
__dir__ = names_of(globals(), _NAMES)

__all__ = ["Cell", "Column", "Export", "Format", "Page", "PageFormat", "RecordFormat", "Row", "Shown", "Table"]
