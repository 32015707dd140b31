"""FFRecord files: samples for deep learning, packed once, read in any order, in batches, checked."""

from importlib.metadata import version

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, WorkerError
from ffrecord.reader import FileReader
from ffrecord.writer import FileWriter

__version__ = version("ffrecord")
