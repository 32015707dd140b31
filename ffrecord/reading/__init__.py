"""Record stores: reading of records by index, in batches, ahead and in sequence."""
