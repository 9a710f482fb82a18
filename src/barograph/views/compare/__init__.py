"""Comparisons and scaling laws as text, Markdown and HTML. In: a comparison. Out: text."""
