"""The black box: the last steps in full detail, written out when something goes wrong.

In:   the end of a run's log and block files; findings, exceptions, SIGTERM.
Out:  folders `blackbox/{step}-{reason}` in the run's folder (`box.py`), read and shown again (`files.py`, `table.py`).
"""
