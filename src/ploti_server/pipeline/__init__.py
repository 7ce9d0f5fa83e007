"""The imperative shell, one verb a file: gather, decide, write once."""
