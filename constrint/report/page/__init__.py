"""The page of a report: template, style, script, and `render`, which makes one file of all."""
