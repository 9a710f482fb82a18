"""Charts in a notebook: a widget that needs no server, and still pictures where widgets are off.

In:   stored runs, comparisons.
Out:  what Jupyter shows of them.
"""
