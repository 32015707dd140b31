"""The bytes of our own files: FFR layout, extension block, manifest, journal, index of packed folders."""
