"""Runs kept in order: deleted and brought back, searched, counted by project.

In:   folders of runs; what a person typed.
Out:  runs moved to the trash and back, edits (`curation.py` writes them), rows and lines of text.
"""
