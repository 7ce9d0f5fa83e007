"""Adapters for the ports: store, files, engine, agents, plans."""
