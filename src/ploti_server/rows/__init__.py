"""Whole tables: Arrow batch functions and builders of relational queries, run by an engine."""
