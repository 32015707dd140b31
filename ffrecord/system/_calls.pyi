"""System calls that Python's `os` lacks."""

def fallocate(fd: int, mode: int, offset: int, size: int) -> None:
    """Call fallocate(2).

    Raises:
        OSError: the call failed; InterruptedError if a signal interrupted it.
    """
