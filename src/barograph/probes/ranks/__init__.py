"""Ranks beside each other: values reduced, stragglers, a watchdog, signs of life."""
