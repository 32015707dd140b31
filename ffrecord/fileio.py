"""Module of the old names of 1.x, which also occur in pickles of 1.x."""

from ffrecord.reader import FileReader
from ffrecord.system.filesystems import checkFsAlign
from ffrecord.writing.file_writer import FileWriter

__all__ = ["FileReader", "FileWriter", "checkFsAlign"]
