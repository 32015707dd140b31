"""Computations without policy: checksums, memory, threads, names, permutations and pictures."""
