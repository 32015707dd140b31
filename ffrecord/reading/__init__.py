"""Record stores in Python: files opened, batches read, prefetched and counted."""
