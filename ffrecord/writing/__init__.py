"""Write one file: what appends to it, and what writes pieces of it."""
