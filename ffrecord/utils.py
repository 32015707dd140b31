"""Module of an old name of 1.x."""

from ffrecord.dataset_writer.dump import dump

__all__ = ["dump"]
