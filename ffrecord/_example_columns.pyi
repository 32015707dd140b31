"""Used from C only: see _example_columns.pxd."""
