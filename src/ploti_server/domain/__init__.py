"""Rules on small frozen values; no I/O, no clock, no randomness."""
