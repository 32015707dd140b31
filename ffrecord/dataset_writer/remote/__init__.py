"""Datasets written to a URL: objects in the store, shards staged on this machine, uploads."""
