"""C and Cython without policy: memory, threads, permutations, names, pictures, records."""
