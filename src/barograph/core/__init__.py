"""What every room knows: records, names, options, where this process runs. Knows no other room.

In:   plain values.
Out:  the same, typed, named and checked.
"""
