"""The black box: the last steps in full detail, written out when something goes wrong.

In:   a run's records and tables, in the pump's thread; findings, exceptions, SIGTERM.
Out:  folders `blackbox/{step}-{reason}` in the run's folder (`box.py`), read and shown again (`files.py`, `table.py`).
"""
