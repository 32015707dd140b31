"""What Linux gives: system calls, each with a result or -errno."""
