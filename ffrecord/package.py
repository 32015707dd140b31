"""Module of the old names of 1.x, which also occur in pickles of 1.x."""

from ffrecord.folders.folder import MAGIC_BYTES, PackedFolder, dump_files, dump_structure, pack_folder

__all__ = ["MAGIC_BYTES", "PackedFolder", "dump_files", "dump_structure", "pack_folder"]
