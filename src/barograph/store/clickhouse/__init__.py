"""Runs of many machines on a ClickHouse server: addresses, tables, sending and fetching."""
