"""Files of other formats, read in place as record stores."""
