"""Benchmarks: each job beside its limit or peer in one run, as JSON lines (CPU seconds, wall, peak memory)."""
