"""Writing of single files: file writer, append buffers, write-behind, and recovery after a kill."""
