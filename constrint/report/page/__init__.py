"""The page: a template, a style, a script, and what puts facts, figures and Plotly's script into one file."""
