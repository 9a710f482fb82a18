"""Statistics of many tensors in one pass, on a CPU and on a device."""
