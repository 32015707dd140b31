"""Packed folders: a directory tree in one `.ffr` file, and safe unpacking."""
