"""Lineage in a terminal. In: a tree of segments and forks. Out: lines of text."""
