"""A fuzzer led by coverage, and its targets: every parser of bytes that come from files. `fuzz.py` runs it."""
