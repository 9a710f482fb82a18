"""What runs say together: comparisons, scaling laws, forecasts, lineage, widths.

In:   stored runs.
Out:  figures and verdicts; how they look is for `views`.
"""
