"""`barograph top`: a run's live view in a terminal.

In:   a stored run, a terminal.
Out:  pages that are drawn again as the run goes on.
"""
