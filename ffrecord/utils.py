"""Old name."""

from ffrecord.dataset_writer.dump import dump

__all__ = ["dump"]
