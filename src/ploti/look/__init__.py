"""Looking at datasets without a pipeline: first rows, a file of a version, what differs between two, what changed.

Reads with DuckDB, which `ploti[sync]` brings.
"""
