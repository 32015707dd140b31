"""Packed folders: a directory tree in one `.ffr` file, and its safe unpacking."""
