"""Connectors that read a source's state, listed in SOURCES."""
