"""Old name."""

from ffrecord.dump import dump

__all__ = ["dump"]
