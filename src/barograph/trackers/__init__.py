"""Copies of a run for other trackers, made from the run's own folder; each may stop and go on at any time."""
