"""MDS datasets of MosaicML Streaming, read in place."""
