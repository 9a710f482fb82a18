"""Alerts: thresholds over metrics, who is notified of them, and what a training may do about them."""
