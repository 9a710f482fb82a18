"""What every picture of a run is drawn with: one line chart, one heat map, one table, one palette, one page.

In:   columns, rows, words.
Out:  SVG, HTML, Markdown, PNG; what reports, comparisons, notebooks and the width check put together.
"""
