"""Batch engine: compiled code that reads and checks batches of records."""
