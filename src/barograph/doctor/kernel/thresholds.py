"""The stability guide's alert thresholds by its names.

In:   nothing.
Out:  name → (default, the rule that uses it, that rule's threshold). A user may set either name.
"""

from __future__ import annotations

ALERT_THRESHOLDS: dict[str, tuple[float, str, str]] = {
    "loss_spike": (10.0, "loss_level", "spike"),  # times the moving average
    "grad_norm_max": (100.0, "gradient_norm_range", "high"),
    "grad_norm_min": (0.001, "gradient_norm_range", "low"),
    "weight_update_max": (0.1, "update_ratio", "high"),
    "weight_update_min": (1e-7, "update_ratio", "low"),
    "throughput_drop": (0.5, "throughput_drop", "share"),  # of what it was
    "memory_usage": (0.95, "device_memory", "share"),
    "val_loss_increase": (0.1, "overfitting", "increase"),  # over the best evaluation
}
