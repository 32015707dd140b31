"""The batch engine: records by index, checked, without the GIL."""
