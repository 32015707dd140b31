"""Writing of single files: file writer, append buffers, write-behind, and recovery after a kill.

file_writer.py  the writer of one file
recovery.py     a file from what a killed writer flushed
_buffers.pyx    append.pxi: appending through two buffers; write_behind.pxi: pieces written by a thread
"""
