"""Ray Data: read datasets of shards as `ray.data.Dataset`, and write these as shards. The only part that imports Ray.

reading.py   `read`: options -> a dataset; the Datasource
pieces.py    a dataset as tasks of about the same number of bytes
blocks.py    the work of a reading task: samples -> blocks of Arrow
to_arrow.py  columns of fields -> arrays of Arrow; their types, known beforehand
writing.py   `write`: options -> shards under names of their own; the Datasink
columns.py   columns of a dataset of Ray -> the fields that hold them
records.py   blocks of Arrow -> records; a column of a block -> the values of its field
target.py    the place of shards, and the step that makes them a dataset
remote_target.py  place and step for a URL
"""

from ffrecord.system.requirements import install_command

try:
    import ray.data as _data  # noqa: F401  (only to say what is missing before anything else does)
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("ray", "pyarrow", "pandas"):
        raise
    raise ImportError(f"ffrecord.ray needs {error.name}: {install_command('ray')}", name=error.name) from error

from ffrecord.ray.reading import read
from ffrecord.ray.writing import write

__all__ = ["read", "write"]
