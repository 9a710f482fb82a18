"""Doors to other trackers; each file here is the only one that imports its library."""
