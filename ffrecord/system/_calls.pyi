"""System calls that Python's `os` does not have."""

def fallocate(fd: int, mode: int, offset: int, size: int) -> None:
    """fallocate(2).

    Raises:
        OSError: refused; InterruptedError among them.
    """
