"""What rules are made of: channels of numbers, cursors, tables of layers, the examiner that runs them.

In:   columns of a run, as they grow or all at once.
Out:  findings.
"""
