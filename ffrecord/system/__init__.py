"""Linux services: system calls, atomic files, signals, resources, file systems and URLs."""
