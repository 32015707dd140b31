"""LMDB databases and TorchRecord, read in place."""
