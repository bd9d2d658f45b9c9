"""A report to look at: one page about a kernel on GPUs that need not be there.

`facts` gathers what is known as typed records, `figures` draws them with Plotly, `page` puts both into one HTML file
that needs no network. Nothing here knows the command line; whoever asks says what was asked as a `GpuQuestion`.
"""

from constrint.answers.facts import SCHEMA, Report
from constrint.report.gather import Means, gather
from constrint.report.page.render import html_of

__all__ = ["SCHEMA", "Means", "Report", "gather", "html_of"]
