"""Output files of commands: each appears complete and durable, or not at all."""

from ffrecord.system.atomic_file import PartFile, write_all


def save(data: bytes, path: str) -> None:
    """Write a file. It replaces a file of the same name.

    Args:
        data: the whole content.
        path: path of the file.

    Raises:
        OSError: writing failed; names `path`. An older file stays unchanged.
    """
    part = PartFile(path)
    try:
        write_all(part.fd, memoryview(data), 0)
        part.publish()
    except OSError as error:
        if isinstance(error, RuntimeError):
            raise  # the message names the file already
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        part.discard()
