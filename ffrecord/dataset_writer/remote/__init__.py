"""Datasets written to a URL: objects, staging on this machine, uploads."""
