"""Old names, which also stand in pickles of ffrecord 1.x."""

from ffrecord.folders.folder import MAGIC_BYTES, PackedFolder, dump_files, dump_structure, pack_folder

__all__ = ["MAGIC_BYTES", "PackedFolder", "dump_files", "dump_structure", "pack_folder"]
