"""Alerts: thresholds over metrics, who is told of them, and what a training may do about them."""
