"""Other ways to log to a run: the classes of other projects, with their names and arguments.

In:   calls as those projects have them.
Out:  the same calls to a `Run`.
"""
