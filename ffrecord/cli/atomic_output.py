"""A file that a command was asked for: whole, durable, or not there."""

from ffrecord.system.atomic_file import PartFile, write_all


def save(data: bytes, path: str) -> None:
    """Write a file; one that is there is replaced.

    Raises:
        OSError: names `path`; what was there is as it was.
    """
    part = PartFile(path)
    try:
        write_all(part.fd, memoryview(data), 0)
        part.publish()
    except OSError as error:
        if isinstance(error, RuntimeError):
            raise  # it names the file
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        part.discard()
