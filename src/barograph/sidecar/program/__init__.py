"""`barograph run`: any program with a run around it.

In:   a command line.
Out:  the program as it would have been; a run with its output, metrics, exit, GPU and host use.
"""
