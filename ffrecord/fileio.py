"""Old names, which also stand in pickles of ffrecord 1.x."""

from ffrecord.fsalign import checkFsAlign
from ffrecord.reader import FileReader
from ffrecord.writer import FileWriter

__all__ = ["FileReader", "FileWriter", "checkFsAlign"]
