""".beton files of FFCV, read in place."""
