"""Where the shards of a write to a URL are made: a directory of this machine that the same call finds again."""

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ffrecord import urls
from ffrecord.errors import file_error

# What of the options says which store a URL is of; all else may change, or is secret.
TELLING = ("endpoint", "account_name")
ENVIRONMENT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME")
SHOWN = 60  # characters of the URL's last part


def place(url: str, storage_options: Mapping[str, Any] | None, staging: str | os.PathLike[str] | None) -> str:
    """The path of which the part directory is that of a URL; nothing comes to be at the path itself.

    Args:
        staging: the directory that it is in; None for one of this user below the system's temporary directory.
    """
    root = Path(tempfile.gettempdir()) / f"ffrecord-staging-{os.geteuid()}" if staging is None else Path(staging)
    scheme, host, path, _ = urls.split(url)
    told = [scheme, host.rpartition("@")[2] or host, path.strip("/")]
    for key, value in sorted((storage_options or {}).items()):
        if any(word in key.lower() for word in TELLING):
            told.append(f"{key.lower()}={value}")
    told += [os.environ.get(name, "") for name in ENVIRONMENT]
    name = urls.name_of(url)[-SHOWN:] or host.rpartition("@")[2][-SHOWN:]
    return str(Path(os.path.abspath(root)) / f"{name}-{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}")


def make(target: str, *, own: bool) -> None:
    """Make the directory of `target`, for this user alone.

    Args:
        own: whether its name is one that anybody could have used before us.

    Raises:
        OSError (also a RuntimeError): it cannot be made, or is not ours alone.
    """
    directory = os.path.dirname(target)
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        status = os.lstat(directory)
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"{directory}: no staging directory", directory) from None
    if not own:
        return
    others = stat.S_IMODE(status.st_mode) & 0o077
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or others:
        sentence = f"{directory}: no directory of this user alone; staging= names another"
        raise file_error(errno.EPERM, sentence, directory)
