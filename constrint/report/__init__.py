"""A report: one HTML page about a kernel on GPUs that need not be here, without network access.

The flow: `gather` fills the typed facts of `constrint.answers.facts` from a `Question` per GPU, `figures` draws them
with Plotly, `page` renders facts and figures into one file. No part knows the command line.
"""

from constrint.answers.facts import SCHEMA, Report
from constrint.report.gather import Means, gather
from constrint.report.page.render import html_of, html_of_drawings

__all__ = ["SCHEMA", "Means", "Report", "gather", "html_of", "html_of_drawings"]
