"""Probes watch a training and hand records to its run: speed, machine, memory, ranks, data."""
