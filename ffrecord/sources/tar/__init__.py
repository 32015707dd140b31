"""Tar archives and WebDataset, read in place or streamed."""
