"""Byte formats of the package: FFR files, their extension block, the manifest, journals and the folder index."""
