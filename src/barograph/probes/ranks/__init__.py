"""Ranks beside each other: values reduced, stragglers, where their threads are."""
