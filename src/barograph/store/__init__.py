"""Columns at rest. In: rows of named numbers from one process. Out: Arrow and Parquet files, merged by the reader."""
