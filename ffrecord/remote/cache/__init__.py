"""The cache of remote shards on a disk of this machine."""
